"""float16 and bfloat16 for kernels: 16 values at a time, and scalars.

Where the target converts float16 in hardware, LLVM's half type is used; elsewhere (LLVM's own conversion crashes on
x86 without F16C) the bits are converted by integer arithmetic, with the same results: round to nearest even,
subnormals, infinities and NaN included.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types

from engine.kernels.cpu import target
from engine.kernels.emit import FLOAT, V_F32, V_I16, V_I32, WORD, address, constant, f32x16, load, primitive, store

V_HALF = ir.VectorType(ir.HalfType(), 16)


class _BFloat(ir.Type):
    """LLVM's bfloat, which llvmlite does not name."""

    def _to_string(self):
        return "bfloat"

    def __eq__(self, other):
        return isinstance(other, _BFloat)

    def __hash__(self):
        return hash(_BFloat)


V_BFLOAT = ir.VectorType(_BFloat(), 16)


def _same(like, value):
    """An integer constant shaped like ``like`` (a vector or a scalar type)."""
    return constant(like, value) if isinstance(like, ir.VectorType) else ir.Constant(like, value)


def widen_bits(b, half, word_type, float_type):
    """float16 bits (in 32-bit integers) to float32: shift the fields into place and rescale by 2**112, which is exact
    and handles subnormals; infinity and NaN get their exponent set."""
    magnitude = b.and_(half, _same(word_type, 0x7FFF))
    scaled = b.fmul(
        b.bitcast(b.shl(magnitude, _same(word_type, 13)), float_type),
        b.bitcast(_same(word_type, (127 + 112) << 23), float_type),
    )
    bits = b.bitcast(scaled, word_type)
    special = b.icmp_unsigned(">=", magnitude, _same(word_type, 0x7C00))
    bits = b.select(special, b.or_(bits, _same(word_type, 0x7F800000)), bits)
    sign = b.shl(b.and_(half, _same(word_type, 0x8000)), _same(word_type, 16))
    return b.bitcast(b.or_(bits, sign), float_type)


def narrow_bits(b, value, word_type, float_type):
    """float32 to float16 bits (in 32-bit integers), round to nearest even.

    Normal results round by adding half of the dropped bits; subnormal ones by adding 0.5, whose unit in the last place
    is float16's smallest step.
    """
    bits = b.bitcast(value, word_type)
    sign = b.and_(b.lshr(bits, _same(word_type, 16)), _same(word_type, 0x8000))
    magnitude = b.and_(bits, _same(word_type, 0x7FFFFFFF))
    odd = b.and_(b.lshr(magnitude, _same(word_type, 13)), _same(word_type, 1))
    rounded = b.add(b.add(magnitude, _same(word_type, 0xFFF - (112 << 23))), odd)
    normal = b.lshr(rounded, _same(word_type, 13))
    half_unit = b.bitcast(_same(word_type, 126 << 23), float_type)
    tiny = b.bitcast(b.fadd(b.bitcast(magnitude, float_type), half_unit), word_type)
    tiny = b.sub(tiny, _same(word_type, 126 << 23))
    result = b.select(b.icmp_unsigned("<", magnitude, _same(word_type, 113 << 23)), tiny, normal)
    quiet = b.or_(b.and_(b.lshr(magnitude, _same(word_type, 13)), _same(word_type, 0x3FF)), _same(word_type, 0x7E00))
    nan = b.icmp_unsigned(">", magnitude, _same(word_type, 0x7F800000))
    special = b.select(nan, quiet, _same(word_type, 0x7C00))
    result = b.select(b.icmp_unsigned(">=", magnitude, _same(word_type, 143 << 23)), special, result)
    return b.or_(result, sign)


def emit_load_half(b, where):
    """Emit a load of 16 float16 as float32."""
    if target().f16:
        return b.fpext(load(b, where, V_HALF, 2), V_F32)
    return widen_bits(b, b.zext(load(b, where, V_I16, 2), V_I32), V_I32, V_F32)


@primitive(f32x16, address)
def load_h(b, where):
    """16 float16, widened."""
    return emit_load_half(b, where)


@primitive(types.void, address, f32x16)
def store_h(b, where, value):
    """Store 16 lanes as float16."""
    if target().f16:
        store(b, b.fptrunc(value, V_HALF), where, 2)
    else:
        store(b, b.trunc(narrow_bits(b, value, V_I32, V_F32), V_I16), where, 2)


@primitive(f32x16, f32x16)
def through_half(b, value):
    """16 lanes rounded to float16 and widened again."""
    if target().f16:
        return b.fpext(b.fptrunc(value, V_HALF), V_F32)
    return widen_bits(b, narrow_bits(b, value, V_I32, V_F32), V_I32, V_F32)


@primitive(f32x16, address)
def load_bf(b, where):
    """16 bfloat16, widened."""
    wide = b.zext(load(b, where, V_I16, 2), V_I32)
    return b.bitcast(b.shl(wide, constant(V_I32, 16)), V_F32)


def narrow_to_bfloat(b, value):
    """16 float32 to bfloat16 bits by integer arithmetic, round to nearest even."""
    bits = b.bitcast(value, V_I32)
    odd = b.and_(b.lshr(bits, constant(V_I32, 16)), constant(V_I32, 1))
    rounded = b.add(b.add(bits, constant(V_I32, 0x7FFF)), odd)
    quiet = b.or_(bits, constant(V_I32, 0x400000))
    rounded = b.select(b.fcmp_unordered("uno", value, value), quiet, rounded)
    return b.trunc(b.lshr(rounded, constant(V_I32, 16)), V_I16)


def emit_store_bfloat(b, where, value):
    """Emit a store of 16 lanes as bfloat16, rounded to nearest even (in hardware subnormal numbers become zero)."""
    store(b, b.fptrunc(value, V_BFLOAT) if target().bf16 else narrow_to_bfloat(b, value), where, 2)


@primitive(types.void, address, f32x16)
def store_bf(b, where, value):
    """Store 16 lanes as bfloat16."""
    emit_store_bfloat(b, where, value)


@primitive(types.float32, types.int64)
def half_to_float(b, bits):
    """One float16, given as its bits."""
    return widen_bits(b, b.trunc(bits, WORD), WORD, FLOAT)


@primitive(types.int64, types.float32)
def float_to_half(b, value):
    """The bits of a float32 as float16."""
    return b.zext(narrow_bits(b, value, WORD, FLOAT), ir.IntType(64))


@primitive(types.float32, types.int64)
def float_of_bits(b, bits):
    """The low 32 bits read as float32."""
    return b.bitcast(b.trunc(bits, WORD), FLOAT)


@primitive(types.int64, types.float32)
def bits_of_float(b, value):
    """A float32's bits."""
    return b.zext(b.bitcast(value, WORD), ir.IntType(64))
