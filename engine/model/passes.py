"""Passes over the weights: which rows of which sessions one step of the executor computes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from engine.cache.session import Session
from engine.kernels.ops import Batch
from engine.model.describe import MAX_ROWS
from engine.model.executor import Executor


class Passes:
    """Runs an executor's steps; pages are reserved by the caller, who also advances the sessions."""

    def __init__(self, executor: Executor) -> None:
        self._executor = executor
        self._tokens = np.zeros(MAX_ROWS, np.int32)
        self._positions = np.zeros(MAX_ROWS, np.int32)
        self._rows = np.arange(MAX_ROWS, dtype=np.int32)

    def run(
        self,
        sessions: Sequence[Session],
        tokens: Sequence[int],
        reader: Session | None = None,
        read: Sequence[int] = (),
        *,
        logits: Sequence[np.ndarray],
        last: int = 0,
        hidden: np.ndarray | None = None,
        lane: Literal["prompt", "generated"] = "generated",
    ) -> None:
        """One row of each of ``sessions`` with its token, then consecutive rows of ``reader``, in one step; all share a
        pool, and there are at most ``MAX_ROWS`` rows. ``logits`` takes float32[n_vocab] for each of the sessions and
        for the ``last`` rows of the reader; ``hidden``, if given, their final normed states, float32[rows, width],
        and then ``logits`` may be empty."""
        width, n = len(sessions), len(sessions) + len(read)
        everyone = sessions if reader is None else [*sessions, reader]
        self._tokens[:n] = [*tokens, *read]
        self._positions[:width] = [session.n_past for session in sessions]
        if reader is not None:
            self._positions[width:n] = range(reader.n_past, reader.n_past + len(read))
        wanted = self._rows[:width] if width == n else np.concatenate([self._rows[:width], self._rows[n - last : n]])
        self._executor.step(
            Batch(
                tokens=self._tokens[:n],
                positions=self._positions[:n],
                owner=np.minimum(self._rows[:n], width),
                tables=[session.block_table for session in everyone],
                memory=everyone[0].pool.memory,
                page_rows=everyone[0].pool.page_rows,
                wanted=wanted,
                logits=list(logits),
                hidden=hidden,
                lane=lane,
            )
        )
