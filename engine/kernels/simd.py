"""Vectors for Numba kernels: types over LLVM vectors, and the few operations that kernels are written in.

A vector has 16 lanes of 32 bits (or 64 bytes) on every CPU: LLVM splits it into as many registers as the target needs,
so a kernel is written once and gives the same bits everywhere. Addresses are plain ``int64``. ``fma`` is fused where
the target has that instruction, and a multiply followed by an add where it has not. No fast-math anywhere.

Operators: ``+ - * /`` on f32x16, ``+ - * & | << >>`` on i32x16 (shifts are logical), ``& | << >>`` on u8x64.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types

from engine.kernels.emit import (
    BYTE,
    FLOAT,
    HALF,
    LONG,
    V_F32,
    V_I16,
    V_I32,
    V_U8,
    WORD,
    address,
    call,
    constant,
    emit_fma,
    emit_load_part,
    emit_store_part,
    f32x16,
    i32x16,
    load,
    primitive,
    shuffle,
    splat,
    store,
    u8x64,
    word_at,
)

# -- scalars ----------------------------------------------------------------------------------------------------------


@primitive(types.int64, address, types.int64)
def get(b, base, index):
    """Word ``index`` (int64) of a record at ``base``."""
    return load(b, word_at(b, base, index), LONG, 8)


@primitive(types.void, address, types.int64, types.int64)
def put(b, base, index, value):
    """Set word ``index`` (int64) of a record at ``base``."""
    store(b, value, word_at(b, base, index), 8)


@primitive(types.float32, address, types.int64)
def get_f(b, base, index):
    """The float32 in the low half of word ``index`` of a record at ``base``."""
    return load(b, word_at(b, base, index), FLOAT, 4)


@primitive(types.float64, address, types.int64)
def get_d(b, base, index):
    """Word ``index`` of a record at ``base``, as float64."""
    return load(b, word_at(b, base, index), ir.DoubleType(), 8)


@primitive(types.int64, address)
def load_i32(b, where):
    """int32 at ``where``, widened."""
    return b.sext(load(b, where, WORD, 4), LONG)


@primitive(types.int64, address)
def load_u8(b, where):
    """uint8 at ``where``, widened."""
    return b.zext(load(b, where, BYTE, 1), LONG)


@primitive(types.int64, address)
def load_u16(b, where):
    """uint16 at ``where``, widened."""
    return b.zext(load(b, where, HALF, 1), LONG)


@primitive(types.int64, address)
def load_u32(b, where):
    """uint32 at ``where`` (any alignment), widened."""
    return b.zext(load(b, where, WORD, 1), LONG)


@primitive(types.float32, address)
def load_f32(b, where):
    """float32 at ``where``."""
    return load(b, where, FLOAT, 4)


@primitive(types.void, address, types.int64)
def store_i32(b, where, value):
    """Store the low 32 bits."""
    store(b, b.trunc(value, WORD), where, 4)


@primitive(types.void, address, types.int64)
def store_u16(b, where, value):
    """Store the low 16 bits."""
    store(b, b.trunc(value, HALF), where, 1)


@primitive(types.void, address, types.int64)
def store_u8(b, where, value):
    """Store the low 8 bits."""
    store(b, b.trunc(value, BYTE), where, 1)


@primitive(types.void, address, types.float32)
def store_f32(b, where, value):
    """Store float32."""
    store(b, value, where, 4)


@primitive(types.float32, types.float32, types.float32, types.float32)
def fma1(b, x, y, z):
    """x * y + z of scalars, by the same rule as ``fma``."""
    return emit_fma(b, x, y, z)


@primitive(types.float32, types.float32)
def sqrt1(b, x):
    """Square root, correctly rounded."""
    return call(b, "llvm.sqrt.f32", FLOAT, x)


# -- vectors ----------------------------------------------------------------------------------------------------------


@primitive(f32x16, address)
def load_f(b, where):
    """16 float32."""
    return load(b, where, V_F32, 4)


@primitive(i32x16, address)
def load_i(b, where):
    """16 int32."""
    return load(b, where, V_I32, 4)


@primitive(u8x64, address)
def load_b(b, where):
    """64 bytes."""
    return load(b, where, V_U8, 1)


@primitive(i32x16, address)
def load_u8_i(b, where):
    """16 uint8, widened."""
    return b.zext(load(b, where, ir.VectorType(BYTE, 16), 1), V_I32)


@primitive(i32x16, address)
def load_i8_i(b, where):
    """16 int8, widened."""
    return b.sext(load(b, where, ir.VectorType(BYTE, 16), 1), V_I32)


@primitive(i32x16, address)
def load_u16_i(b, where):
    """16 uint16, widened."""
    return b.zext(load(b, where, V_I16, 2), V_I32)


@primitive(types.void, address, f32x16)
def store_f(b, where, value):
    """Store 16 float32."""
    store(b, value, where, 4)


@primitive(types.void, address, i32x16)
def store_i(b, where, value):
    """Store 16 int32."""
    store(b, value, where, 4)


@primitive(types.void, address, u8x64)
def store_b(b, where, value):
    """Store 64 bytes."""
    store(b, value, where, 1)


@primitive(types.void, address, i32x16)
def store_i8(b, where, value):
    """Store the low byte of 16 lanes."""
    store(b, b.trunc(value, ir.VectorType(BYTE, 16)), where, 1)


@primitive(f32x16, address, types.int64)
def load_f_part(b, where, n):
    """The first ``n`` float32 (1 to 16); other lanes are 0 and are not read."""
    return emit_load_part(b, where, n)


@primitive(types.void, address, f32x16, types.int64)
def store_f_part(b, where, value, n):
    """Store the first ``n`` lanes (1 to 16)."""
    emit_store_part(b, where, value, n)


@primitive(f32x16, types.float32)
def splat_f(b, x):
    """One float32 in all lanes."""
    return splat(b, x)


@primitive(i32x16, types.int64)
def splat_i(b, x):
    """The low 32 bits of an integer in all lanes."""
    return splat(b, b.trunc(x, WORD))


@primitive(u8x64, types.int64)
def splat_b(b, x):
    """The low 8 bits of an integer in all lanes."""
    return splat(b, b.trunc(x, BYTE), 64)


@primitive(i32x16)
def lane_index(b):
    """0, 1, … 15."""
    return ir.Constant(V_I32, list(range(16)))


@primitive(f32x16, f32x16, f32x16, f32x16)
def fma(b, x, y, z):
    """x * y + z; fused where the target can."""
    return emit_fma(b, x, y, z)


@primitive(i32x16, i32x16, i32x16)
def shift_signed(b, x, n):
    """x >> n with the sign kept."""
    return b.ashr(x, n)


@primitive(f32x16, i32x16)
def to_float(b, x):
    """int32 to float32, rounded to nearest even."""
    return b.sitofp(x, V_F32)


@primitive(i32x16, f32x16)
def to_int(b, x):
    """float32 to int32, towards zero; the caller keeps |x| below 2**31."""
    return b.fptosi(x, V_I32)


@primitive(f32x16, f32x16)
def round_even(b, x):
    """To the nearest integer, ties to even, for |x| < 2**22: adding and subtracting 1.5 * 2**23 rounds in hardware."""
    magic = constant(V_F32, 12582912.0)
    return b.fsub(b.fadd(x, magic), magic)


@primitive(f32x16, i32x16)
def bits_f(b, x):
    """The lanes' bits read as float32."""
    return b.bitcast(x, V_F32)


@primitive(i32x16, f32x16)
def bits_i(b, x):
    """The lanes' bits read as int32."""
    return b.bitcast(x, V_I32)


@primitive(u8x64, i32x16)
def bytes_of(b, x):
    """The lanes read as 64 bytes."""
    return b.bitcast(x, V_U8)


@primitive(i32x16, u8x64)
def words_of(b, x):
    """64 bytes read as 16 lanes."""
    return b.bitcast(x, V_I32)


@primitive(f32x16, f32x16, f32x16)
def maximum(b, x, y):
    """The larger of each lane; y where either is NaN."""
    return b.select(b.fcmp_ordered(">", x, y), x, y)


@primitive(f32x16, f32x16, f32x16)
def minimum(b, x, y):
    """The smaller of each lane; y where either is NaN."""
    return b.select(b.fcmp_ordered("<", x, y), x, y)


@primitive(f32x16, f32x16)
def absolute(b, x):
    """|x|."""
    return call(b, "llvm.fabs.v16f32", V_F32, x)


@primitive(f32x16, i32x16, i32x16, f32x16, f32x16)
def where_less(b, x, y, yes, no):
    """``yes`` where x < y (signed), else ``no``."""
    return b.select(b.icmp_signed("<", x, y), yes, no)


@primitive(f32x16, f32x16, f32x16, f32x16, f32x16)
def where_below(b, x, y, yes, no):
    """``yes`` where x < y, else ``no`` (also where either is NaN)."""
    return b.select(b.fcmp_ordered("<", x, y), yes, no)


def _fold(b, x, combine):
    """Combine 16 lanes to one in a fixed tree: lane i with i + 8, then i + 4, i + 2, i + 1."""
    for half in (8, 4, 2, 1):
        x = combine(
            shuffle(b, x, x, list(range(half))),
            shuffle(b, x, x, list(range(half, 2 * half))),
        )
    return b.extract_element(x, ir.Constant(WORD, 0))


@primitive(types.float32, f32x16)
def first_lane(b, x):
    """Lane 0."""
    return b.extract_element(x, ir.Constant(WORD, 0))


@primitive(types.float32, f32x16)
def sum_lanes(b, x):
    """Sum of the lanes in a fixed order."""
    return _fold(b, x, b.fadd)


@primitive(types.float32, f32x16)
def max_lanes(b, x):
    """Largest lane."""
    return _fold(b, x, lambda p, q: b.select(b.fcmp_ordered(">", p, q), p, q))


@primitive(types.int64, i32x16)
def sum_lanes_i(b, x):
    """Sum of the lanes."""
    return b.sext(_fold(b, x, b.add), LONG)


@primitive(types.int64, i32x16)
def sum_bytes(b, x):
    """Sum of the lanes, each of which is in [-128, 127]."""
    biased = b.xor(b.trunc(x, ir.VectorType(BYTE, 16)), constant(ir.VectorType(BYTE, 16), 0x80))
    total = call(b, "llvm.vector.reduce.add.v16i32", WORD, b.zext(biased, V_I32))
    return b.sext(b.sub(total, ir.Constant(WORD, 16 * 128)), LONG)


@primitive(f32x16, f32x16, f32x16)
def even_lanes(b, x, y):
    """Lanes 0, 2, … of the 32 lanes x, y."""
    return shuffle(b, x, y, list(range(0, 32, 2)))


@primitive(f32x16, f32x16, f32x16)
def odd_lanes(b, x, y):
    """Lanes 1, 3, … of the 32 lanes x, y."""
    return shuffle(b, x, y, list(range(1, 32, 2)))


@primitive(f32x16, f32x16, f32x16)
def zip_low(b, x, y):
    """x0, y0, x1, y1, … x7, y7."""
    return shuffle(b, x, y, [i // 2 + 16 * (i % 2) for i in range(16)])


@primitive(f32x16, f32x16, f32x16)
def zip_high(b, x, y):
    """x8, y8, … x15, y15."""
    return shuffle(b, x, y, [8 + i // 2 + 16 * (i % 2) for i in range(16)])
