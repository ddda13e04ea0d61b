"""Matrix tiles for kernels: registers of 16 rows of 64 bytes, and products of bfloat16 pairs between them.

Two units have the same operations and differ in nothing that a kernel sees: AMX, and an emulation for machines without
it that keeps its tiles in memory. ``state`` is the address of ``STATE_BYTES`` of the calling thread's scratch. Numbers
of tiles, 0 … 7, are compile-time constants; a tile in memory is 1 KiB without gaps.

``dot(state, d, x, y)`` adds x y to tile d, float32[16, 16], where x holds bfloat16[16 rows, 32] and y
bfloat16[16 pairs, 16 columns, 2]. As the instruction is defined, products of the even and of the odd places of the 16
pairs are summed apart, in ascending order and with fused multiply-adds; then both sums are added, and the total to d.
(It also takes subnormal numbers for zero, which the emulation does not.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.extending import intrinsic

from engine.kernels.cpu import TileUnit
from engine.kernels.emit import BYTE, LONG, V_U8, address, call, pointer, primitive, store
from engine.kernels.kernel import helper
from engine.kernels.simd import bits_f, fma, load_f, load_i, load_u32, splat_f, splat_i, store_f

TILE_BYTES, TILE_ROWS = 1024, 16
_ROW_BYTES, _TILES, _REGISTERS = 64, 8, 64
STATE_BYTES = _REGISTERS + _TILES * TILE_BYTES


@dataclass(frozen=True, slots=True)
class Unit:
    """The operations: ``start(state)``, ``zero(state, t)``, ``load(state, t, where)``, ``store(state, t, where)``,
    ``dot(state, d, x, y)``, ``finish(state)``. Tiles hold nothing before ``start`` and after ``finish``."""

    start: Any
    zero: Any
    load: Any
    store: Any
    dot: Any
    finish: Any


# -- AMX --------------------------------------------------------------------------------------------------------------

_NOTHING = ir.VoidType()


def _configuration() -> list[int]:
    """Palette 1; all eight tiles have 16 rows of 64 bytes."""
    record = [0] * 64
    record[0] = 1
    for tile in range(_TILES):
        record[16 + 2 * tile] = _ROW_BYTES
        record[48 + tile] = TILE_ROWS
    return record


@primitive(types.void, address)
def _amx_start(b, state):
    """Give the tiles their shape."""
    store(b, ir.Constant(V_U8, _configuration()), state, 64)
    call(b, "llvm.x86.ldtilecfg", _NOTHING, pointer(b, state, BYTE))


@primitive(types.void, address)
def _amx_finish(b, state):
    """Back to the initial state, so that the system has no tiles to save."""
    call(b, "llvm.x86.tilerelease", _NOTHING)


def _typed(numbers: tuple[Any, ...], rest: tuple[Any, ...], emit: Callable[..., None]) -> Any:
    """Signature and code of an operation on numbered tiles: ``emit(builder, tile numbers, other values)``."""
    if not all(isinstance(number, types.IntegerLiteral) for number in numbers):
        return None
    constants = [ir.Constant(BYTE, number.literal_value) for number in numbers]

    def generate(context, b, sig, values):
        emit(b, constants, values[1 + len(constants) :])
        return context.get_dummy_value()

    return types.void(types.int64, *numbers, *rest), generate


def _move(name: str) -> Callable[..., None]:
    """A tile from memory or to memory."""

    def emit(b, tiles, values):
        call(b, name, _NOTHING, *tiles, pointer(b, values[0], BYTE), ir.Constant(LONG, _ROW_BYTES))

    return emit


@intrinsic(prefer_literal=True)
def _amx_zero(context, state, t):
    return _typed((t,), (), lambda b, tiles, _: call(b, "llvm.x86.tilezero", _NOTHING, *tiles))


@intrinsic(prefer_literal=True)
def _amx_load(context, state, t, where):
    return _typed((t,), (types.int64,), _move("llvm.x86.tileloadd64"))


@intrinsic(prefer_literal=True)
def _amx_store(context, state, t, where):
    return _typed((t,), (types.int64,), _move("llvm.x86.tilestored64"))


@intrinsic(prefer_literal=True)
def _amx_dot(context, state, d, x, y):
    return _typed((d, x, y), (), lambda b, tiles, _: call(b, "llvm.x86.tdpbf16ps", _NOTHING, *tiles))


# -- the emulation ----------------------------------------------------------------------------------------------------


@helper
def _register(state, t):
    """Where a tile is."""
    return state + _REGISTERS + TILE_BYTES * t


@helper
def _nothing(state):
    """Tiles in memory need no setting up."""


@helper
def _copy(source, target):
    """A tile from one address to another."""
    for row in range(TILE_ROWS):
        store_f(target + _ROW_BYTES * row, load_f(source + _ROW_BYTES * row))


@helper
def _emulated_zero(state, t):
    for row in range(TILE_ROWS):
        store_f(_register(state, t) + _ROW_BYTES * row, splat_f(0.0))


@helper
def _emulated_load(state, t, where):
    _copy(where, _register(state, t))


@helper
def _emulated_store(state, t, where):
    _copy(_register(state, t), where)


@helper
def _emulated_dot(state, d, x, y):
    for row in range(TILE_ROWS):
        pairs = _register(state, x) + _ROW_BYTES * row
        total = _register(state, d) + _ROW_BYTES * row
        even = splat_f(0.0)
        odd = splat_f(0.0)
        for pair in range(TILE_ROWS):
            ours = load_u32(pairs + 4 * pair)
            theirs = load_i(_register(state, y) + _ROW_BYTES * pair)
            even = fma(bits_f(splat_i(ours << 16)), bits_f(theirs << splat_i(16)), even)
            odd = fma(bits_f(splat_i(ours & 0xFFFF0000)), bits_f(theirs & splat_i(0xFFFF0000)), odd)
        store_f(total, load_f(total) + (even + odd))


UNITS: dict[TileUnit, Unit] = {
    "amx": Unit(_amx_start, _amx_zero, _amx_load, _amx_store, _amx_dot, _amx_finish),
    "emulated": Unit(_nothing, _emulated_zero, _emulated_load, _emulated_store, _emulated_dot, _nothing),
}
