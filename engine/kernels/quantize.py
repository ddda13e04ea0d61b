"""Activations to int8 by groups of 32, and the sums that weight formats with an offset or a min need."""

from __future__ import annotations

from engine.kernels.kernel import kernel
from engine.kernels.layout import Q_BYTES, Q_NEGATIVE, Q_NEGATIVE_HALVES, Q_SCALE, Q_SUM
from engine.kernels.simd import (
    absolute,
    bits_i,
    get,
    load_f,
    max_lanes,
    maximum,
    splat_f,
    splat_i,
    store_f32,
    store_i8,
    store_i32,
    sum_lanes_i,
)

X_ROWS, X_OUT, X_STRIDE, X_GROUPS = range(4)
_MAGIC = 12582912.0
_MAGIC_BITS = 0x4B400000


@kernel
def quantize_rows(context, args, begin, end, scratch):
    """Rows [begin, end) of a register to quantized records.

    scale = max|x| / 127 of each group; code = x / scale rounded to nearest even (adding 1.5 * 2**23 leaves the rounded
    integer in the low bits of the sum). Reads float32[rows][32 * groups], writes ``Q_BYTES`` per group.
    """
    groups = get(args, X_GROUPS)
    magic = splat_f(_MAGIC)
    for row in range(begin, end):
        x = get(get(args, X_ROWS), row)
        out = get(args, X_OUT) + row * get(args, X_STRIDE)
        for _ in range(groups):
            low = load_f(x)
            high = load_f(x + 64)
            peak = max_lanes(maximum(absolute(low), absolute(high)))
            inverse = splat_f(127 / peak if peak > 0 else peak * 0)
            low_bits = bits_i(low * inverse + magic)
            high_bits = bits_i(high * inverse + magic)
            store_i8(out, low_bits)
            store_i8(out + 16, high_bits)
            first = sum_lanes_i(low_bits - splat_i(_MAGIC_BITS))
            second = sum_lanes_i(high_bits - splat_i(_MAGIC_BITS))
            scale = peak / 127
            store_f32(out + Q_SCALE, scale)
            store_f32(out + Q_SUM, scale * (first + second))
            store_i32(out + Q_NEGATIVE, -first - second)
            store_i32(out + Q_NEGATIVE_HALVES, -first)
            store_i32(out + Q_NEGATIVE_HALVES + 4, -second)
            x += 128
            out += Q_BYTES
