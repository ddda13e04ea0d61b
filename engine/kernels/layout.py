"""Records that Python fills in and kernels read: arrays of int64 words, by index. Addresses are bytes.

Rows of a register are reached through a table of row addresses, so that a step can send logits straight to their
sessions and let the head read only the wanted rows.
"""

from __future__ import annotations

import numpy as np

# The step's context.
C_ROWS, C_WANTED, C_TOKENS, C_POSITIONS, C_OWNERS, C_TABLES, C_MEMORY, C_PAGE_BYTES, C_PAGE_ROWS = range(9)
C_ATTEND_BLOCKS, C_ATTEND_LIST, C_MERGE_BLOCKS, C_MERGE_LIST, C_PARTIALS, C_EXPERTS, C_SLOTS = range(9, 16)
CONTEXT_WORDS = 32

# Activations of one row quantized for integer products: a record of 64 bytes per group of 32 columns, then as many
# bytes again for the high digits of groups with outliers (32 int8 in each 64 bytes).
Q_BYTES = 64
Q_SCALE, Q_SUM, Q_NEGATIVE, Q_NEGATIVE_HALVES, Q_OUTLIERS = 32, 36, 40, 44, 52
"""Offsets after the 32 int8 codes: float32 scale, float32 scale * Σ codes, int32 -Σ codes, that by half groups, and
int32 1 if the group has high digits: code = low + 128 * high."""

# Matmul.
M_WEIGHTS, M_BLOCK_BYTES, M_GROUPS, M_COLS, M_X, M_OUT = range(6)
M_OUTPUTS, M_BIAS, M_SCALE, M_ADD, M_ROWS = range(6, 11)
M_TILES, M_EXPAND, M_EXPANDED_TILES, M_SPAN = range(11, 15)
"""``M_X`` is a table of row addresses: of quantized records, or of float32 for float weights. ``M_TILES`` a table of
kernels by number of columns; ``M_EXPAND`` a kernel that expands a block, or 0, and the tiles for expanded blocks.
For products on matrix tiles (``tile_matmul``) ``M_X`` is the address of the rows as tiles, and ``M_SPAN`` says how many
blocks are expanded at a time."""


def address_of(array: np.ndarray) -> int:
    """Where an array's data is; a step asks often, and ``array.ctypes`` takes several times longer."""
    return int(array.__array_interface__["data"][0])
