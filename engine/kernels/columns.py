"""Blocks of columns: a tuple of vectors, one for each activation row that a block of weights is multiplied with.

``m`` is a compile-time constant. Each operation is emitted once per column, so that a kernel for any number of columns
is written as for one. The columns of an operand lie ``stride`` bytes apart.
"""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.core.extending import intrinsic

from engine.kernels.emit import (
    FLOAT,
    LONG,
    V_F32,
    V_I32,
    WORD,
    address,
    constant,
    emit_fma,
    emit_load_part,
    emit_store_part,
    f32x16,
    i32x16,
    load,
    splat,
    store,
)


def _count(m):
    return m.literal_value if isinstance(m, types.IntegerLiteral) else None


def _offset(b, base, stride, column):
    return base if column == 0 else b.add(base, b.mul(stride, ir.Constant(LONG, column)))


def _each(b, columns, block, base, stride, emit):
    """block[c] = emit(block[c], address of column c) for columns ``stride`` bytes apart."""
    for column in range(columns):
        where = _offset(b, base, stride, column)
        block = b.insert_value(block, emit(b.extract_value(block, column), where), column)
    return block


def each_row(b, block, rows, offset, emit):
    """block[c] = emit(block[c], rows[c] + offset) for every column."""
    for column in range(block.type.count):
        where = b.add(b.extract_value(rows, column), offset)
        block = b.insert_value(block, emit(b.extract_value(block, column), where), column)
    return block


@intrinsic(prefer_literal=True)
def zero_columns(context, m):
    """``m`` vectors of float zeros."""
    count = _count(m)
    if count is None:
        return None
    zeros = ir.Constant(ir.ArrayType(V_F32, count), None)
    return types.UniTuple(f32x16, count)(m), lambda *_: zeros


@intrinsic(prefer_literal=True)
def offset_dots(context, m, rows, offset, shift):
    """Start ``m`` dot products at (int32 at ``rows[c] + offset``) << ``shift``: the share of the codes' offset. A
    negative shift stands for no offset; both it and ``m`` are constants."""
    count, left = _count(m), _count(shift)
    if count is None or left is None:
        return None
    result = types.UniTuple(i32x16, count)
    if left < 0:
        return result(m, rows, types.int64, shift), lambda *_: ir.Constant(ir.ArrayType(V_I32, count), None)

    def generate(context, b, sig, values):
        empty = ir.Constant(ir.ArrayType(V_I32, count), ir.Undefined)
        amount = constant(V_I32, left)
        return each_row(b, empty, values[1], values[2], lambda _, at: b.shl(splat(b, load(b, at, WORD, 4)), amount))

    return result(m, rows, types.int64, shift), generate


@intrinsic
def any_row(context, rows, offset):
    """The int32 at ``rows[c] + offset`` of all columns, combined by or."""

    def generate(context, b, sig, values):
        total = ir.Constant(WORD, 0)
        for column in range(rows.count):
            where = b.add(b.extract_value(values[0], column), values[1])
            total = b.or_(total, load(b, where, WORD, 4))
        return b.zext(total, LONG)

    return types.int64(rows, types.int64), generate


@intrinsic
def scale_dots(context, acc, dots, scale, rows, offset):
    """acc[c] += dots[c] * (scale * float32 at ``rows[c] + offset``)."""

    def generate(context, b, sig, values):
        block, products, factor, where, off = values
        for column in range(acc.count):
            at = b.add(b.extract_value(where, column), off)
            own = b.fmul(factor, splat(b, load(b, at, FLOAT, 4)))
            real = b.sitofp(b.extract_value(products, column), V_F32)
            total = emit_fma(b, real, own, b.extract_value(block, column))
            block = b.insert_value(block, total, column)
        return block

    return acc(acc, dots, f32x16, rows, types.int64), generate


@intrinsic
def fma_columns(context, acc, x, base, stride):
    """acc[c] += x * float32 at each column."""

    def generate(context, b, sig, values):
        block, vector, first, step = values
        return _each(
            b,
            acc.count,
            block,
            first,
            step,
            lambda total, at: emit_fma(b, vector, splat(b, load(b, at, FLOAT, 4)), total),
        )

    return acc(acc, f32x16, types.int64, types.int64), generate


@intrinsic
def scale_columns(context, acc, base, stride):
    """acc[c] * float32 at each column."""

    def generate(context, b, sig, values):
        block, first, step = values
        return _each(b, acc.count, block, first, step, lambda value, at: b.fmul(value, splat(b, load(b, at, FLOAT, 4))))

    return acc(acc, types.int64, types.int64), generate


@intrinsic
def fma_rows(context, acc, x, rows, offset):
    """acc[c] += x * float32 at ``rows[c] + offset``."""

    def generate(context, b, sig, values):
        block, vector, where, off = values
        return each_row(
            b, block, where, off, lambda total, at: emit_fma(b, vector, splat(b, load(b, at, FLOAT, 4)), total)
        )

    return acc(acc, f32x16, rows, types.int64), generate


@intrinsic
def map_columns(context, acc, factor, shift):
    """(acc[c] + shift) * factor."""

    def generate(context, b, sig, values):
        block, times, plus = values
        for column in range(acc.count):
            value = b.fmul(b.fadd(b.extract_value(block, column), plus), times)
            block = b.insert_value(block, value, column)
        return block

    return acc(acc, f32x16, f32x16), generate


@intrinsic(prefer_literal=True)
def load_columns(context, m, base, stride):
    """16 float32 at each column."""
    count = _count(m)
    if count is None:
        return None

    def generate(context, b, sig, values):
        empty = ir.Constant(ir.ArrayType(V_F32, count), ir.Undefined)
        return _each(b, count, empty, values[1], values[2], lambda _, at: load(b, at, V_F32, 4))

    return types.UniTuple(f32x16, count)(m, types.int64, types.int64), generate


@intrinsic
def store_columns(context, acc, base, stride):
    """Store 16 float32 at each column."""

    def generate(context, b, sig, values):
        for column in range(acc.count):
            store(b, b.extract_value(values[0], column), _offset(b, values[1], values[2], column), 4)
        return context.get_dummy_value()

    return types.void(acc, types.int64, types.int64), generate


@intrinsic
def load_rows(context, acc, table):
    """As many row addresses as ``acc`` has columns, from a table of int64."""
    result = types.UniTuple(address, acc.count)

    def generate(context, b, sig, values):
        block = ir.Constant(ir.ArrayType(LONG, acc.count), ir.Undefined)
        step = ir.Constant(LONG, 8)
        return _each(b, acc.count, block, values[1], step, lambda _, at: load(b, at, LONG, 8))

    return result(acc, types.int64), generate


@intrinsic
def add_from_rows(context, acc, rows, offset):
    """acc[c] += 16 float32 at ``rows[c] + offset``."""

    def generate(context, b, sig, values):
        return each_row(b, *values, lambda value, at: b.fadd(load(b, at, V_F32, 4), value))

    return acc(acc, rows, types.int64), generate


@intrinsic
def store_to_rows(context, acc, rows, offset):
    """Store acc[c] at ``rows[c] + offset``."""

    def generate(context, b, sig, values):
        for column in range(acc.count):
            where = b.add(b.extract_value(values[1], column), values[2])
            store(b, b.extract_value(values[0], column), where, 4)
        return context.get_dummy_value()

    return types.void(acc, rows, types.int64), generate


@intrinsic
def finish_part_rows(context, acc, rows, offset, lanes, add):
    """As ``add_from_rows`` (if ``add`` is not 0) and ``store_to_rows`` for the first ``lanes`` lanes only."""

    def generate(context, b, sig, values):
        block, where, off, count, old = values
        keep = b.icmp_signed("!=", old, ir.Constant(LONG, 0))
        for column in range(acc.count):
            at = b.add(b.extract_value(where, column), off)
            before = emit_load_part(b, at, count)
            value = b.extract_value(block, column)
            value = b.select(keep, b.fadd(before, value), value)
            emit_store_part(b, at, value, count)
        return context.get_dummy_value()

    return types.void(acc, rows, types.int64, types.int64, types.int64), generate
