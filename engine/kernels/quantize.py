"""Activations to int8 by groups of 32, and the sums that weight formats with an offset or a min need."""

from __future__ import annotations

from engine.kernels.kernel import helper, kernel
from engine.kernels.layout import Q_BYTES, Q_NEGATIVE, Q_NEGATIVE_HALVES, Q_OUTLIERS, Q_SCALE, Q_SUM
from engine.kernels.simd import (
    absolute,
    bits_i,
    get,
    load_f,
    max_lanes,
    maximum,
    shift_signed,
    splat_f,
    splat_i,
    store_f32,
    store_i,
    store_i8,
    store_i32,
    sum_lanes,
    sum_lanes_i,
    where_below,
)

X_ROWS, X_OUT_ROWS, X_GROUPS = range(3)
_MAGIC = 12582912.0
_MAGIC_BITS = 0x4B400000
OUTLIER = 20.0
"""A value this many times the row's mean magnitude is an outlier. A few per cent of all groups have one; there it would
cost the other 31 values most of their precision, and over a model these groups make most of the error."""
_WIDEST = 16000.0


@kernel
def quantize_rows(context, args, begin, end, scratch):
    """Rows [begin, end) of a register to quantized records.

    scale = max|x| / 127 over the group's values that are not outliers; code = x / scale rounded to nearest even
    (adding 1.5 * 2**23 leaves the rounded integer in the low bits of the sum). Codes of groups with outliers have a
    second digit: code = low + 128 * high. Reads float32[rows][32 * groups], writes 2 * ``Q_BYTES`` per group.
    """
    groups = get(args, X_GROUPS)
    for row in range(begin, end):
        x = get(get(args, X_ROWS), row)
        out = get(get(args, X_OUT_ROWS), row)
        total = splat_f(0.0)
        for i in range(2 * groups):
            total = total + absolute(load_f(x + 64 * i))
        limit = sum_lanes(total) * (OUTLIER / (32 * groups))
        for _ in range(groups):
            _quantize_group(x, out, limit, Q_BYTES * groups)
            x += 128
            out += Q_BYTES


@helper
def _quantize_group(x, out, limit, high):
    """One group: 32 float32 at ``x`` to its record at ``out``, high digits ``high`` bytes further."""
    first = load_f(x)
    second = load_f(x + 64)
    peak = max_lanes(maximum(absolute(first), absolute(second)))
    scale = peak / 127
    if peak > limit:
        scale = max(peak / _WIDEST, max_lanes(maximum(_without(first, limit), _without(second, limit))) / 127)
    inverse = splat_f(1 / scale if scale > 0 else scale * 0)
    magic = splat_f(_MAGIC)
    bits = splat_i(_MAGIC_BITS)
    a = bits_i(first * inverse + magic) - bits
    b = bits_i(second * inverse + magic) - bits
    low_sum = sum_lanes_i(a)
    high_sum = sum_lanes_i(b)
    store_f32(out + Q_SCALE, scale)
    store_f32(out + Q_SUM, scale * (low_sum + high_sum))
    store_i32(out + Q_NEGATIVE, -low_sum - high_sum)
    store_i32(out + Q_NEGATIVE_HALVES, -low_sum)
    store_i32(out + Q_NEGATIVE_HALVES + 4, -high_sum)
    store_i32(out + Q_OUTLIERS, 1 if peak > limit else 0)
    if peak > limit:
        a_high = shift_signed(a + splat_i(64), splat_i(7))
        b_high = shift_signed(b + splat_i(64), splat_i(7))
        store_i8(out + high, a_high)
        store_i8(out + high + 16, b_high)
        a = a - (a_high << splat_i(7))
        b = b - (b_high << splat_i(7))
    else:
        store_i(out + high, splat_i(0))
    store_i8(out, a)
    store_i8(out + 16, b)


@helper
def _without(x, limit):
    """|x| where it is at most ``limit``, else 0."""
    size = absolute(x)
    return where_below(splat_f(limit), size, splat_f(0.0), size)
