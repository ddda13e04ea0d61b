"""Whether matrix tiles may be used: only where they have just multiplied rightly."""

from __future__ import annotations

import logging
from functools import lru_cache

import numpy as np

from engine.kernels import layout, tile_matmul
from engine.kernels.cpu import TileUnit, tile_unit
from engine.kernels.kernel import Kernel
from engine.kernels.packing import aligned

log = logging.getLogger(__name__)
_ROWS, _OUTPUTS, _GROUPS = 40, 48, 3
_LARGEST = 127


def usable_tile_unit() -> TileUnit | None:
    """What multiplies the tiles of prompt rows (see ``cpu.tile_unit``). A processor's own tiles are tried first: no
    wrong result shall come from a machine that this was never run on."""
    unit = tile_unit()
    return None if unit == "amx" and not _amx_works() else unit


@lru_cache(maxsize=1)
def _amx_works() -> bool:
    works = multiplies_rightly(tile_matmul.PRODUCTS["amx"])
    if not works:
        log.warning("the matrix tiles of this processor gave a wrong result and are not used")
    return works


def multiplies_rightly(product: Kernel) -> bool:
    """Whether a kernel's product of small integers, which are exact in bfloat16 as their sums are in float32, equals
    NumPy's."""
    rng = np.random.default_rng(1)
    x = rng.integers(-_LARGEST, _LARGEST + 1, (_ROWS, 32 * _GROUPS)).astype(np.float32)
    weights = rng.integers(-_LARGEST, _LARGEST + 1, (_OUTPUTS, 32 * _GROUPS)).astype(np.float32)
    out = np.zeros((_ROWS, _OUTPUTS), np.float32)
    x_tiles, weight_tiles = _rows_as_tiles(x), _weights_as_tiles(weights)
    scratch = aligned(tile_matmul.scratch_bytes(_GROUPS))
    table = out.ctypes.data + np.arange(_ROWS) * out.strides[0]
    context, args = np.zeros(layout.CONTEXT_WORDS, np.int64), np.zeros(16, np.int64)
    context[layout.C_ROWS] = _ROWS
    args[[layout.M_X, layout.M_WEIGHTS]] = x_tiles.ctypes.data, weight_tiles.ctypes.data
    args[[layout.M_OUT, layout.M_OUTPUTS, layout.M_GROUPS]] = table.ctypes.data, _OUTPUTS, _GROUPS
    args[[layout.M_ROWS, layout.M_SPAN]] = layout.C_ROWS, tile_matmul.PAIR
    args[layout.M_SCALE : layout.M_SCALE + 1].view(np.float32)[0] = 1.0
    product.call(context.ctypes.data, args.ctypes.data, 0, -(-_OUTPUTS // 32), scratch.ctypes.data)
    return bool(np.array_equal(out, x @ weights.T))


def _bfloat(x: np.ndarray) -> np.ndarray:
    """The bits of numbers that bfloat16 holds exactly."""
    return (x.view(np.uint32) >> 16).astype(np.uint16)


def _rows_as_tiles(x: np.ndarray) -> np.ndarray:
    """[16 rows][group][row][32 columns], the last rows padded with zeros."""
    padded = np.zeros((-(-len(x) // 16) * 16, x.shape[1]), np.float32)
    padded[: len(x)] = x
    return _aligned_copy(_bfloat(padded).reshape(-1, 16, _GROUPS, 32).transpose(0, 2, 1, 3))


def _weights_as_tiles(weights: np.ndarray) -> np.ndarray:
    """[16 outputs][group][16 pairs of columns][output][2], and one block more: blocks are multiplied in pairs."""
    blocks = _bfloat(weights).reshape(-1, 16, _GROUPS, 16, 2).transpose(0, 2, 3, 1, 4)
    return _aligned_copy(np.concatenate([blocks, np.zeros_like(blocks[:1])]))


def _aligned_copy(values: np.ndarray) -> np.ndarray:
    memory = aligned(2 * values.size).view(np.uint16)
    memory[:] = values.reshape(-1)
    return memory
