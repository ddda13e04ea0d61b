"""Operations on one row at a time: norms, rotary embedding, gates, KV stores.

Units are rows of the step. ``…_ROWS`` arguments are tables of row addresses. Rows of registers are padded to whole
vectors, but rows of logits belong to others: nothing is written past a row's width.
"""

from __future__ import annotations

from engine.kernels.half import store_h
from engine.kernels.kernel import Kernel, helper, kernel
from engine.kernels.layout import (
    C_MEMORY,
    C_OWNERS,
    C_PAGE_BYTES,
    C_PAGE_ROWS,
    C_POSITIONS,
    C_TABLES,
)
from engine.kernels.simd import (
    even_lanes,
    fma,
    get,
    get_f,
    load_f,
    load_f32,
    load_f_part,
    load_i32,
    load_u16,
    load_u32,
    odd_lanes,
    splat_f,
    sqrt1,
    store_f,
    store_f_part,
    store_i32,
    store_u16,
    sum_lanes,
    zip_high,
    zip_low,
)
from engine.kernels.vmath import gelu16, sigmoid16, silu16, tanh16

# Elementwise.
E_A_ROWS, E_B_ROWS, E_OUT_ROWS, E_WIDTH, E_FACTOR = range(5)
# RMS norm.
N_X_ROWS, N_OUT_ROWS, N_WEIGHT, N_PART, N_PARTS, N_WEIGHT_STEP, N_EPS = range(7)
# Rotary embedding.
R_X_ROWS, R_HEADS, R_HEAD_SIZE, R_HALF, R_COS, R_SIN = range(6)
# KV store.
S_K_ROWS, S_V_ROWS, S_K_AT, S_V_AT, S_HEADS, S_HEAD_SIZE, S_ELEMENT = range(7)


@helper
def _load_some(at, n):
    return load_f(at) if n >= 16 else load_f_part(at, n)


@helper
def _store_some(at, value, n):
    if n >= 16:
        store_f(at, value)
    else:
        store_f_part(at, value, n)


@kernel
def rms_norm(context, args, begin, end, scratch):
    """out = x / sqrt(mean(x**2) + eps) * weight over each part of a row (Zhang and Sennrich 2019)."""
    part = get(args, N_PART)
    for row in range(begin, end):
        x = get(get(args, N_X_ROWS), row)
        out = get(get(args, N_OUT_ROWS), row)
        weight = get(args, N_WEIGHT)
        for _ in range(get(args, N_PARTS)):
            total = splat_f(0.0)
            for i in range(0, part, 16):
                v = _load_some(x + 4 * i, part - i)
                total = fma(v, v, total)
            scale = splat_f(1 / sqrt1(sum_lanes(total) / part + get_f(args, N_EPS)))
            for i in range(0, part, 16):
                v = _load_some(x + 4 * i, part - i) * scale
                if weight != 0:
                    v = v * _load_some(weight + 4 * i, part - i)
                _store_some(out + 4 * i, v, part - i)
            x += 4 * part
            out += 4 * part
            weight += get(args, N_WEIGHT_STEP)


@kernel
def rope_halves(context, args, begin, end, scratch):
    """Rotate pairs (i, i + half) of each head by the row's position (Su et al. 2021, NeoX order)."""
    half = get(args, R_HALF)
    for row in range(begin, end):
        turn = 4 * half * load_i32(get(context, C_POSITIONS) + 4 * row)
        x = get(get(args, R_X_ROWS), row)
        for _ in range(get(args, R_HEADS)):
            for i in range(0, half, 16):
                cos = _load_some(get(args, R_COS) + turn + 4 * i, half - i)
                sin = _load_some(get(args, R_SIN) + turn + 4 * i, half - i)
                a = _load_some(x + 4 * i, half - i)
                b = _load_some(x + 4 * (half + i), half - i)
                _store_some(x + 4 * i, a * cos - b * sin, half - i)
                _store_some(x + 4 * (half + i), a * sin + b * cos, half - i)
            x += 4 * get(args, R_HEAD_SIZE)


@kernel
def rope_adjacent(context, args, begin, end, scratch):
    """Rotate pairs (2i, 2i + 1) of each head by the row's position (Su et al. 2021)."""
    half = get(args, R_HALF)
    for row in range(begin, end):
        turn = 4 * half * load_i32(get(context, C_POSITIONS) + 4 * row)
        x = get(get(args, R_X_ROWS), row)
        for _ in range(get(args, R_HEADS)):
            for i in range(0, half, 16):
                left = 2 * (half - i)
                cos = _load_some(get(args, R_COS) + turn + 4 * i, half - i)
                sin = _load_some(get(args, R_SIN) + turn + 4 * i, half - i)
                first = _load_some(x + 8 * i, left)
                second = _load_some(x + 8 * i + 64, left - 16)
                a = even_lanes(first, second)
                b = odd_lanes(first, second)
                p = a * cos - b * sin
                q = a * sin + b * cos
                _store_some(x + 8 * i, zip_low(p, q), left)
                _store_some(x + 8 * i + 64, zip_high(p, q), left - 16)
            x += 4 * get(args, R_HEAD_SIZE)


@kernel
def store_kv(context, args, begin, end, scratch):
    """Write rows' keys and values to their pages, as float16 or float32.

    Page layout by layer: K [kv_heads][head_size][page_rows], V [kv_heads][page_rows][head_size].
    """
    size = get(args, S_HEAD_SIZE)
    heads = get(args, S_HEADS)
    page_rows = get(context, C_PAGE_ROWS)
    for row in range(begin, end):
        position = load_i32(get(context, C_POSITIONS) + 4 * row)
        table = get(get(context, C_TABLES), load_i32(get(context, C_OWNERS) + 4 * row))
        page = load_i32(table + 4 * (position // page_rows))
        slot = position % page_rows
        base = get(context, C_MEMORY) + page * get(context, C_PAGE_BYTES)
        k = get(get(args, S_K_ROWS), row)
        v = get(get(args, S_V_ROWS), row)
        k_at = base + get(args, S_K_AT) * page_rows
        v_at = base + get(args, S_V_AT) * page_rows
        if get(args, S_ELEMENT) == 2:
            _store_halves(k, k_at + 2 * slot, heads * size, 2 * page_rows, scratch)
            for h in range(heads):
                at = v_at + 2 * size * (h * page_rows + slot)
                _store_halves(v + 4 * h * size, at, size, 2, scratch)
        else:
            for i in range(heads * size):
                store_i32(k_at + 4 * (i * page_rows + slot), load_u32(k + 4 * i))
            for i in range(heads * size):
                at = (i // size * page_rows + slot) * size + i % size
                store_i32(v_at + 4 * at, load_u32(v + 4 * i))


@helper
def _store_halves(x, at, n, step, scratch):
    """``n`` float32 at ``x`` to float16, ``step`` bytes apart."""
    for i in range(0, n, 16):
        store_h(scratch, load_f(x + 4 * i))
        for lane in range(min(16, n - i)):
            store_u16(at + (i + lane) * step, load_u16(scratch + 2 * lane))


def _elementwise(name, combine) -> Kernel:
    """The kernel out = combine(a, b, factor)."""

    def run(context, args, begin, end, scratch):
        left = get(args, E_WIDTH) % 16
        whole = 4 * (get(args, E_WIDTH) - left)
        factor = splat_f(get_f(args, E_FACTOR))
        for row in range(begin, end):
            a = get(get(args, E_A_ROWS), row)
            b = get(get(args, E_B_ROWS), row)
            out = get(get(args, E_OUT_ROWS), row)
            for i in range(0, whole, 64):
                store_f(out + i, combine(load_f(a + i), load_f(b + i), factor))
            if left > 0:
                value = combine(load_f_part(a + whole, left), load_f_part(b + whole, left), factor)
                store_f_part(out + whole, value, left)

    return Kernel(name, run)


@helper
def _add(a, b, factor):
    return a + b * factor


@helper
def _scale(a, b, factor):
    return a * factor


@helper
def _softcap(a, b, factor):
    return factor * tanh16(a / factor)


@helper
def _silu_glu(a, b, factor):
    return silu16(a) * b


@helper
def _gelu_glu(a, b, factor):
    return gelu16(a) * b


add = _elementwise("add", _add)
scale = _elementwise("scale", _scale)
softcap = _elementwise("softcap", _softcap)
silu_glu = _elementwise("silu_glu", _silu_glu)
gelu_glu = _elementwise("gelu_glu", _gelu_glu)


@kernel
def sigmoid_gate(context, args, begin, end, scratch):
    """out = a * sigmoid(b[0])."""
    for row in range(begin, end):
        gate = sigmoid16(splat_f(load_f32(get(get(args, E_B_ROWS), row))))
        a = get(get(args, E_A_ROWS), row)
        out = get(get(args, E_OUT_ROWS), row)
        for i in range(0, get(args, E_WIDTH), 16):
            left = get(args, E_WIDTH) - i
            _store_some(out + 4 * i, _load_some(a + 4 * i, left) * gate, left)
