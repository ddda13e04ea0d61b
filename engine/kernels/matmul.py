"""Products of quantized activations and packed weights.

A tile kernel multiplies blocks of 16 weight rows by 1 … 8 columns (rows of activations) at once, so that weights are
read once for all of them. Integer dot products are exact, and groups are added in ascending order, one fused
multiply-add each: a column's result does not depend on which others are computed with it.
"""

from __future__ import annotations

from engine.kernels.codes import add_minima, dot_codes, dot_high_codes, expand_group, fetch_ahead, group_scale
from engine.kernels.columns import (
    add_from_rows,
    any_row,
    finish_part_rows,
    fma_rows,
    load_rows,
    map_columns,
    offset_dots,
    scale_dots,
    store_to_rows,
    zero_columns,
)
from engine.kernels.cpu import target
from engine.kernels.formats import BF16, EXPANDED, F16, F32, FLOAT_BYTES, FORMATS, SUPER, Format, expanded
from engine.kernels.half import load_bf, load_h
from engine.kernels.kernel import Kernel, helper, kernel
from engine.kernels.layout import (
    M_ADD,
    M_BIAS,
    M_BLOCK_BYTES,
    M_COLS,
    M_EXPAND,
    M_EXPANDED_TILES,
    M_GROUPS,
    M_OUT,
    M_OUTPUTS,
    M_ROWS,
    M_SCALE,
    M_TILES,
    M_WEIGHTS,
    M_X,
    Q_BYTES,
    Q_NEGATIVE,
    Q_NEGATIVE_HALVES,
    Q_OUTLIERS,
    Q_SCALE,
)
from engine.kernels.simd import get, get_f, load_f, splat_f
from engine.kernels.sync import invoke

COLUMNS = target().columns
WIDEST = target().widest_tile
_EXPAND_ABOVE = 2 * WIDEST
"""With three tiles or more an expanded block is worth its making."""
_LARGEST_EXPANDED = 512 << 10


@helper
def finish(acc, args, first, block):
    """Bias, scale and residual of 16 outputs for the tile's columns, and their store."""
    bias = get(args, M_BIAS)
    offset = 64 * block
    shift = load_f(bias + offset) if bias != 0 else splat_f(0.0)
    acc = map_columns(acc, splat_f(get_f(args, M_SCALE)), shift)
    rows = load_rows(acc, get(args, M_OUT) + 8 * first)
    lanes = get(args, M_OUTPUTS) - 16 * block
    if lanes < 16:
        finish_part_rows(acc, rows, offset, lanes, get(args, M_ADD))
    else:
        if get(args, M_ADD) != 0:
            acc = add_from_rows(acc, rows, offset)
        store_to_rows(acc, rows, offset)


def _whole_tile(fmt: Format, m: int) -> Kernel:
    """The tile of a format with one scale per group, for ``m`` columns."""
    index, shift = fmt.index, fmt.shift
    code_bytes, scale_bytes, super_bytes = fmt.code_bytes, fmt.scale_bytes, fmt.super_bytes
    share = SUPER if super_bytes else 1

    near = fmt.expanded

    def tile(args, first, begin, end, scratch):
        high = Q_BYTES * get(args, M_GROUPS)
        block_bytes = get(args, M_BLOCK_BYTES)
        for block in range(begin, end):
            codes = scratch if near else get(args, M_WEIGHTS) + block * block_bytes
            x = 0
            acc = zero_columns(m)
            rows = load_rows(acc, get(args, M_X) + 8 * first)
            for _ in range(get(args, M_GROUPS) // share):
                top = codes
                codes += super_bytes
                for _ in range(share):
                    fetch_ahead(index, m, codes, block_bytes)
                    scales = codes + code_bytes
                    dots = offset_dots(m, rows, x + Q_NEGATIVE, shift)
                    dots = dot_codes(dots, index, 0, 8, codes, rows, x)
                    if any_row(rows, x + Q_OUTLIERS) != 0:
                        dots = dot_high_codes(dots, index, 0, 8, codes, rows, x + high)
                    acc = scale_dots(acc, dots, group_scale(index, 0, top, scales), rows, x + Q_SCALE)
                    acc = add_minima(acc, index, 0, top, scales, rows, x)
                    codes = scales + scale_bytes
                    x += Q_BYTES
            finish(acc, args, first, block)

    return Kernel(f"matmul_{fmt.name}_{m}", tile)


def _halves_tile(fmt: Format, m: int) -> Kernel:
    """The tile of a format with a scale for each half of a group, for ``m`` columns."""
    index, shift = fmt.index, fmt.shift
    code_bytes, scale_bytes, super_bytes = fmt.code_bytes, fmt.scale_bytes, fmt.super_bytes

    near = fmt.expanded

    def tile(args, first, begin, end, scratch):
        high = Q_BYTES * get(args, M_GROUPS)
        block_bytes = get(args, M_BLOCK_BYTES)
        for block in range(begin, end):
            codes = scratch if near else get(args, M_WEIGHTS) + block * block_bytes
            x = 0
            acc = zero_columns(m)
            rows = load_rows(acc, get(args, M_X) + 8 * first)
            for _ in range(get(args, M_GROUPS) // SUPER):
                top = codes
                codes += super_bytes
                for _ in range(SUPER):
                    fetch_ahead(index, m, codes, block_bytes)
                    scales = codes + code_bytes
                    dots = offset_dots(m, rows, x + Q_NEGATIVE_HALVES, shift)
                    dots = dot_codes(dots, index, 0, 4, codes, rows, x)
                    if any_row(rows, x + Q_OUTLIERS) != 0:
                        dots = dot_high_codes(dots, index, 0, 4, codes, rows, x + high)
                    acc = scale_dots(acc, dots, group_scale(index, 0, top, scales), rows, x + Q_SCALE)
                    acc = add_minima(acc, index, 0, top, scales, rows, x)
                    dots = offset_dots(m, rows, x + Q_NEGATIVE_HALVES + 4, shift)
                    dots = dot_codes(dots, index, 4, 8, codes, rows, x)
                    if any_row(rows, x + Q_OUTLIERS) != 0:
                        dots = dot_high_codes(dots, index, 4, 8, codes, rows, x + high)
                    acc = scale_dots(acc, dots, group_scale(index, 1, top, scales), rows, x + Q_SCALE)
                    acc = add_minima(acc, index, 1, top, scales, rows, x)
                    codes = scales + scale_bytes
                    x += Q_BYTES
            finish(acc, args, first, block)

    return Kernel(f"matmul_{fmt.name}_{m}", tile)


def _float_tile(kind: int, m: int) -> Kernel:
    """The tile of float weights, [16-row block][column][16 rows], for ``m`` columns; x is float32 in registers."""
    load = {F32: load_f, F16: load_h, BF16: load_bf}[kind]
    step = 16 * FLOAT_BYTES[kind]

    def tile(args, first, begin, end, scratch):
        columns = get(args, M_COLS)
        for block in range(begin, end):
            weights = get(args, M_WEIGHTS) + block * get(args, M_BLOCK_BYTES)
            acc = zero_columns(m)
            rows = load_rows(acc, get(args, M_X) + 8 * first)
            for column in range(columns):
                acc = fma_rows(acc, load(weights), rows, 4 * column)
                weights += step
            finish(acc, args, first, block)

    return Kernel(f"matmul_f{kind}_{m}", tile)


def _expander(fmt: Format) -> Kernel:
    """The kernel that expands one block of weights to scratch."""
    index = fmt.index
    code_bytes, group_bytes, super_bytes = fmt.code_bytes, fmt.group_bytes, fmt.super_bytes
    out_bytes = expanded(fmt).group_bytes
    share = SUPER if super_bytes else 1

    def expand(args, first, begin, end, scratch):
        codes = get(args, M_WEIGHTS) + begin * get(args, M_BLOCK_BYTES)
        for _ in range(get(args, M_GROUPS) // share):
            top = codes
            codes += super_bytes
            for _ in range(share):
                fetch_ahead(index, COLUMNS, codes, get(args, M_BLOCK_BYTES))
                expand_group(index, codes, top, codes + code_bytes, scratch)
                codes += group_bytes
                scratch += out_bytes

    return Kernel(f"expand_{fmt.name}", expand)


@helper
def run_tiles(args, first, rows, begin, end, scratch):
    """Blocks [begin, end) of 16 outputs for ``rows`` rows from ``first`` on, shared out to tile kernels.

    The widths of the tiles are as even as can be, and each block of weights serves all rows while it is in the cache;
    for many rows it is expanded first, which changes no result. Up to two tiles may be as wide as ``WIDEST``, which
    saves unpacking the weights once more; where they are unpacked already, tiles of ``COLUMNS`` are faster.
    """
    tiles = get(args, M_TILES)
    widest = COLUMNS if rows > _EXPAND_ABOVE else WIDEST
    if rows <= WIDEST:
        invoke(get(tiles, rows), args, first, begin, end, scratch)
        return
    expand = get(args, M_EXPAND) if rows > _EXPAND_ABOVE else 0
    if expand != 0:
        tiles = get(args, M_EXPANDED_TILES)
    for block in range(begin, end):
        if expand != 0:
            invoke(expand, args, 0, block, block + 1, scratch)
        at = first
        left = rows
        turns = (rows + widest - 1) // widest
        while turns > 0:
            m = (left + turns - 1) // turns
            invoke(get(tiles, m), args, at, block, block + 1, scratch)
            at += m
            left -= m
            turns -= 1


@kernel
def matmul_rows(context, args, begin, end, scratch):
    """Blocks [begin, end) of 16 outputs for all rows of the step."""
    run_tiles(args, 0, get(context, get(args, M_ROWS)), begin, end, scratch)


def _tiles(fmt: Format) -> tuple[Kernel, ...]:
    make = _halves_tile if fmt.halves else _whole_tile
    return tuple(make(fmt, m) for m in range(1, (COLUMNS if fmt.expanded else WIDEST) + 1))


TILES = {fmt.name: _tiles(fmt) for fmt in (*FORMATS, *EXPANDED)}
FLOAT_TILES = {kind: tuple(_float_tile(kind, m) for m in range(1, WIDEST + 1)) for kind in (F32, F16, BF16)}
EXPANDERS = {fmt.name: _expander(fmt) for fmt in FORMATS if fmt.planes != (8,)}


def tiles(fmt: Format | None, kind: int) -> tuple[Kernel, ...]:
    """The tile kernels of a packed format, or of a float kind, by number of columns (the first is for one)."""
    return TILES[fmt.name] if fmt else FLOAT_TILES[kind]


def expanded_bytes(fmt: Format, groups: int) -> int:
    """Scratch that one expanded block takes; 0 if blocks of this format are used as they are."""
    size = expanded(fmt).group_bytes * groups
    return size if fmt.name in EXPANDERS and size <= _LARGEST_EXPANDED else 0
