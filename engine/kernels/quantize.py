"""Activations to int8 by groups of 32, and the sums that weight formats with an offset or a min need."""

from __future__ import annotations

import numpy as np

from engine.kernels.kernel import helper, kernel
from engine.kernels.layout import Q_BYTES, Q_NEGATIVE, Q_NEGATIVE_HALVES, Q_OUTLIERS, Q_SCALE, Q_SUM
from engine.kernels.simd import (
    absolute,
    bits_i,
    get,
    load_f,
    load_i32,
    max_lanes,
    maximum,
    shift_signed,
    splat_f,
    splat_i,
    store_f32,
    store_i,
    store_i8,
    store_i32,
    sum_bytes,
    sum_lanes,
    sum_lanes_i,
    where_below,
)

X_ROWS, X_OUT_ROWS, X_GROUPS = range(3)
_MAGIC = 12582912.0
_MAGIC_BITS = 0x4B400000
OUTLIER = 10.0
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
    """One group: 32 float32 at ``x`` to its record at ``out``, high digits ``high`` bytes further. These are zeros
    where the record says that there are none, so they are only touched where the old record or the new one has some.
    """
    first = load_f(x)
    second = load_f(x + 64)
    peak = max_lanes(maximum(absolute(first), absolute(second)))
    if peak > limit:
        _quantize_outliers(first, second, out, limit, peak, high)
    else:
        scale = peak / np.float32(127)
        a = _codes(first, scale)
        b = _codes(second, scale)
        store_i8(out, a)
        store_i8(out + 16, b)
        if load_i32(out + Q_OUTLIERS) != 0:
            store_i(out + high, splat_i(0))
        _store_sums(out, scale, sum_bytes(a), sum_bytes(b), 0)


@helper
def _quantize_outliers(first, second, out, limit, peak, high):
    """A group with outliers: two digits a code."""
    inner = max_lanes(maximum(_without(first, limit), _without(second, limit)))
    scale = max(peak / np.float32(_WIDEST), inner / np.float32(127))
    a = _codes(first, scale)
    b = _codes(second, scale)
    a_high = shift_signed(a + splat_i(64), splat_i(7))
    b_high = shift_signed(b + splat_i(64), splat_i(7))
    store_i8(out + high, a_high)
    store_i8(out + high + 16, b_high)
    store_i8(out, a - (a_high << splat_i(7)))
    store_i8(out + 16, b - (b_high << splat_i(7)))
    _store_sums(out, scale, sum_lanes_i(a), sum_lanes_i(b), 1)


@helper
def _codes(x, scale):
    """x / scale rounded to nearest even."""
    one, zero = np.float32(1), np.float32(0)
    inverse = splat_f(one / scale if scale > zero else zero)
    return bits_i(x * inverse + splat_f(_MAGIC)) - splat_i(_MAGIC_BITS)


@helper
def _store_sums(out, scale, first, second, outliers):
    """The numbers of a group's record."""
    store_f32(out + Q_SCALE, scale)
    store_f32(out + Q_SUM, scale * np.float32(first + second))
    store_i32(out + Q_NEGATIVE, -first - second)
    store_i32(out + Q_NEGATIVE_HALVES, -first)
    store_i32(out + Q_NEGATIVE_HALVES + 4, -second)
    store_i32(out + Q_OUTLIERS, outliers)


@helper
def _without(x, limit):
    """|x| where it is at most ``limit``, else 0."""
    size = absolute(x)
    return where_below(splat_f(limit), size, splat_f(0.0), size)
