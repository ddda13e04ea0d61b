"""Choosing tokens from logits, compiled: bias, penalties, greedy, temperature, top-k, top-p, min-p, draw.

The meaning is defined by ``sampling_reference``.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

import numpy as np

from engine.kernels.layout import CONTEXT_WORDS, address_of
from engine.kernels.packing import aligned
from engine.kernels.phases import Phase, PhaseOp, phase_tables
from engine.kernels.sample_row import SampleRow
from engine.kernels.sampling_edits import (
    L_BIAS_TOKENS,
    L_BIAS_VALUES,
    L_BIASES,
    L_COUNTS,
    L_FREQUENCY,
    L_HISTORY,
    L_PAST,
    L_PRESENCE,
    L_REPETITION,
    L_TOKEN,
    RECORD_WORDS,
)
from engine.kernels.sampling_kernels import BUCKETS, sample_tokens
from engine.kernels.team import P_UNITS, Team

_SHORT_HISTORY = 256
_ROOM = 16
_DRAW = Struct("=qqf4xqddd")
"""The words ``L_LOGITS`` … ``L_UNIFORM`` of a record."""


def scratch_bytes(row: SampleRow) -> int:
    """Scratch that ``sample_tokens`` needs for a row."""
    edits = len(row.bias) + len(row.history)
    return 6 * 4 * ((max(len(row.logits), BUCKETS) + 31) // 16 * 16) + 8 * edits + 64


def _fill(record: np.ndarray, row: SampleRow) -> list[np.ndarray]:
    """Fill in a row's record; returns the arrays that it points to."""
    logits = row.logits if row.mask is None else np.where(row.mask, row.logits, np.float32(-np.inf))
    kept = [logits]
    draw = row.temperature, row.top_k, row.top_p, row.min_p, row.u
    _DRAW.pack_into(record.data, 0, address_of(logits), len(logits), *draw)
    if row.bias:
        tokens = np.array([token for token, _ in row.bias], np.int32)
        values = np.array([amount for _, amount in row.bias], np.float32)
        kept += [tokens, values]
        record[[L_BIASES, L_BIAS_TOKENS, L_BIAS_VALUES]] = len(tokens), address_of(tokens), address_of(values)
    if len(row.history) and (row.repetition != 1 or row.presence != 0 or row.frequency != 0):
        history = np.array(row.history, np.int32)
        if len(history) > _SHORT_HISTORY:
            history, counts = np.unique(history, return_counts=True)
            kept.append(counts.astype(np.int32))
            record[L_COUNTS] = address_of(kept[-1])
        kept.append(history)
        record[[L_HISTORY, L_PAST]] = address_of(history), len(history)
        factors = record.view(np.float32)
        factors[[2 * L_REPETITION, 2 * L_PRESENCE, 2 * L_FREQUENCY]] = row.repetition, row.presence, row.frequency
    return kept


def sample_rows(rows: Sequence[SampleRow]) -> list[int]:
    """The next token of each row. No two rows may have the same logits array if either has bias or penalties, which are
    applied in place and undone."""
    if not rows:
        return []
    records = np.zeros((len(rows), RECORD_WORDS), np.int64)
    kept = [_fill(record, row) for record, row in zip(records, rows, strict=True)]
    scratch = aligned(max(scratch_bytes(row) for row in rows))
    sample_tokens.call(0, address_of(records), 0, len(records), address_of(scratch))
    del kept
    return [int(token) for token in records[:, L_TOKEN]]


class Sampler:
    """As ``sample_rows``, with the rows shared out to a team's threads. What the team reads is made once, since this is
    asked for in every step."""

    def __init__(self, team: Team) -> None:
        self._team = team
        self._context = np.zeros(CONTEXT_WORDS, np.int64)
        self._context_at = address_of(self._context)
        self._make_room(_ROOM)

    def _make_room(self, rows: int) -> None:
        self._records = np.zeros((rows, RECORD_WORDS), np.int64)
        self._tables = phase_tables([Phase("sampling", -1, [PhaseOp(sample_tokens, self._records)])])
        self._at = address_of(self._tables[0])

    def __call__(self, rows: Sequence[SampleRow]) -> list[int]:
        """The next token of each row."""
        n = len(rows)
        if not n:
            return []
        if n > len(self._records):
            self._make_room(2 * n)
        records = self._records[:n]
        records[:] = 0
        kept = [_fill(record, row) for record, row in zip(records, rows, strict=True)]
        self._team.reserve_scratch(max(scratch_bytes(row) for row in rows))
        self._tables[0][0, P_UNITS] = n
        self._team.run_at(self._at, 1, self._context_at)
        del kept
        return [int(token) for token in records[:, L_TOKEN]]


def log_probabilities(logits: np.ndarray, token: int, k: int = 0) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability of ``token`` under the unchanged logits, and the ``k`` best tokens with theirs."""
    x = np.where(np.isnan(logits), -np.inf, logits).astype(np.float64)
    x -= x.max() + np.log(np.exp(x - x.max()).sum())
    best = np.argpartition(-x, min(k, len(x) - 1))[:k]
    best = best[np.lexsort((best, -x[best]))]
    return float(x[token]), tuple((int(t), float(x[t])) for t in best)
