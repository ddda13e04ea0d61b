"""Log-probabilities of sampled tokens, of the model's own distribution (before penalties and temperature)."""

from __future__ import annotations

import numpy as np


def logprobs(logits: np.ndarray, token: int, k: int) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability of ``token`` and the ``k`` best (token, log-probability), best first, ties by lower id.

    ``logits`` float32[n_vocab]; computed in float64: log p_i = x_i - max - log Σ exp(x_j - max).
    """
    x = logits.astype(np.float64)
    x -= x.max()
    x -= np.log(np.exp(x).sum())
    if k == 0:
        return float(x[token]), ()
    k = min(k, len(x))
    border = np.partition(x, len(x) - k)[len(x) - k]
    best = np.flatnonzero(x >= border)
    best = best[np.lexsort((best, -x[best]))][:k]
    return float(x[token]), tuple((int(i), float(x[i])) for i in best)
