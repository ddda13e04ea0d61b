"""Sampling for sessions: which row, which history, which draw."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from engine.cache.session import Session
from engine.errors import SessionError
from engine.scheduling.request import SamplingParams


def sample_sessions(
    sessions: Sequence[Session], params: Sequence[SamplingParams], masks: Sequence[np.ndarray | None] | None = None
) -> list[int]:
    """The next token of each session; ``n_drawn`` of each goes up by one."""
    tokens = []
    for i, (session, _) in enumerate(zip(sessions, params, strict=True)):
        if session.logits is None:
            raise SessionError("This session has no logits yet; evaluate its prompt first.")
        mask = masks[i] if masks is not None else None
        row = session.logits if mask is None else np.where(mask, session.logits, -np.inf)
        tokens.append(int(row.argmax()))
        session.n_drawn += 1
    return tokens
