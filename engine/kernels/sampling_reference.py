"""The meaning of sampling, in NumPy: what ``sampling`` computes without sorting the vocabulary."""

from __future__ import annotations

import numpy as np


def adjust(
    logits: np.ndarray,
    history: np.ndarray,
    *,
    repetition: float = 1.0,
    presence: float = 0.0,
    frequency: float = 0.0,
    bias: tuple[tuple[int, float], ...] = (),
) -> np.ndarray:
    """Logits after bias and penalties, float32[n_vocab]; NaN counts as -inf.

    A token of ``history`` has a positive logit divided by ``repetition`` and another multiplied by it (Keskar et al.
    2019), then ``presence`` and ``frequency`` times its count taken away.
    """
    x = np.where(np.isnan(logits), np.float32(-np.inf), logits).astype(np.float32)
    for token, amount in bias:
        x[token] += np.float32(amount)
    tokens, counts = np.unique(history, return_counts=True)
    old = x[tokens]
    new = np.where(old > 0, old / np.float32(repetition), old * np.float32(repetition))
    x[tokens] = new - np.float32(presence) - counts.astype(np.float32) * np.float32(frequency)
    return x


def survivors(
    x: np.ndarray, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Tokens that may be drawn, in ascending order, and their weights (largest 1).

    top-k keeps the k largest logits (ties: lower token first); top-p the fewest of them, largest first, that hold
    ``top_p`` of their weight (Holtzman et al. 2020); min-p those with at least ``min_p`` of the largest weight
    (Nguyen et al. 2024).
    """
    order = np.argsort(-x, kind="stable")
    if 0 < top_k < len(x):
        order = order[:top_k]
    weights = np.exp((x[order] - x.max()) / np.float32(temperature)).astype(np.float32)
    if top_p < 1:
        sums = np.cumsum(weights, dtype=np.float64)
        keep = int(np.searchsorted(sums, top_p * sums[-1])) + 1
        order, weights = order[:keep], weights[:keep]
    kept = weights >= min_p
    order, weights = order[kept], weights[kept]
    ascending = np.argsort(order)
    return order[ascending], weights[ascending]


def draw(x: np.ndarray, u: float, *, temperature: float, top_k: int = 0, top_p: float = 1.0, min_p: float = 0.0) -> int:
    """The token where the running sum of the survivors' weights passes ``u`` of the whole; the largest logit (ties:
    lowest token) at temperature 0."""
    if temperature <= 0 or np.isinf(x.max()):
        return int(x.argmax())
    tokens, weights = survivors(x, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    sums = np.cumsum(weights, dtype=np.float64)
    return int(tokens[min(np.searchsorted(sums, u * sums[-1], side="right"), len(tokens) - 1)])
