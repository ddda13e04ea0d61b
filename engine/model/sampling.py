"""Sampling for sessions: which row, which history, which draw.

Draws are counter-based: draw ``i`` of a stream with seed ``s`` is a hash of (s, i) and nothing else, so a stream can be
replayed and does not depend on its batch mates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import isfinite

import numpy as np

from engine.cache.session import Session
from engine.errors import BadRequestValueError, ModelFileError, SessionError
from engine.kernels.sample_row import SampleRow
from engine.scheduling.request import SamplingParams
from engine.scheduling.validate import validate_sampling

COLDEST = 1e-5
"""Temperatures below this are greedy: differences of logits divided by less leave float32's range."""

_checked = lru_cache(maxsize=256)(validate_sampling)

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def sample_sessions(
    sample: Callable[[Sequence[SampleRow]], list[int]],
    sessions: Sequence[Session],
    params: Sequence[SamplingParams],
    masks: Sequence[np.ndarray | None] | None = None,
) -> list[int]:
    """The next token of each session, chosen by ``sample``; ``n_drawn`` of each goes up by one.

    Errors: SessionError, BadRequestValueError, and ModelFileError where the logits are no numbers (damaged weights).
    """
    wanted = masks if masks is not None else [None] * len(sessions)
    tokens = sample([_row(*what) for what in zip(sessions, params, wanted, strict=True)])
    for session, token in zip(sessions, tokens, strict=True):
        if session.logits is not None and not isfinite(session.logits[token]):  # then no token had a number
            raise ModelFileError(
                "The model computes values that are no numbers: its file is damaged; download it again."
            )
    for session in sessions:
        session.n_drawn += 1
    return tokens


def _row(session: Session, params: SamplingParams, mask: np.ndarray | None) -> SampleRow:
    """A session's logits and draw, with how its request wants them sampled."""
    if session.logits is None:
        raise SessionError("This session has no logits yet; evaluate its prompt first.")
    _checked(params, len(session.logits))
    if mask is not None and (mask.shape != session.logits.shape or not mask.any()):
        raise BadRequestValueError(
            "A mask has one flag per token of the vocabulary, and at least one is true.", field="mask"
        )
    row = SampleRow(session.logits, bias=params.logit_bias, mask=mask)
    if params.temperature >= COLDEST:
        row.temperature = params.temperature
        row.top_k, row.top_p, row.min_p = params.top_k, params.top_p, params.min_p
        row.u = draw(session.seed, session.n_drawn)
    if params.penalty_last_n > 0:
        row.repetition = params.repetition_penalty
        row.presence, row.frequency = params.presence_penalty, params.frequency_penalty
        if row.repetition != 1 or row.presence != 0 or row.frequency != 0:
            row.history = session.tokens[-params.penalty_last_n :]
    return row


def draw(seed: int, index: int) -> float:
    """Draw number ``index`` of a stream, uniform in [0, 1): the finalizer of SplitMix64 (Steele, Lea and Flood 2014),
    applied to the seed first, so that neighbouring seeds are unrelated."""
    bits = _mix(_mix(seed & _MASK) + (index + 1) * _GOLDEN & _MASK)
    return (bits >> 11) * 2.0**-53


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & _MASK
    return z ^ z >> 31
