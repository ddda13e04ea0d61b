"""What vector primitives are made from: types over LLVM vectors, their operators, and functions that emit instructions.

Addresses are plain ``int64``. No fast-math anywhere.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.extending import intrinsic, lower_builtin, models, register_model
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature

from engine.kernels.cpu import target

LANES = 16
BYTE, HALF, WORD, LONG = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64)
FLOAT = ir.FloatType()
V_F32, V_I32, V_I16, V_U8 = (
    ir.VectorType(FLOAT, 16),
    ir.VectorType(WORD, 16),
    ir.VectorType(HALF, 16),
    ir.VectorType(BYTE, 64),
)


class Vector(types.Type):
    """A Numba type that is one LLVM vector."""

    def __init__(self, name: str, llvm_type: ir.Type) -> None:
        self.llvm_type = llvm_type
        super().__init__(name)


@register_model(Vector)
class VectorModel(models.PrimitiveModel):
    """Vectors are passed and kept as they are."""

    def __init__(self, dmm: Any, fe_type: Vector) -> None:
        super().__init__(dmm, fe_type, fe_type.llvm_type)


f32x16 = Vector("f32x16", V_F32)
i32x16 = Vector("i32x16", V_I32)
u8x64 = Vector("u8x64", V_U8)
address = types.int64


def primitive(result: types.Type, *arguments: types.Type) -> Callable[[Callable[..., Any]], Any]:
    """Make an intrinsic of fixed types from ``emit(builder, *values) -> value`` (None for no result)."""

    def decorate(emit: Callable[..., Any]) -> Any:
        def typed(context, *given):
            def generate(context, builder, sig, values):
                value = emit(builder, *values)
                return context.get_dummy_value() if value is None else value

            return result(*arguments), generate

        typed.__name__ = emit.__name__
        typed.__doc__ = emit.__doc__
        # Numba reads the number of arguments from the signature, so one is made for each arity.
        return intrinsic(_with_arity(typed, len(arguments)))

    return decorate


def _with_arity(typed, n):
    makers = {
        0: lambda f: lambda c: f(c),
        1: lambda f: lambda c, a0: f(c, a0),
        2: lambda f: lambda c, a0, a1: f(c, a0, a1),
        3: lambda f: lambda c, a0, a1, a2: f(c, a0, a1, a2),
        4: lambda f: lambda c, a0, a1, a2, a3: f(c, a0, a1, a2, a3),
        5: lambda f: lambda c, a0, a1, a2, a3, a4: f(c, a0, a1, a2, a3, a4),
        6: lambda f: lambda c, a0, a1, a2, a3, a4, a5: f(c, a0, a1, a2, a3, a4, a5),
    }
    made = makers[n](typed)
    made.__name__ = made.__qualname__ = typed.__name__
    made.__doc__ = typed.__doc__
    return made


def pointer(b: ir.IRBuilder, where: ir.Value, kind: ir.Type) -> ir.Value:
    """A pointer to ``kind`` at an integer address."""
    return b.inttoptr(where, kind.as_pointer())


def load(b: ir.IRBuilder, where: ir.Value, kind: ir.Type, align: int) -> ir.Value:
    """Emit a load from an integer address."""
    value = b.load(pointer(b, where, kind))
    value.align = align
    return value


def store(b: ir.IRBuilder, value: ir.Value, where: ir.Value, align: int) -> None:
    """Emit a store to an integer address."""
    b.store(value, pointer(b, where, value.type)).align = align


def splat(b: ir.IRBuilder, scalar: ir.Value, lanes: int = LANES) -> ir.Value:
    """Emit a broadcast of one scalar to all lanes."""
    kind = ir.VectorType(scalar.type, lanes)
    undefined = ir.Constant(kind, ir.Undefined)
    first = b.insert_element(undefined, scalar, ir.Constant(WORD, 0))
    return b.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(WORD, lanes), [0] * lanes))


def constant(kind: ir.VectorType, value: float) -> ir.Constant:
    """A vector constant with the same value in each lane."""
    return ir.Constant(kind, [ir.Constant(kind.element, value)] * kind.count)


def call(b: ir.IRBuilder, name: str, result: ir.Type, *values: ir.Value) -> ir.Value:
    """Emit a call of an LLVM intrinsic or an external C function."""
    kind = ir.FunctionType(result, [v.type for v in values])
    return b.call(cgutils.get_or_insert_function(b.module, kind, name), values)


def emit_fma(b: ir.IRBuilder, x: ir.Value, y: ir.Value, z: ir.Value) -> ir.Value:
    """x * y + z in each lane; fused where the target can."""
    if not target().fma:
        return b.fadd(b.fmul(x, y), z)
    suffix = "v16f32" if isinstance(x.type, ir.VectorType) else "f32"
    return call(b, f"llvm.fma.{suffix}", x.type, x, y, z)


def shuffle(b: ir.IRBuilder, x: ir.Value, y: ir.Value, lanes: list[int]) -> ir.Value:
    """Emit a shuffle of two vectors by constant lane numbers."""
    return b.shuffle_vector(x, y, ir.Constant(ir.VectorType(WORD, len(lanes)), lanes))


def emit_opaque(b: ir.IRBuilder, number: ir.Value) -> ir.Value:
    """The same number, unrecognized by the compiler: what was loaded from an address made with the other one is loaded
    again, rather than kept on the stack until here."""
    return b.asm(ir.FunctionType(number.type, [number.type]), "", "=r,0", [number], side_effect=True)


def word_at(b, base, index):
    """The address of word ``index`` of a record."""
    return b.add(base, b.shl(index, ir.Constant(LONG, 3)))


def emit_prefetch(b, where, locality=3):
    """Ask for the cache line at an address, to the first level of cache (``locality`` 3) or only to the second (2);
    harmless past the end of memory."""
    kind = ir.FunctionType(ir.VoidType(), [BYTE.as_pointer(), WORD, WORD, WORD])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.prefetch.p0")
    b.call(function, [pointer(b, where, BYTE), *(ir.Constant(WORD, v) for v in (0, locality, 1))])


def _lane_mask(b, n):
    index = ir.Constant(ir.VectorType(LONG, 16), list(range(16)))
    return b.icmp_signed("<", index, splat(b, n))


def emit_load_part(b, where, n):
    """Emit a load of the first ``n`` float32; other lanes are 0 and are not read."""
    kind = ir.FunctionType(V_F32, [V_F32.as_pointer(), WORD, ir.VectorType(ir.IntType(1), 16), V_F32])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.masked.load.v16f32.p0")
    operands = [pointer(b, where, V_F32), ir.Constant(WORD, 4), _lane_mask(b, n), constant(V_F32, 0.0)]
    return b.call(function, operands)


def emit_store_part(b, where, value, n):
    """Emit a store of the first ``n`` lanes."""
    kind = ir.FunctionType(ir.VoidType(), [V_F32, V_F32.as_pointer(), WORD, ir.VectorType(ir.IntType(1), 16)])
    function = cgutils.get_or_insert_function(b.module, kind, "llvm.masked.store.v16f32.p0")
    b.call(function, [value, pointer(b, where, V_F32), ir.Constant(WORD, 4), _lane_mask(b, n)])


def _operator(symbol, kind, emit):
    @infer_global(symbol)
    class _Template(ConcreteTemplate):
        cases = [signature(kind, kind, kind)]

    @lower_builtin(symbol, kind, kind)
    def _lower(context, builder, sig, args):
        return emit(builder, *args)


for _symbol, _emit in {
    operator.add: lambda b, x, y: b.fadd(x, y),
    operator.sub: lambda b, x, y: b.fsub(x, y),
    operator.mul: lambda b, x, y: b.fmul(x, y),
    operator.truediv: lambda b, x, y: b.fdiv(x, y),
}.items():
    _operator(_symbol, f32x16, _emit)
for _kind in (i32x16, u8x64):
    for _symbol, _emit in {
        operator.add: lambda b, x, y: b.add(x, y),
        operator.sub: lambda b, x, y: b.sub(x, y),
        operator.mul: lambda b, x, y: b.mul(x, y),
        operator.and_: lambda b, x, y: b.and_(x, y),
        operator.or_: lambda b, x, y: b.or_(x, y),
        operator.xor: lambda b, x, y: b.xor(x, y),
        operator.lshift: lambda b, x, y: b.shl(x, y),
        operator.rshift: lambda b, x, y: b.lshr(x, y),
    }.items():
        _operator(_symbol, _kind, _emit)
