"""Choosing tokens from logits, compiled: bias, penalties, greedy, temperature, top-k, top-p, min-p, draw.

The meaning is defined by ``sampling_reference``.
"""

from __future__ import annotations

from collections.abc import Sequence

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
    L_LOGITS,
    L_MIN_P,
    L_PAST,
    L_PRESENCE,
    L_REPETITION,
    L_TEMPERATURE,
    L_TOKEN,
    L_TOP_K,
    L_TOP_P,
    L_UNIFORM,
    L_VOCAB,
    RECORD_WORDS,
)
from engine.kernels.sampling_kernels import BUCKETS, sample_tokens
from engine.kernels.team import Team

_SHORT_HISTORY = 256


def scratch_bytes(row: SampleRow) -> int:
    """Scratch that ``sample_tokens`` needs for a row."""
    edits = len(row.bias) + len(row.history)
    return 6 * 4 * ((max(len(row.logits), BUCKETS) + 31) // 16 * 16) + 8 * edits + 64


def _fill(record: np.ndarray, row: SampleRow) -> list[np.ndarray]:
    """Fill in a row's record; returns the arrays that it points to."""
    logits = row.logits if row.mask is None else np.where(row.mask, row.logits, np.float32(-np.inf))
    kept = [logits]
    record[[L_LOGITS, L_VOCAB, L_TOP_K]] = address_of(logits), len(logits), row.top_k
    record.view(np.float32)[2 * L_TEMPERATURE] = row.temperature
    record.view(np.float64)[[L_TOP_P, L_MIN_P, L_UNIFORM]] = row.top_p, row.min_p, row.u
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


def sample_rows(rows: Sequence[SampleRow], team: Team | None = None) -> list[int]:
    """The next token of each row; with ``team``, rows are shared out to its threads. No two rows may have the same
    logits array if either has bias or penalties, which are applied in place and undone."""
    if not rows:
        return []
    records = np.zeros((len(rows), RECORD_WORDS), np.int64)
    kept = [_fill(record, row) for record, row in zip(records, rows, strict=True)]
    _run(records, max(scratch_bytes(row) for row in rows), team)
    del kept
    return [int(token) for token in records[:, L_TOKEN]]


def _run(records: np.ndarray, n_scratch: int, team: Team | None) -> None:
    if team is None:
        scratch = aligned(n_scratch)
        sample_tokens.call(0, address_of(records), 0, len(records), address_of(scratch))
        return
    team.reserve_scratch(n_scratch)
    phase = Phase("sampling", -1, [PhaseOp(sample_tokens, records)], multiplier=len(records))
    table, ops = phase_tables([phase])
    team.run(table, np.zeros(CONTEXT_WORDS, np.int64))
    del ops


def log_probabilities(logits: np.ndarray, token: int, k: int = 0) -> tuple[float, tuple[tuple[int, float], ...]]:
    """The log-probability of ``token`` under the unchanged logits, and the ``k`` best tokens with theirs."""
    x = np.where(np.isnan(logits), -np.inf, logits).astype(np.float64)
    x -= x.max() + np.log(np.exp(x - x.max()).sum())
    best = np.argpartition(-x, min(k, len(x) - 1))[:k]
    best = best[np.lexsort((best, -x[best]))]
    return float(x[token]), tuple((int(t), float(x[t])) for t in best)
