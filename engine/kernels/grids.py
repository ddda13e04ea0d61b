"""Grids of vectors: ``m`` columns times ``n`` vectors, so that what is loaded once serves several multiply-adds.

As in ``columns``, ``m`` and ``n`` are compile-time constants; entry c * n + v belongs to column c and vector v. Each
entry sees the same operations in the same order as it would alone.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.core.extending import intrinsic

from engine.kernels.emit import FLOAT, LONG, V_F32, emit_fma, emit_prefetch, f32x16, load, splat, store
from engine.kernels.half import emit_load_half


def _literals(*values):
    return all(isinstance(value, types.IntegerLiteral) for value in values)


def _at(b, base, stride, index):
    return base if index == 0 else b.add(base, b.mul(stride, ir.Constant(LONG, index)))


@intrinsic(prefer_literal=True)
def zero_grid(context, m, n):
    """``m`` times ``n`` vectors of float zeros."""
    if not _literals(m, n):
        return None
    count = m.literal_value * n.literal_value
    zeros = ir.Constant(ir.ArrayType(V_F32, count), None)
    return types.UniTuple(f32x16, count)(m, n), lambda *_: zeros


@intrinsic(prefer_literal=True)
def addresses(context, n, base):
    """``n`` addresses from the int64 words at ``base``."""
    if not _literals(n):
        return None
    count = n.literal_value

    def generate(context, b, sig, values):
        block = ir.Constant(ir.ArrayType(LONG, count), ir.Undefined)
        for v in range(count):
            block = b.insert_value(block, load(b, b.add(values[1], ir.Constant(LONG, 8 * v)), LONG, 8), v)
        return block

    return types.UniTuple(types.int64, count)(n, types.int64), generate


@intrinsic(prefer_literal=True)
def load_each(context, element, where, offset):
    """16 values at each address of ``where`` + ``offset``; ``element`` (a constant) is 2 for float16, 4 for float32."""
    if not _literals(element):
        return None
    half = element.literal_value == 2

    def generate(context, b, sig, values):
        block = ir.Constant(ir.ArrayType(V_F32, where.count), ir.Undefined)
        for v in range(where.count):
            at = b.add(b.extract_value(values[1], v), values[2])
            block = b.insert_value(block, emit_load_half(b, at) if half else load(b, at, V_F32, 4), v)
        return block

    return types.UniTuple(f32x16, where.count)(element, where, types.int64), generate


@intrinsic
def fetch_each(context, where, offset):
    """Ask for what lies at each address of ``where`` + ``offset``."""

    def generate(context, b, sig, values):
        for v in range(where.count):
            emit_prefetch(b, b.add(b.extract_value(values[0], v), values[1]))
        return context.get_dummy_value()

    return types.void(where, types.int64), generate


@intrinsic(prefer_literal=True)
def fetch_apart(context, n, base, stride):
    """Ask for what lies at ``n`` addresses, ``stride`` bytes apart from ``base`` on."""
    if not _literals(n):
        return None

    def generate(context, b, sig, values):
        for v in range(n.literal_value):
            emit_prefetch(b, _at(b, values[1], values[2], v))
        return context.get_dummy_value()

    return types.void(n, types.int64, types.int64), generate


@intrinsic(prefer_literal=True)
def load_row(context, element, n, base):
    """``n`` neighbouring vectors of 16 values at ``base``."""
    if not _literals(element, n):
        return None
    size, count = element.literal_value, n.literal_value

    def generate(context, b, sig, values):
        block = ir.Constant(ir.ArrayType(V_F32, count), ir.Undefined)
        for v in range(count):
            at = b.add(values[2], ir.Constant(LONG, 16 * size * v))
            block = b.insert_value(block, emit_load_half(b, at) if size == 2 else load(b, at, V_F32, 4), v)
        return block

    return types.UniTuple(f32x16, count)(element, n, types.int64), generate


@intrinsic
def fma_grid(context, acc, x, base, stride):
    """acc[c, v] += x[v] * float32 of column c, which lie ``stride`` bytes apart from ``base`` on."""

    def generate(context, b, sig, values):
        grid, vectors, first, step = values
        n = x.count
        for column in range(acc.count // n):
            factor = splat(b, load(b, _at(b, first, step, column), FLOAT, 4))
            for v in range(n):
                entry = column * n + v
                total = emit_fma(b, b.extract_value(vectors, v), factor, b.extract_value(grid, entry))
                grid = b.insert_value(grid, total, entry)
        return grid

    return acc(acc, x, types.int64, types.int64), generate


@intrinsic(prefer_literal=True)
def load_scaled_grid(context, m, n, base, stride, factors):
    """acc[c, v] = vector v at ``base`` + c * ``stride``, times the float32 in word c at ``factors``."""
    if not _literals(m, n):
        return None
    columns, count = m.literal_value, n.literal_value

    def generate(context, b, sig, values):
        grid = ir.Constant(ir.ArrayType(V_F32, columns * count), ir.Undefined)
        for column in range(columns):
            factor = splat(b, load(b, b.add(values[4], ir.Constant(LONG, 8 * column)), FLOAT, 4))
            row = _at(b, values[2], values[3], column)
            for v in range(count):
                vector = load(b, b.add(row, ir.Constant(LONG, 64 * v)), V_F32, 4)
                grid = b.insert_value(grid, b.fmul(vector, factor), column * count + v)
        return grid

    kind = types.UniTuple(f32x16, columns * count)
    return kind(m, n, types.int64, types.int64, types.int64), generate


@intrinsic(prefer_literal=True)
def store_grid(context, acc, n, base, stride):
    """Store vector v of column c at ``base`` + c * ``stride`` + 64 * v."""
    if not _literals(n):
        return None
    count = n.literal_value

    def generate(context, b, sig, values):
        for entry in range(acc.count):
            column, v = divmod(entry, count)
            at = b.add(_at(b, values[2], values[3], column), ir.Constant(LONG, 64 * v))
            store(b, b.extract_value(values[0], entry), at, 4)
        return context.get_dummy_value()

    return types.void(acc, n, types.int64, types.int64), generate
