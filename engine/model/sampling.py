"""Sampling in NumPy: from a row of logits to a token, in the order that ``SamplingParams`` states.

Draws are counter-based: draw ``i`` of a stream with seed ``s`` is a hash of (s, i) and nothing else, so a stream can be
replayed and does not depend on its batch mates.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.cache.session import Session
from engine.errors import SessionError
from engine.scheduling.request import SamplingParams

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15
_FIRST_LOOK = 64
"""How many tokens a nucleus is first looked for in; most hold fewer."""


def sample_sessions(
    sessions: Sequence[Session], params: Sequence[SamplingParams], masks: Sequence[np.ndarray | None] | None = None
) -> list[int]:
    """The next token of each session; ``n_drawn`` of each goes up by one."""
    tokens = []
    for i, (session, wish) in enumerate(zip(sessions, params, strict=True)):
        if session.logits is None:
            raise SessionError("This session has no logits yet; evaluate its prompt first.")
        mask = None if masks is None else masks[i]
        tokens.append(choose(session.logits, session.tokens, wish, draw(session.seed, session.n_drawn), mask))
    for session in sessions:
        session.n_drawn += 1
    return tokens


def draw(seed: int, index: int) -> float:
    """Draw number ``index`` of a stream, uniform in [0, 1): the finalizer of SplitMix64 (Steele, Lea and Flood 2014),
    applied to the seed first, so that neighbouring seeds are unrelated."""
    bits = _mix(_mix(seed & _MASK) + (index + 1) * _GOLDEN & _MASK)
    return (bits >> 11) * 2.0**-53


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31


def choose(
    logits: np.ndarray, history: Sequence[int], params: SamplingParams, u: float, mask: np.ndarray | None = None
) -> int:
    """A token for ``logits`` float32[n_vocab] (not changed) and ``u`` in [0, 1). Ties go to the lower id.

    ``history`` are the tokens of the sequence so far, of which the last ``penalty_last_n`` count.
    """
    row = _adjusted(logits, history, params, mask)
    if params.temperature <= 0:
        return int(row.argmax())
    ids = _largest(row, params.top_k) if 0 < params.top_k < len(row) else None
    kept = row if ids is None else row[ids]
    weights = np.exp((kept - kept.max()).astype(np.float64) / params.temperature)
    if params.top_p < 1:
        nucleus = _nucleus(weights, params.top_p)
        ids, weights = nucleus if ids is None else ids[nucleus], weights[nucleus]
    if params.min_p > 0:
        weights = np.where(weights >= params.min_p, weights, 0.0)
    reach = weights.cumsum()
    point = min(u * reach[-1], np.nextafter(reach[-1], 0.0))  # the product may be rounded up to the very end
    place = int(np.searchsorted(reach, point, side="right"))
    return place if ids is None else int(ids[place])


def _adjusted(
    logits: np.ndarray, history: Sequence[int], params: SamplingParams, mask: np.ndarray | None
) -> np.ndarray:
    """Logits after mask, bias and penalties; the row itself where there are none."""
    repetition, presence, frequency = params.repetition_penalty, params.presence_penalty, params.frequency_penalty
    penalized = repetition != 1 or presence != 0 or frequency != 0
    recent = history[-params.penalty_last_n :] if penalized and params.penalty_last_n > 0 else ()
    if mask is None and not params.logit_bias and not len(recent):
        return logits
    row = logits.astype(np.float32) if mask is None else np.where(mask, logits, np.float32(-np.inf))
    for token, bias in params.logit_bias:
        row[token] += bias
    if len(recent):
        ids, counts = np.unique(np.asarray(recent), return_counts=True)
        value = row[ids]
        value = np.where(value > 0, value / repetition, value * repetition)
        row[ids] = value - presence - frequency * counts
    return row


def _largest(values: np.ndarray, k: int) -> np.ndarray:
    """Indices of the ``k`` largest values, largest first, equal ones by index."""
    least = np.partition(values, -k)[-k]
    candidates = np.flatnonzero(values >= least)
    return candidates[np.argsort(-values[candidates], kind="stable")][:k]


def _nucleus(weights: np.ndarray, top_p: float) -> np.ndarray:
    """Indices of the fewest weights, largest first, whose sum is at least ``top_p`` of all."""
    goal, k = top_p * weights.sum(), _FIRST_LOOK
    while k < len(weights):
        order = _largest(weights, k)
        reach = weights[order].cumsum()
        if reach[-1] >= goal:
            return order[: int(np.searchsorted(reach, goal)) + 1]
        k *= 8
    order = np.argsort(-weights, kind="stable")
    return order[: int(np.searchsorted(weights[order].cumsum(), goal)) + 1]
