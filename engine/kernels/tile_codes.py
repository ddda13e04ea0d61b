"""A group of packed weights as a tile of bfloat16, as an intrinsic (see ``codes`` for its arguments)."""

from __future__ import annotations

from llvmlite import ir
from numba.core import types
from numba.core.extending import intrinsic

from engine.kernels.codes import emit_codes, emit_min, emit_scale
from engine.kernels.emit import LONG, V_F32, V_I32, constant, shuffle
from engine.kernels.formats import Format, by_index
from engine.kernels.half import emit_store_bfloat

_VECTORS, _PAIR_BYTES = 8, 64
_LOW, _HIGH = ([first + i // 2 + 16 * (i % 2) for i in range(16)] for first in (0, 8))


@intrinsic(prefer_literal=True)
def expand_to_tile(context, fmt, codes, top, scales, out):
    """A group, 16 outputs by 32 columns, to ``out`` as bfloat16[16 pairs of columns][16 outputs][2]. Weights are
    rounded as in ``read_group``, and then to bfloat16."""
    if not isinstance(fmt, types.IntegerLiteral):
        return None
    kind = by_index(fmt.literal_value)

    def generate(context, b, sig, values):
        _, group, shared, own, target = values
        parts = range(2 if kind.halves else 1)
        scales_of = [emit_scale(b, kind, half, shared, own) for half in parts]
        minima_of = [emit_min(b, kind, half, shared, own) if kind.mins else None for half in parts]
        for v in range(_VECTORS):
            half = v * len(parts) // _VECTORS
            words = b.bitcast(emit_codes(b, kind, group, v), V_I32)
            columns = [_weights(b, kind, words, k, scales_of[half], minima_of[half]) for k in range(4)]
            for pair in range(2):
                even, odd = columns[2 * pair : 2 * pair + 2]
                at = b.add(target, ir.Constant(LONG, (2 * v + pair) * _PAIR_BYTES))
                emit_store_bfloat(b, at, shuffle(b, even, odd, _LOW))
                emit_store_bfloat(b, b.add(at, ir.Constant(LONG, 32)), shuffle(b, even, odd, _HIGH))
        return context.get_dummy_value()

    return types.void(fmt, *[types.int64] * 4), generate


def _weights(b: ir.IRBuilder, kind: Format, words: ir.Value, k: int, scale: ir.Value, low: ir.Value | None) -> ir.Value:
    """scale * code + min of column ``k`` of the four that a vector has."""
    codes = b.and_(b.lshr(words, constant(V_I32, 8 * k)), constant(V_I32, 0xFF))
    if kind.shift >= 0:
        codes = b.sub(codes, constant(V_I32, 1 << kind.shift))
    value = b.fmul(scale, b.sitofp(codes, V_F32))
    return value if low is None else b.fadd(value, low)
