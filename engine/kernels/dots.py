"""Dot products of unsigned weight codes and signed activations, as the target's byte multiply-adds do them best.

Everything is integer and exact, so that all ways give the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from llvmlite import ir

from engine.kernels.cpu import target
from engine.kernels.emit import BYTE, HALF, LONG, V_I32, WORD, call, constant, emit_opaque, load, shuffle, splat

Codes = Callable[[int, int, int], ir.Value]
"""``codes(v, start, count)`` emits bytes [start, start + count) of the 64 codes of vector v."""

_LARGEST_ACTIVATION = 127
_LARGEST_SUM = (1 << 15) - 1
_BYTES = {
    64: "llvm.x86.avx512.pmaddubs.w.512",
    32: "llvm.x86.avx2.pmadd.ub.sw",
    16: "llvm.x86.ssse3.pmadd.ub.sw.128",
}
_PAIRS = {64: "llvm.x86.avx512.pmaddw.d.512", 32: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.sse2.pmadd.wd"}


def emit_dot_rows(
    b: ir.IRBuilder, dots: ir.Value, codes: Codes, vectors: range, rows: ir.Value, offset: ir.Value, largest: int
) -> ir.Value:
    """dots[c] += Σ over ``vectors`` of codes * activations, for every column: lane r gets the products of bytes 4r …
    4r+3 of each vector, none above ``largest``, with the four int8 at ``rows[c] + offset + 4 * v``."""
    size, together, multiply = _way(largest)
    parts: list[list[ir.Value]] = [[] for _ in range(dots.type.count)]
    for first in range(0, 64, size * together):
        starts = range(first, first + size * together, size)
        sums = [
            [_slice(b, b.extract_value(dots, column), range(start // 4, (start + size) // 4)) for start in starts]
            for column in range(dots.type.count)
        ]
        offset = emit_opaque(b, offset) if first else offset
        activations = partial(_four_activations, b, rows, offset)
        multiply(
            b, sums, lambda v, starts=starts: [codes(v, start, size) for start in starts], vectors, activations, largest
        )
        for column, done in enumerate(sums):
            parts[column] += done
    for column, done in enumerate(parts):
        dots = b.insert_value(dots, _joined(b, done), column)
    return dots


def _way(largest: int) -> tuple[int, int, Callable[..., None]]:
    """Bytes of a register, how many registers of codes are multiplied together, and what adds their products to sums.

    Two registers together share the loads of activations; but with two digits for each code there would be too many
    sums for the registers, and all would go over memory.
    """
    cpu = target()
    if cpu.vnni512 or cpu.vnni256:
        return (64, 1, _by_words) if cpu.vnni512 else (32, 2, _by_words)
    if cpu.avx2:
        return (64, 1, _by_pairs) if cpu.avx512 else (32, 2 if _sums_at_once(largest) else 1, _by_pairs)
    return (16, 1, _by_pairs) if cpu.ssse3 else (64, 1, _plainly)


def _four_activations(b: ir.IRBuilder, rows: ir.Value, offset: ir.Value, v: int, column: int) -> ir.Value:
    where = b.add(b.extract_value(rows, column), offset)
    return load(b, b.add(where, ir.Constant(LONG, 4 * v)) if v else where, WORD, 4)


def _slice(b: ir.IRBuilder, vector: ir.Value, lanes: range) -> ir.Value:
    return vector if len(lanes) == vector.type.count else shuffle(b, vector, vector, list(lanes))


def _joined(b: ir.IRBuilder, parts: list[ir.Value]) -> ir.Value:
    while len(parts) > 1:
        lanes = list(range(2 * parts[0].type.count))
        parts = [shuffle(b, x, y, lanes) for x, y in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _by_words(b: ir.IRBuilder, sums: Any, codes: Any, vectors: range, activations: Any, largest: int) -> None:
    """With an instruction that adds four products to 32 bits."""
    lanes = sums[0][0].type.count
    name = f"llvm.x86.avx512.vpdpbusd.{32 * lanes}"
    for v in vectors:
        weights = codes(v)
        for column, own in enumerate(sums):
            word = splat(b, activations(v, column), lanes)
            for part, total in enumerate(own):
                own[part] = call(b, name, total.type, total, b.bitcast(weights[part], total.type), word)


def _sums_at_once(largest: int) -> int:
    """How many sums of two products may be added in 16 bits; 0: not even one."""
    return _LARGEST_SUM // (2 * largest * _LARGEST_ACTIVATION)


def _by_pairs(b: ir.IRBuilder, sums: Any, codes: Any, vectors: range, activations: Any, largest: int) -> None:
    """With one that adds two products to 16 bits and saturates: as many such sums as 16 bits hold are added before they
    are widened. Codes too large for even one are multiplied by digits of four bits."""
    at_once = _sums_at_once(largest)
    digits = (0,) if at_once else (0, 4)
    at_once = at_once or _sums_at_once(15)
    for first in range(vectors.start, vectors.stop, at_once):
        chunk = range(first, min(first + at_once, vectors.stop))
        pairs = _pair_sums(b, sums, codes, chunk, activations, digits)
        for column, own in enumerate(sums):
            for part, total in enumerate(own):
                for digit, halves in zip(digits, pairs[column][part], strict=True):
                    ones = constant(halves.type, 1 << digit)
                    total = b.add(total, call(b, _PAIRS[2 * ones.type.count], total.type, halves, ones))
                own[part] = total


def _pair_sums(b: ir.IRBuilder, sums: Any, codes: Any, vectors: range, activations: Any, digits: Any) -> Any:
    """Sums of pairs in 16 bits: [column][part][digit]."""
    found: list[list[list[Any]]] = [[[None] * len(digits) for _ in own] for own in sums]
    for v in vectors:
        weights = [_digits(b, part, digits) for part in codes(v)]
        size = weights[0][0].type.count
        for column, own in enumerate(found):
            signed = b.bitcast(splat(b, activations(v, column), size // 4), ir.VectorType(BYTE, size))
            for part, by_digit in enumerate(own):
                for place, before in enumerate(by_digit):
                    pairs = call(b, _BYTES[size], ir.VectorType(HALF, size // 2), weights[part][place], signed)
                    by_digit[place] = pairs if before is None else _pinned(b, b.add(before, pairs))
    return found


def _pinned(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """The same vector; the compiler may not regroup the sum that it is part of, for want of registers."""
    place = "v" if target().avx512 else "x"
    return b.asm(ir.FunctionType(value.type, [value.type]), "", f"={place},0", [value], side_effect=True)


def _digits(b: ir.IRBuilder, codes: ir.Value, digits: tuple[int, ...]) -> list[ir.Value]:
    if len(digits) == 1:
        return [codes]
    halves = ir.VectorType(HALF, codes.type.count // 2)
    mask = constant(codes.type, 15)
    high = b.bitcast(b.lshr(b.bitcast(codes, halves), constant(halves, 4)), codes.type)
    return [b.and_(codes, mask), b.and_(high, mask)]


def _plainly(b: ir.IRBuilder, sums: Any, codes: Any, vectors: range, activations: Any, largest: int) -> None:
    """With nothing but 32-bit products."""
    mask = constant(V_I32, 0xFF)
    for v in vectors:
        words = b.bitcast(codes(v)[0], V_I32)
        unsigned = [b.and_(b.lshr(words, constant(V_I32, 8 * k)), mask) for k in range(4)]
        for column, own in enumerate(sums):
            word = activations(v, column)
            for k in range(4):
                signed = b.ashr(b.shl(word, ir.Constant(WORD, 24 - 8 * k)), ir.Constant(WORD, 24))
                own[0] = b.add(own[0], b.mul(unsigned[k], splat(b, signed)))
