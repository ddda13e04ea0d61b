"""How the rows of a step are shared out for attention."""

from __future__ import annotations

import numpy as np

from engine.kernels import layout
from engine.kernels.attention import (
    B_COUNT,
    B_PART,
    B_PARTS,
    B_ROW,
    B_SLOT,
    BLOCK_WORDS,
    PARTITION,
    partial_bytes,
)
from engine.kernels.attention_tiles import COLUMNS
from engine.kernels.layout import address_of
from engine.kernels.packing import aligned

_ITEMS_A_THREAD = 4


class AttentionPlan:
    """Cuts a step's rows into blocks of consecutive positions of one sequence, as many as attention takes at once.

    Where that gives too few items for the threads (long contexts, few rows), every partition of a block becomes an item
    of its own, and its result is kept until all are merged. Results are the same bits either way.
    """

    def __init__(self, *, max_rows: int, kv_heads: int, group: int, head_size: int) -> None:
        self._rows_at_once = max(1, COLUMNS // group)
        self._kv_heads = kv_heads
        self._columns = kv_heads * group
        self._partial_bytes = partial_bytes(head_size)
        self._blocks = np.zeros((max_rows, BLOCK_WORDS), np.int64)
        self._blocks[:, B_PART] = -1
        self._blocks_at = address_of(self._blocks)
        self._partials = np.zeros(0, np.uint8)

    @property
    def nbytes(self) -> int:
        """Memory for partitions that wait to be merged."""
        return int(self._partials.nbytes)

    def fill(self, context: np.ndarray, positions: np.ndarray, owner: np.ndarray, threads: int) -> None:
        """Fill in the step's lists. ``positions`` and ``owner`` int32[rows]."""
        blocks = self._cut(positions, owner)
        context[layout.C_ATTEND_BLOCKS], context[layout.C_ATTEND_LIST] = len(blocks), self._blocks_at
        context[layout.C_MERGE_BLOCKS] = 0
        few = len(blocks) * self._kv_heads < _ITEMS_A_THREAD * threads
        if few and threads > 1 and positions.max() >= PARTITION:
            merges, parts = self._kept = self._split(blocks, positions)
            context[layout.C_ATTEND_BLOCKS], context[layout.C_ATTEND_LIST] = len(parts), address_of(parts)
            context[layout.C_MERGE_BLOCKS], context[layout.C_MERGE_LIST] = len(merges), address_of(merges)
            context[layout.C_PARTIALS] = address_of(self._partials)

    def _cut(self, positions: np.ndarray, owner: np.ndarray) -> np.ndarray:
        """Blocks that stand for all their partitions."""
        most, where, whose = self._rows_at_once, positions.tolist(), owner.tolist()
        rows, start = [], 0
        for row in range(1, len(where) + 1):
            goes_on = row < len(where) and whose[row] == whose[start] and where[row] == where[row - 1] + 1
            if not goes_on or row - start == most:
                rows.append((start, row - start))
                start = row
        blocks = self._blocks[: len(rows)]
        blocks[:, : B_COUNT + 1] = rows
        return blocks

    def _split(self, blocks: np.ndarray, positions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """(blocks to merge, blocks of one partition each)."""
        merges = blocks.copy()
        last = positions[merges[:, B_ROW] + merges[:, B_COUNT] - 1]
        merges[:, B_PARTS] = last // PARTITION + 1
        sizes = merges[:, B_PARTS] * merges[:, B_COUNT] * self._columns
        merges[:, B_SLOT] = np.cumsum(sizes) - sizes
        parts = np.repeat(merges, merges[:, B_PARTS], axis=0)
        parts[:, B_PART] = np.concatenate([np.arange(n) for n in merges[:, B_PARTS]])
        needed = int(sizes.sum()) * self._partial_bytes
        if needed > len(self._partials):
            self._partials = aligned(needed * 2)
        return merges, parts
