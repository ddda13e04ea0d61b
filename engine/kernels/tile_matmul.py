"""Products of rows and packed weights on bfloat16 tiles, for steps of prompt rows.

Rows are rounded to bfloat16 once, and so are weights, a few blocks at a time that then serve all rows of the step. Each
result is summed in a float32 tile over all groups of 32 columns in ascending order: a row's result depends neither on
the rows beside it nor on how many there are.

Rows lie as tiles, [16 rows][group][row][32 columns], so that the tiles that belong together follow each other in
memory, and expanded blocks of weights as [group][16 pairs of columns][16 outputs][2].
"""

from __future__ import annotations

from collections.abc import Callable

from engine.kernels.codes import fetch_ahead
from engine.kernels.columns import load_columns
from engine.kernels.cpu import TileUnit
from engine.kernels.formats import BLOCK_ROWS, FORMATS, GROUP, SUPER, Format
from engine.kernels.half import store_bf
from engine.kernels.kernel import Kernel, helper, kernel, named_helper
from engine.kernels.layout import (
    M_BLOCK_BYTES,
    M_EXPAND,
    M_GROUPS,
    M_OUTPUTS,
    M_ROWS,
    M_SPAN,
    M_WEIGHTS,
    M_X,
)
from engine.kernels.matmul import COLUMNS, finish
from engine.kernels.quantize import X_GROUPS, X_OUT_ROWS, X_ROWS
from engine.kernels.simd import get, load_f
from engine.kernels.sync import invoke
from engine.kernels.tile_codes import expand_to_tile
from engine.kernels.tiles import STATE_BYTES, TILE_BYTES, TILE_ROWS, UNITS, Unit

PAIR = 2
"""Tiles of results beside and below each other: each tile that is loaded serves two."""
_RESULTS = STATE_BYTES
_WEIGHTS = _RESULTS + PAIR * PAIR * TILE_BYTES
_MOST_WEIGHTS = 512 << 10
_TOGETHER = 4


@kernel
def tiles_convert(context, args, begin, end, scratch):
    """Rows [begin, end) of a register, float32[rows][32 * groups], as bfloat16 to the tiles at ``X_OUT_ROWS``."""
    groups = get(args, X_GROUPS)
    for row in range(begin, end):
        x = get(get(args, X_ROWS), row)
        tile = row // TILE_ROWS
        out = get(args, X_OUT_ROWS) + tile * groups * TILE_BYTES + (row - tile * TILE_ROWS) * 64
        for _ in range(groups):
            store_bf(out, load_f(x))
            store_bf(out + 32, load_f(x + 64))
            x += 4 * GROUP
            out += TILE_BYTES


def _expander(fmt: Format) -> Kernel:
    """The kernel that expands blocks of weights to tiles at ``scratch``."""
    index = fmt.index
    code_bytes, group_bytes, super_bytes = fmt.code_bytes, fmt.group_bytes, fmt.super_bytes
    share = SUPER if super_bytes else 1

    def expand(context, args, begin, end, scratch):
        block_bytes = get(args, M_BLOCK_BYTES)
        for block in range(begin, end):
            codes = get(args, M_WEIGHTS) + block * block_bytes
            for _ in range(get(args, M_GROUPS) // share):
                top = codes
                codes += super_bytes
                for _ in range(share):
                    fetch_ahead(index, COLUMNS, codes, block_bytes)
                    expand_to_tile(index, codes, top, codes + code_bytes, scratch)
                    codes += group_bytes
                    scratch += TILE_BYTES

    return Kernel(f"tiles_{fmt.name}", expand)


@helper
def _finish_tile(args, where, rows, first, block):
    """The first ``rows`` rows of a tile of results: bias, scale, residual, and their store as rows ``first`` …"""
    row = 0
    while rows - row >= _TOGETHER:
        finish(load_columns(_TOGETHER, where + 64 * row, 64), args, first + row, block)
        row += _TOGETHER
    while row < rows:
        finish(load_columns(1, where + 64 * row, 64), args, first + row, block)
        row += 1


def _two_rows_of_tiles(name: TileUnit, unit: Unit) -> Callable[..., None]:
    """32 rows by 32 outputs, from ``x`` and ``weights`` to the results in scratch."""
    zero, load, store, dot = unit.zero, unit.load, unit.store, unit.dot

    def two_rows(state, groups, x, weights):
        zero(state, 0)
        zero(state, 1)
        zero(state, 2)
        zero(state, 3)
        step = groups * TILE_BYTES
        for _ in range(groups):
            load(state, 4, x)
            load(state, 5, x + step)
            load(state, 6, weights)
            load(state, 7, weights + step)
            dot(state, 0, 4, 6)
            dot(state, 1, 4, 7)
            dot(state, 2, 5, 6)
            dot(state, 3, 5, 7)
            x += TILE_BYTES
            weights += TILE_BYTES
        results = state + _RESULTS
        store(state, 0, results)
        store(state, 1, results + TILE_BYTES)
        store(state, 2, results + 2 * TILE_BYTES)
        store(state, 3, results + 3 * TILE_BYTES)

    return named_helper(f"tiles_two_rows_{name}", two_rows)


def _one_row_of_tiles(name: TileUnit, unit: Unit) -> Callable[..., None]:
    """16 rows by 32 outputs."""
    zero, load, store, dot = unit.zero, unit.load, unit.store, unit.dot

    def one_row(state, groups, x, weights):
        zero(state, 0)
        zero(state, 1)
        step = groups * TILE_BYTES
        for _ in range(groups):
            load(state, 4, x)
            load(state, 6, weights)
            load(state, 7, weights + step)
            dot(state, 0, 4, 6)
            dot(state, 1, 4, 7)
            x += TILE_BYTES
            weights += TILE_BYTES
        results = state + _RESULTS
        store(state, 0, results)
        store(state, 1, results + TILE_BYTES)

    return named_helper(f"tiles_one_row_{name}", one_row)


def _product(name: TileUnit, unit: Unit) -> Kernel:
    """The kernel of one unit."""
    start_unit, finish_unit = unit.start, unit.finish
    two_rows, one_row = _two_rows_of_tiles(name, unit), _one_row_of_tiles(name, unit)

    def multiply_two_blocks(args, state, rows, row, block, weights):
        """Two blocks of outputs for the rows from ``row`` on, at most 32. What is there for rows and outputs that do
        not exist is computed with them, and dropped."""
        groups = get(args, M_GROUPS)
        x = get(args, M_X) + row // TILE_ROWS * groups * TILE_BYTES
        if rows > TILE_ROWS:
            two_rows(state, groups, x, weights)
        else:
            one_row(state, groups, x, weights)
        outputs = get(args, M_OUTPUTS)
        for tile in range(PAIR * PAIR):
            below, beside = tile // PAIR, tile % PAIR
            have = min(TILE_ROWS, rows - TILE_ROWS * below)
            if BLOCK_ROWS * (block + beside) < outputs:
                where = state + _RESULTS + tile * TILE_BYTES
                _finish_tile(args, where, have, row + TILE_ROWS * below, block + beside)

    multiply = named_helper(f"tiles_multiply_{name}", multiply_two_blocks)

    def product(context, args, begin, end, scratch):
        rows = get(context, get(args, M_ROWS))
        block_bytes = get(args, M_GROUPS) * TILE_BYTES
        expand = get(args, M_EXPAND)
        last = min(PAIR * end, (get(args, M_OUTPUTS) + BLOCK_ROWS - 1) // BLOCK_ROWS)
        first = PAIR * begin
        start_unit(scratch)
        while first < last:
            stop = min(first + get(args, M_SPAN), last)
            if expand != 0:
                weights = scratch + _WEIGHTS
                invoke(expand, context, args, first, stop, weights)
            else:
                weights = get(args, M_WEIGHTS) + first * block_bytes
            for row in range(0, rows, PAIR * TILE_ROWS):
                for block in range(first, stop, PAIR):
                    at = weights + (block - first) * block_bytes
                    multiply(args, scratch, min(rows - row, PAIR * TILE_ROWS), row, block, at)
            first = stop
        finish_unit(scratch)

    return Kernel(f"tiles_rows_{name}", product)


EXPANDERS = {fmt.name: _expander(fmt) for fmt in FORMATS}
PRODUCTS = {name: _product(name, unit) for name, unit in UNITS.items()}
"""Units are pairs of blocks. A step's rows by the weights that ``M_EXPAND`` expands (0: they are tiles already)."""


def span(groups: int) -> int:
    """How many blocks of weights are expanded at a time: an even number."""
    return PAIR * max(1, _MOST_WEIGHTS // (PAIR * groups * TILE_BYTES))


def scratch_bytes(groups: int) -> int:
    """Scratch that a product needs."""
    return _WEIGHTS + span(groups) * groups * TILE_BYTES


def rows_bytes(width: int, rows: int) -> int:
    """Memory of ``rows`` rows of ``width`` as tiles."""
    return -(-rows // TILE_ROWS) * (width // GROUP) * TILE_BYTES
