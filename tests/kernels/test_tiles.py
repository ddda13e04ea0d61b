"""Products on matrix tiles: with the emulated unit, which runs on every machine, and with AMX where that is granted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from engine.kernels import layout, tile_check, tile_matmul
from engine.kernels import quantize as quantizing
from engine.kernels.cpu import TILES_VARIABLE, TileUnit, describe, tile_unit
from engine.kernels.formats import BY_TYPE, GROUP
from engine.kernels.kernel import Kernel
from engine.kernels.packing import Packed, aligned, pack, unpack
from engine.kernels.tiles import TILE_BYTES
from engine.kernels.warm import needed
from tests.kernels.programs import random_tensor
from tests.kernels.twins import Rows, arguments, call, to_bfloat

UNITS: tuple[TileUnit, ...] = ("emulated", "amx") if tile_unit() == "amx" else ("emulated",)


@pytest.fixture(params=UNITS)
def unit(request: pytest.FixtureRequest) -> TileUnit:
    """What multiplies."""
    return request.param


def converted(x: np.ndarray) -> np.ndarray:
    """Rows as the kernel makes tiles of them, uint16[tiles, groups, 16, 32]."""
    n, width = x.shape
    rows, memory = Rows(x), aligned(tile_matmul.rows_bytes(width, n))
    words = {quantizing.X_ROWS: rows.at, quantizing.X_OUT_ROWS: memory.ctypes.data, quantizing.X_GROUPS: width // GROUP}
    call(tile_matmul.tiles_convert, arguments(words), n)
    return memory.view(np.uint16).reshape(-1, width // GROUP, 16, 32)


def multiply(
    packed: Packed,
    x: np.ndarray,
    unit: TileUnit,
    *,
    bias: np.ndarray | None = None,
    scale: float = 1.0,
    add_to: np.ndarray | None = None,
    span: int = 2,
    cut: int = 0,
) -> Rows:
    """W x for float32[n, cols] on tiles, ``span`` blocks expanded at a time, in two calls cut at pair ``cut``."""
    tiles = converted(x)
    out = Rows(np.zeros((len(x), packed.rows), np.float32) if add_to is None else add_to)
    padded = np.zeros(16 * packed.blocks, np.float32)
    if bias is not None:
        padded[: packed.rows] = bias
    words = {
        layout.M_WEIGHTS: packed.address,
        layout.M_BLOCK_BYTES: packed.block_bytes,
        layout.M_GROUPS: packed.groups,
        layout.M_X: tiles.ctypes.data,
        layout.M_OUT: out.at,
        layout.M_OUTPUTS: packed.rows,
        layout.M_BIAS: padded.ctypes.data if bias is not None else 0,
        layout.M_ADD: int(add_to is not None),
        layout.M_ROWS: layout.C_ROWS,
        layout.M_EXPAND: tile_matmul.EXPANDERS[packed.format.name].address,
        layout.M_SPAN: span,
    }
    context, args = np.zeros(layout.CONTEXT_WORDS, np.int64), arguments(words, {layout.M_SCALE: scale})
    context[layout.C_ROWS] = len(x)
    scratch = aligned(tile_matmul.scratch_bytes(packed.groups))
    for begin, end in ((0, cut), (cut, -(-packed.blocks // 2))):
        tile_matmul.PRODUCTS[unit].call(context.ctypes.data, args.ctypes.data, begin, end, scratch.ctypes.data)
    return out


def twin(x: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """x Wᵀ as the instruction is defined, bit for bit: products of bfloat16 are exact in float32, so adding one is a
    fused multiply-add."""
    x, weights = to_bfloat(x), to_bfloat(weights)
    total = np.zeros((len(x), len(weights)), np.float32)
    for start in range(0, x.shape[1], 32):
        sums = [np.zeros_like(total), np.zeros_like(total)]
        for k in range(start, start + 32):
            sums[k % 2] += x[:, k, None] * weights[None, :, k]
        total += sums[0] + sums[1]
    return total


def inputs(n: int, cols: int) -> np.ndarray:
    x = np.random.default_rng(n).standard_normal((n, cols)).astype(np.float32)
    x[:, 40] *= 60
    return x


@pytest.mark.parametrize("kind", BY_TYPE, ids=lambda kind: kind.name)
def test_products_have_the_bits_of_the_twin(kind: T, unit: TileUnit) -> None:
    packed = pack(random_tensor(np.random.default_rng(1), kind, 53, 512))
    x = inputs(37, 512)
    out = multiply(packed, x, unit)
    assert (out.values == twin(x, unpack(packed))).all()
    assert out.guards_hold()


@pytest.mark.parametrize("kind", [T.Q4_1, T.Q5_0, T.Q6_K, T.Q8_0], ids=lambda kind: kind.name)
def test_a_row_has_the_same_bits_whatever_is_computed_with_it(kind: T, unit: TileUnit) -> None:
    """1 … 130 rows, from the front and from the back, so that every row sits in every kind of tile."""
    packed = pack(random_tensor(np.random.default_rng(2), kind, 40, 256))
    x = inputs(130, 256)
    whole = multiply(packed, x, unit).values
    for n in (1, 2, 7, 15, 16, 17, 31, 32, 33, 48, 49, 64, 65, 100, 129):
        assert (multiply(packed, x[:n], unit).values == whole[:n]).all()
        assert (multiply(packed, x[-n:], unit).values == whole[-n:]).all()


@pytest.mark.parametrize("outputs", [1, 16, 17, 32, 48, 90, 160])
def test_any_number_of_outputs_in_any_share(outputs: int, unit: TileUnit) -> None:
    packed = pack(random_tensor(np.random.default_rng(3), T.Q4_0, outputs, 64))
    x = inputs(20, 64)
    expected = twin(x, unpack(packed))
    pairs = -(-packed.blocks // 2)
    for span in (2, 4, 64):
        for cut in range(pairs + 1):
            out = multiply(packed, x, unit, span=span, cut=cut)
            assert (out.values == expected).all()
            assert out.guards_hold()


@pytest.mark.parametrize("outputs", [16, 5, 35])
def test_bias_scale_and_residual(outputs: int, unit: TileUnit) -> None:
    rng = np.random.default_rng(4)
    packed = pack(random_tensor(rng, T.Q4_1, outputs, 64))
    x = inputs(21, 64)
    bias = rng.standard_normal(outputs).astype(np.float32)
    old = rng.standard_normal((21, outputs)).astype(np.float32)
    plain = multiply(packed, x, unit).values
    out = multiply(packed, x, unit, bias=bias, scale=0.25, add_to=old)
    assert (out.values == old + (plain + bias) * np.float32(0.25)).all()
    assert out.guards_hold()


def test_rows_become_tiles() -> None:
    """19 rows in two layers of tiles; what was there before in the rows that are none stays."""
    x = inputs(19, 96)
    found = converted(x).transpose(0, 2, 1, 3).reshape(-1, 96)
    assert (found[:19] == to_bfloat(x).view(np.uint32) >> 16).all()
    assert not found[19:].any()


def test_scratch_holds_what_is_expanded() -> None:
    """Spans are pairs of blocks, and large matrices are expanded in small shares."""
    for groups in (1, 18, 48, 256, 600, 2000):
        blocks = tile_matmul.span(groups)
        assert blocks % 2 == 0
        assert blocks * groups * TILE_BYTES <= max(512 << 10, 2 * groups * TILE_BYTES)


# -- the choice -------------------------------------------------------------------------------------------------------


@pytest.fixture
def granted(monkeypatch: pytest.MonkeyPatch) -> Callable[[Kernel], None]:
    """A machine with AMX whose product kernel is another one."""

    def have(product: Kernel) -> None:
        monkeypatch.delenv(TILES_VARIABLE, raising=False)
        monkeypatch.setattr(tile_check, "tile_unit", lambda: "amx")
        monkeypatch.setitem(tile_matmul.PRODUCTS, "amx", product)

    tile_check._amx_works.cache_clear()
    return have


def test_tiles_that_multiply_rightly_are_used(granted: Callable[[Kernel], None]) -> None:
    granted(tile_matmul.PRODUCTS["emulated"])
    assert tile_check.usable_tile_unit() == "amx"
    tile_check._amx_works.cache_clear()


def test_tiles_that_give_a_wrong_result_are_not_used(
    granted: Callable[[Kernel], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A product that leaves everything zero."""

    def idle(context, args, begin, end, scratch):
        pass

    granted(Kernel("idle", idle))
    assert tile_check.usable_tile_unit() is None
    assert "gave a wrong result and are not used" in caplog.text
    tile_check._amx_works.cache_clear()


def test_the_variable_decides_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TILES_VARIABLE, "emulated")
    assert tile_unit() == "emulated"
    assert tile_check.usable_tile_unit() == "emulated"
    monkeypatch.setattr("engine.kernels.cpu.target", lambda: describe("x", "+amx-tile,+amx-bf16", "x86_64-linux"))
    monkeypatch.setattr("engine.kernels.cpu._tiles_granted", lambda: True)
    monkeypatch.setenv(TILES_VARIABLE, "off")
    assert tile_unit() is None
    monkeypatch.delenv(TILES_VARIABLE)
    assert tile_unit() == "amx"
    monkeypatch.setattr("engine.kernels.cpu._tiles_granted", lambda: False)
    assert tile_unit() is None


@pytest.mark.parametrize(
    ("features", "triple", "amx"),
    [
        ("+amx-tile,+amx-bf16,+avx512f", "x86_64-unknown-linux-gnu", True),
        ("+amx-tile,+amx-int8", "x86_64-unknown-linux-gnu", False),
        ("+amx-bf16,+amx-tile,-amx-tile", "x86_64-unknown-linux-gnu", False),
        ("", "x86_64-unknown-linux-gnu", False),
        ("+amx-tile,+amx-bf16", "aarch64-unknown-linux-gnu", False),
    ],
)
def test_amx_is_a_feature_of_the_target(features: str, triple: str, amx: bool) -> None:
    assert describe("sapphirerapids", features, triple).amx == amx


def names_needed(types: list[str] | None = None) -> set[str]:
    return {made.name for made in needed(types) if made.name.startswith("tiles_")}


def test_only_what_the_unit_needs_is_compiled_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TILES_VARIABLE, "off")
    assert not names_needed()
    monkeypatch.setenv(TILES_VARIABLE, "emulated")
    assert names_needed(["Q4_1", "F32"]) == {"tiles_convert", "tiles_rows_emulated", "tiles_u4m"}
    assert len(names_needed()) == 2 + len(BY_TYPE)
