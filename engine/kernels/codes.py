"""What the matmul kernels need of a packed format, as intrinsics: its codes, scales and minima.

``fmt`` is a compile-time constant, the format's index in ``formats.FORMATS``. ``codes`` points at a group's codes,
``scales`` at its scales, ``top`` at what 8 groups share (unused by formats without).
"""

from __future__ import annotations

from functools import partial

from llvmlite import ir
from numba.core import types
from numba.core.extending import intrinsic

from engine.kernels import formats
from engine.kernels.columns import each_row
from engine.kernels.cpu import target
from engine.kernels.dots import emit_dot_rows
from engine.kernels.emit import (
    BYTE,
    FLOAT,
    HALF,
    LONG,
    V_F32,
    V_I32,
    WORD,
    call,
    constant,
    emit_fma,
    emit_opaque,
    emit_prefetch,
    f32x16,
    load,
    shuffle,
    splat,
    store,
)
from engine.kernels.formats import S_FLOAT16_MIN, S_FLOAT_MIN, S_HALF_MIN, S_K, by_index
from engine.kernels.half import emit_load_half
from engine.kernels.layout import Q_NEGATIVE_HALVES, Q_SCALE, Q_SUM

_AHEAD, _FEW = 512, 4
_BYTES16 = ir.VectorType(BYTE, 16)


def _at(b, base, offset):
    return b.add(base, ir.Constant(LONG, offset)) if offset else base


def _field(b, plane, place, width, left):
    """``width`` bits of each byte from bit ``place`` on, moved to bit ``left``.

    There is no shift of bytes; a shift of 16-bit lanes carries bits across, which the mask removes.
    """
    halves = b.bitcast(plane, ir.VectorType(HALF, plane.type.count // 2))
    if left > place:
        halves = b.shl(halves, constant(halves.type, left - place))
    elif left < place:
        halves = b.lshr(halves, constant(halves.type, place - left))
    return b.and_(b.bitcast(halves, plane.type), constant(plane.type, ((1 << width) - 1) << left))


def _place(width, v):
    """Which 64-byte vector of a plane holds codes of vector ``v``, and from which bit on."""
    if width == 4:
        return v % 4, 4 * (v // 4)
    share = 8 // width
    return v // share, v % share * width


def emit_codes(b, fmt, codes, v, start=0, count=64):
    """Emit the 64 codes of vector ``v`` of a group, or ``count`` of them from ``start`` on, table looked up."""
    kind = ir.VectorType(BYTE, count)
    offset, left, value = start, 0, None
    for width in fmt.planes:
        which, place = _place(width, v)
        plane = load(b, _at(b, codes, offset + 64 * which), kind, 1)
        part = plane if width == 8 else _field(b, plane, place, width, left)
        value = part if value is None else b.or_(value, part)
        offset += 64 * width
        left += width
    return _look_up(b, value, fmt.table) if fmt.table else value


def _look_up(b, index, table):
    """table[index] + 128 for indices below 16."""
    entries = [(value + 128) & 0xFF for value in table]
    cpu, count = target(), index.type.count
    if cpu.avx512 and count == 64:
        return call(b, "llvm.x86.avx512.pshuf.b.512", index.type, ir.Constant(index.type, entries * 4), index)
    if cpu.avx2:
        name, lanes = "llvm.x86.avx2.pshuf.b", 32
    elif cpu.ssse3:
        name, lanes = "llvm.x86.ssse3.pshuf.b.128", 16
    else:
        return _select(b, index, entries)
    kind = ir.VectorType(BYTE, lanes)
    constants = ir.Constant(kind, entries * (lanes // 16))
    parts = [
        call(b, name, kind, constants, shuffle(b, index, index, list(range(k, k + lanes))))
        for k in range(0, count, lanes)
    ]
    while len(parts) > 1:
        size = 2 * parts[0].type.count
        parts = [shuffle(b, x, y, list(range(size))) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _select(b, index, entries):
    """The look-up where there is no byte shuffle: a tree of selects on the index's bits."""
    kind = index.type
    values = [constant(kind, entry) for entry in entries]
    for bit in range(4):
        chosen = b.icmp_unsigned("!=", b.and_(index, constant(kind, 1 << bit)), constant(kind, 0))
        values = [b.select(chosen, high, low) for low, high in zip(values[::2], values[1::2], strict=True)]
    return values[0]


def _literal(*values):
    return all(isinstance(value, types.IntegerLiteral) for value in values)


@intrinsic(prefer_literal=True)
def dot_codes(context, dots, fmt, first, last, codes, rows, offset):
    """dots[c] += Σ over vectors ``first`` … ``last`` - 1 (constants) of code * activation, for every column.

    Column c has its 32 int8 activations of the group at ``rows[c] + offset``.
    """
    if not _literal(fmt, first, last):
        return None
    kind = by_index(fmt.literal_value)

    def generate(context, b, sig, values):
        block, _, _, _, group, where, off = values
        vectors = range(first.literal_value, last.literal_value)
        return emit_dot_rows(b, block, partial(emit_codes, b, kind, group), vectors, where, off, kind.largest)

    return dots(dots, fmt, first, last, types.int64, rows, types.int64), generate


@intrinsic(prefer_literal=True)
def fetch_ahead(context, fmt, m, codes, block):
    """Ask for the weights that are needed soon, since the processor's own prefetching stops at every page.

    With few columns (``m``, a constant) a product waits for memory: what comes next is fetched. With more columns the
    block of weights is used several times before the next one, which meanwhile comes to the second level of cache.
    """
    if not _literal(fmt, m):
        return None
    kind = by_index(fmt.literal_value)

    def generate(context, b, sig, values):
        if kind.expanded:
            return context.get_dummy_value()
        few = m.literal_value <= _FEW
        ahead = ir.Constant(LONG, _AHEAD) if few else values[3]
        start = b.add(values[2], ahead)
        for offset in range(0, kind.group_bytes, 64):
            emit_prefetch(b, _at(b, start, offset), 3 if few else 2)
        return context.get_dummy_value()

    return types.void(fmt, m, types.int64, types.int64), generate


@intrinsic(prefer_literal=True)
def dot_high_codes(context, dots, fmt, first, last, codes, rows, offset):
    """As ``dot_codes`` for the high digits of activations with outliers: the sum counts 128 times."""
    if not _literal(fmt, first, last):
        return None
    kind = by_index(fmt.literal_value)

    def generate(context, b, sig, values):
        block, _, _, _, group, where, off = values
        vectors = range(first.literal_value, last.literal_value)
        codes_of = partial(emit_codes, b, kind, emit_opaque(b, group))
        high = emit_dot_rows(b, ir.Constant(block.type, None), codes_of, vectors, where, off, kind.largest)
        for column in range(dots.count):
            total = b.shl(b.extract_value(high, column), constant(V_I32, 7))
            block = b.insert_value(block, b.add(b.extract_value(block, column), total), column)
        return block

    return dots(dots, fmt, first, last, types.int64, rows, types.int64), generate


@intrinsic(prefer_literal=True)
def expand_group(context, fmt, codes, top, scales, out):
    """A group as its expanded format has it, to ``out``."""
    if not _literal(fmt):
        return None
    kind = by_index(fmt.literal_value)

    def generate(context, b, sig, values):
        _, group, shared, own, target = values
        for v in range(8):
            store(b, emit_codes(b, kind, group, v), _at(b, target, 64 * v), 64)
        halves = 2 if kind.halves else 1
        for half in range(halves):
            store(b, emit_scale(b, kind, half, shared, own), _at(b, target, 512 + 64 * half), 64)
            if kind.mins:
                store(b, emit_min(b, kind, half, shared, own), _at(b, target, 512 + 64 * (halves + half)), 64)
        return context.get_dummy_value()

    return types.void(fmt, *[types.int64] * 4), generate


def _widened(b, where, signed):
    part = load(b, where, _BYTES16, 1)
    return b.sitofp(b.sext(part, V_I32), V_F32) if signed else b.uitofp(b.zext(part, V_I32), V_F32)


def _power(b, where):
    """2**(e - 128) from biased exponents; the two smallest are subnormal."""
    e = b.zext(load(b, where, _BYTES16, 1), V_I32)
    small = b.shl(constant(V_I32, 0x200000), e)
    normal = b.shl(b.sub(e, constant(V_I32, 1)), constant(V_I32, 23))
    return b.bitcast(b.select(b.icmp_unsigned("<", e, constant(V_I32, 2)), small, normal), V_F32)


def _nibbles(b, where, high):
    part = b.zext(load(b, where, _BYTES16, 1), V_I32)
    part = b.lshr(part, constant(V_I32, 4)) if high else b.and_(part, constant(V_I32, 15))
    return b.sitofp(part, V_F32)


def emit_scale(b, kind, half, top, scales):
    """Emit the 16 rows' scales of a group (or of its half)."""
    match kind.scales:
        case formats.S_HALF | formats.S_HALF_MIN:
            return emit_load_half(b, scales)
        case formats.S_FLOAT | formats.S_FLOAT_MIN | formats.S_FLOAT16 | formats.S_FLOAT16_MIN:
            return load(b, _at(b, scales, 64 * half), V_F32, 64)
        case formats.S_E8:
            return _power(b, scales)
        case formats.S_K:
            return b.fmul(emit_load_half(b, top), _widened(b, scales, signed=False))
        case formats.S_K16:
            return b.fmul(emit_load_half(b, top), _widened(b, _at(b, scales, 16 * half), signed=True))
        case formats.S_K1:
            return b.fmul(emit_load_half(b, top), _widened(b, scales, signed=True))
    return b.fmul(emit_load_half(b, top), _nibbles(b, _at(b, scales, 16 * half), high=False))


def emit_min(b, kind, half, top, scales):
    """Emit the 16 rows' minima of a group (or of its half)."""
    if kind.scales in (S_FLOAT_MIN, S_FLOAT16_MIN):
        return load(b, _at(b, scales, kind.scale_bytes // 2 + 64 * half), V_F32, 64)
    if kind.scales == S_HALF_MIN:
        return emit_load_half(b, _at(b, scales, 32))
    lowest = b.fneg(emit_load_half(b, _at(b, top, 32)))
    if kind.scales == S_K:
        return b.fmul(lowest, _widened(b, _at(b, scales, 16), signed=False))
    return b.fmul(lowest, _nibbles(b, _at(b, scales, 16 * half), high=True))


@intrinsic(prefer_literal=True)
def group_scale(context, fmt, half, top, scales):
    """Scales of a group for 16 rows; ``half`` (a constant) chooses the half where each has its own."""
    if not _literal(fmt, half):
        return None
    kind = by_index(fmt.literal_value)

    def generate(context, b, sig, values):
        return emit_scale(b, kind, half.literal_value, values[2], values[3])

    return f32x16(fmt, half, types.int64, types.int64), generate


@intrinsic(prefer_literal=True)
def add_minima(context, acc, fmt, half, top, scales, rows, offset):
    """acc[c] += min * (scale * Σ activations) of column c's group, or half group; nothing if the format has no min."""
    if not _literal(fmt, half):
        return None
    kind = by_index(fmt.literal_value)

    def generate(context, b, sig, values):
        block, _, _, shared, own, where, off = values
        if not kind.mins:
            return block
        low = emit_min(b, kind, half.literal_value, shared, own)

        def add(total, at):
            return emit_fma(b, low, splat(b, _activation_sum(b, kind, half.literal_value, at)), total)

        return each_row(b, block, where, off, add)

    return acc(acc, fmt, half, types.int64, types.int64, rows, types.int64), generate


def _activation_sum(b, kind, half, at):
    """scale * Σ codes of a column's group, or of its half."""
    if not kind.halves:
        return load(b, _at(b, at, Q_SUM), FLOAT, 4)
    negative = load(b, _at(b, at, Q_NEGATIVE_HALVES + 4 * half), WORD, 4)
    return b.fmul(b.sitofp(b.neg(negative), FLOAT), load(b, _at(b, at, Q_SCALE), FLOAT, 4))


@intrinsic(prefer_literal=True)
def store_codes(context, fmt, out, low, high):
    """Cut a row's 32 codes of a group (two tuples of four words, each of four codes) into planes at ``out``."""
    if not _literal(fmt):
        return None
    kind = by_index(fmt.literal_value)

    def generate(context, b, sig, values):
        words = [b.trunc(b.extract_value(values[i], v), WORD) for i in (2, 3) for v in range(4)]
        offset, left = 0, 0
        for width in kind.planes:
            mask = ir.Constant(WORD, ((1 << width) - 1) * 0x01010101 << left)
            for which in range(width):
                total = ir.Constant(WORD, 0)
                for v in range(8):
                    vector, place = _place(width, v)
                    if vector == which:
                        total = b.or_(total, _moved(b, b.and_(words[v], mask), place - left))
                store(b, total, _at(b, values[1], offset + 64 * which), 4)
            offset += 64 * width
            left += width
        return context.get_dummy_value()

    return types.void(fmt, types.int64, low, high), generate


def _moved(b, word, left):
    if left >= 0:
        return b.shl(word, ir.Constant(WORD, left))
    return b.lshr(word, ir.Constant(WORD, -left))


@intrinsic(prefer_literal=True)
def read_group(context, fmt, codes, top, scales, row, factor, out):
    """(scale * code + min) * ``factor`` of one row's 32 columns of a group, as float32 at ``out``, rounded after each
    operation as the gguf package does."""
    if not _literal(fmt):
        return None
    kind = by_index(fmt.literal_value)
    four = ir.VectorType(FLOAT, 4)

    def generate(context, b, sig, values):
        _, group, shared, own, r, times, target = values
        lane = b.trunc(r, WORD)
        for v in range(8):
            half = v // 4 if kind.halves else 0
            word = b.extract_element(b.bitcast(emit_codes(b, kind, group, v), V_I32), lane)
            number = b.zext(b.bitcast(word, ir.VectorType(BYTE, 4)), ir.VectorType(WORD, 4))
            if kind.shift >= 0:
                number = b.sub(number, constant(number.type, 1 << kind.shift))
            scale = b.extract_element(emit_scale(b, kind, half, shared, own), lane)
            value = b.fmul(splat(b, scale, 4), b.sitofp(number, four))
            if kind.mins:
                low = b.extract_element(emit_min(b, kind, half, shared, own), lane)
                value = b.fadd(value, splat(b, low, 4))
            store(b, b.fmul(value, splat(b, times, 4)), _at(b, target, 16 * v), 4)
        return context.get_dummy_value()

    arguments = (types.int64, types.int64, types.int64, types.int64, types.float32, types.int64)
    return types.void(fmt, *arguments), generate
