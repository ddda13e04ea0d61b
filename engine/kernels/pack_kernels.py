"""Kernels that turn GGUF blocks into packed blocks, and packed rows back into float32.

For each type two small readers say where its codes and scales are in the file's block; everything else is shared. A
reader works on words of four codes: word v of a group holds columns 4v … 4v+3, one byte each.
Layouts of the file's blocks: the ``gguf`` package's dequantizers, which the tests hold this to bit for bit.
"""

from __future__ import annotations

from gguf import GGMLQuantizationType as T

from engine.kernels.codes import read_group, store_codes
from engine.kernels.formats import FLOAT_BYTES, FORMATS, SUPER, Format
from engine.kernels.half import float_of_bits, half_to_float
from engine.kernels.kernel import Kernel, helper, kernel
from engine.kernels.layout import C_TOKENS
from engine.kernels.simd import (
    get,
    get_f,
    load_f32,
    load_i32,
    load_u8,
    load_u16,
    load_u32,
    store_f32,
    store_i32,
    store_u8,
    store_u16,
)

# Packing one tensor.
K_SOURCE, K_ROW_BYTES, K_ROWS, K_GROUPS, K_TARGET, K_BLOCK_BYTES, K_COLS = range(7)
# Reading rows back: as above, and where they go.
U_WEIGHTS, U_BLOCK_BYTES, U_GROUPS, U_OUT, U_FACTOR, U_COLS = range(6)

_LOW = 0x0F0F0F0F
_PAIR = 0x03030303
_ONE = 0x01010101


# -- codes: four codes of word v of group g of the file's block at ``p`` ---------------------------------------------


def _nibbles_at(offset):
    @helper
    def codes(p, g, v):
        word = load_u32(p + offset + 4 * (v & 3))
        return (word >> (4 * (v >> 2))) & _LOW

    return codes


def _five_bits_at(high, low):
    @helper
    def codes(p, g, v):
        word = (load_u32(p + low + 4 * (v & 3)) >> (4 * (v >> 2))) & _LOW
        four = (load_u32(p + high) >> (4 * v)) & 15
        return word | ((four * 0x00204081) & _ONE) << 4

    return codes


@helper
def _codes_q8(p, g, v):
    return load_u32(p + 2 + 4 * v) ^ 0x80808080


@helper
def _codes_q4k(p, g, v):
    return (load_u32(p + 16 + 32 * (g >> 1) + 4 * v) >> (4 * (g & 1))) & _LOW


@helper
def _codes_q5k(p, g, v):
    low = (load_u32(p + 48 + 32 * (g >> 1) + 4 * v) >> (4 * (g & 1))) & _LOW
    return low | ((load_u32(p + 16 + 4 * v) >> g) & _ONE) << 4


@helper
def _codes_q6k(p, g, v):
    part = g & 3
    low = load_u32(p + 64 * (g >> 2) + 32 * (part & 1) + 4 * v) >> (4 * (part >> 1))
    high = load_u32(p + 128 + 32 * (g >> 2) + 4 * v) >> (2 * part)
    return (low & _LOW) | (high & _PAIR) << 4


@helper
def _codes_q3k(p, g, v):
    low = load_u32(p + 32 + 32 * (g >> 2) + 4 * v) >> (2 * (g & 3))
    return (low & _PAIR) | ((load_u32(p + 4 * v) >> g) & _ONE) << 2


@helper
def _codes_q2k(p, g, v):
    return (load_u32(p + 16 + 32 * (g >> 2) + 4 * v) >> (2 * (g & 3))) & _PAIR


@helper
def _codes_iq4xs(p, g, v):
    return (load_u32(p + 8 + 16 * g + 4 * (v & 3)) >> (4 * (v >> 2))) & _LOW


# -- scales: of group g of the file's block at ``p``, row r of the block, to the packed group at ``s`` ----------------


@helper
def _half_scale(p, g, r, s, top):
    store_u16(s + 2 * r, load_u16(p))


@helper
def _half_scale_min(p, g, r, s, top):
    store_u16(s + 2 * r, load_u16(p))
    store_u16(s + 32 + 2 * r, load_u16(p + 2))


@helper
def _e8_scale(p, g, r, s, top):
    store_u8(s + r, load_u8(p))


@helper
def _k_scale(p, g, r, s, top):
    own = g & 3
    scale, low = load_u8(p + 4 + own), load_u8(p + 8 + own)
    if g < 4:
        scale &= 63
        low &= 63
    else:
        both = load_u8(p + 12 + own)
        scale = (both & 15) | ((scale >> 2) & 48)
        low = (both >> 4) | ((low >> 2) & 48)
    store_u8(s + r, scale)
    store_u8(s + 16 + r, low)
    store_u16(top + 2 * r, load_u16(p))
    store_u16(top + 32 + 2 * r, load_u16(p + 2))


@helper
def _q6k_scale(p, g, r, s, top):
    store_u8(s + r, load_u8(p + 192 + 2 * g))
    store_u8(s + 16 + r, load_u8(p + 193 + 2 * g))
    store_u16(top + 2 * r, load_u16(p + 208))


@helper
def _q3k_scale(p, g, r, s, top):
    for half in range(2):
        i = 2 * g + half
        low = (load_u8(p + 96 + (i & 7)) >> (4 * (i >> 3))) & 15
        high = (load_u8(p + 104 + (i & 3)) >> (2 * (i >> 2))) & 3
        store_u8(s + 16 * half + r, (low | high << 4) - 32)
    store_u16(top + 2 * r, load_u16(p + 108))


@helper
def _q2k_scale(p, g, r, s, top):
    store_u8(s + r, load_u8(p + 2 * g))
    store_u8(s + 16 + r, load_u8(p + 2 * g + 1))
    store_u16(top + 2 * r, load_u16(p + 80))
    store_u16(top + 32 + 2 * r, load_u16(p + 82))


@helper
def _iq4xs_scale(p, g, r, s, top):
    low = (load_u8(p + 4 + (g >> 1)) >> (4 * (g & 1))) & 15
    high = (load_u16(p + 2) >> (2 * g)) & 3
    store_u8(s + r, (low | high << 4) - 32)
    store_u16(top + 2 * r, load_u16(p))


_READERS = {
    T.Q4_0: (_nibbles_at(2), _half_scale),
    T.Q4_1: (_nibbles_at(4), _half_scale_min),
    T.Q5_0: (_five_bits_at(2, 6), _half_scale),
    T.Q5_1: (_five_bits_at(4, 8), _half_scale_min),
    T.Q8_0: (_codes_q8, _half_scale),
    T.Q4_K: (_codes_q4k, _k_scale),
    T.Q5_K: (_codes_q5k, _k_scale),
    T.Q6_K: (_codes_q6k, _q6k_scale),
    T.Q3_K: (_codes_q3k, _q3k_scale),
    T.Q2_K: (_codes_q2k, _q2k_scale),
    T.IQ4_NL: (_nibbles_at(2), _half_scale),
    T.IQ4_XS: (_codes_iq4xs, _iq4xs_scale),
    T.MXFP4: (_nibbles_at(1), _e8_scale),
}


def _packer(fmt: Format) -> Kernel:
    """The kernel that packs one type of tensor."""
    codes, scale = _READERS[fmt.type]
    index = fmt.index
    code_bytes, group_bytes, super_bytes, file_bytes = fmt.code_bytes, fmt.group_bytes, fmt.super_bytes, fmt.file_bytes
    share = SUPER if super_bytes else 1

    def pack(context, args, begin, end, scratch):
        for block in range(begin, end):
            base = get(args, K_TARGET) + block * get(args, K_BLOCK_BYTES)
            for r in range(min(16, get(args, K_ROWS) - 16 * block)):
                p = get(args, K_SOURCE) + (16 * block + r) * get(args, K_ROW_BYTES)
                at = base
                for _ in range(get(args, K_GROUPS) // share):
                    top = at
                    at += super_bytes
                    for g in range(share):
                        low = (codes(p, g, 0), codes(p, g, 1), codes(p, g, 2), codes(p, g, 3))
                        high = (codes(p, g, 4), codes(p, g, 5), codes(p, g, 6), codes(p, g, 7))
                        store_codes(index, at + 4 * r, low, high)
                        scale(p, g, r, at + code_bytes, top)
                        at += group_bytes
                    p += file_bytes

    return Kernel(f"pack_{fmt.name}", pack)


@kernel
def pack_4_bytes(context, args, begin, end, scratch):
    """Interleave rows of 4-byte elements by 16."""
    for block in range(begin, end):
        out = get(args, K_TARGET) + block * get(args, K_BLOCK_BYTES)
        for r in range(min(16, get(args, K_ROWS) - 16 * block)):
            p = get(args, K_SOURCE) + (16 * block + r) * get(args, K_ROW_BYTES)
            for k in range(get(args, K_COLS)):
                store_i32(out + 64 * k + 4 * r, load_u32(p + 4 * k))


@kernel
def pack_2_bytes(context, args, begin, end, scratch):
    """Interleave rows of 2-byte elements by 16."""
    for block in range(begin, end):
        out = get(args, K_TARGET) + block * get(args, K_BLOCK_BYTES)
        for r in range(min(16, get(args, K_ROWS) - 16 * block)):
            p = get(args, K_SOURCE) + (16 * block + r) * get(args, K_ROW_BYTES)
            for k in range(get(args, K_COLS)):
                store_u16(out + 32 * k + 2 * r, load_u16(p + 2 * k))


def _row_reader(fmt: Format) -> Kernel:
    """The kernel that reads rows of a packed tensor back as float32: rows tokens[begin:end] of the step's context."""
    index = fmt.index
    code_bytes, group_bytes, super_bytes = fmt.code_bytes, fmt.group_bytes, fmt.super_bytes
    share = SUPER if super_bytes else 1

    def read(context, args, begin, end, scratch):
        factor = get_f(args, U_FACTOR)
        for i in range(begin, end):
            row = load_i32(get(context, C_TOKENS) + 4 * i)
            out = get(get(args, U_OUT), i)
            at = get(args, U_WEIGHTS) + (row >> 4) * get(args, U_BLOCK_BYTES)
            for _ in range(get(args, U_GROUPS) // share):
                top = at
                at += super_bytes
                for _ in range(share):
                    read_group(index, at, top, at + code_bytes, row & 15, factor, out)
                    at += group_bytes
                    out += 128

    return Kernel(f"read_{fmt.name}", read)


def _float_reader(kind: int) -> Kernel:
    """As ``_row_reader`` for float weights."""
    step = FLOAT_BYTES[kind]
    value = (_value_f32, _value_f16, _value_bf16)[kind]

    def read(context, args, begin, end, scratch):
        factor = get_f(args, U_FACTOR)
        for i in range(begin, end):
            row = load_i32(get(context, C_TOKENS) + 4 * i)
            out = get(get(args, U_OUT), i)
            p = get(args, U_WEIGHTS) + (row >> 4) * get(args, U_BLOCK_BYTES) + (row & 15) * step
            for k in range(get(args, U_COLS)):
                store_f32(out + 4 * k, value(p + 16 * step * k) * factor)

    return Kernel(f"read_f{kind}", read)


@helper
def _value_f32(p):
    return load_f32(p)


@helper
def _value_f16(p):
    return half_to_float(load_u16(p))


@helper
def _value_bf16(p):
    return float_of_bits(load_u16(p) << 16)


PACKERS = {fmt.name: _packer(fmt) for fmt in FORMATS}
FLOAT_PACKERS = (pack_4_bytes, pack_2_bytes, pack_2_bytes)
READERS = {fmt.name: _row_reader(fmt) for fmt in FORMATS}
FLOAT_READERS = tuple(_float_reader(kind) for kind in range(3))
