"""Products of rows and packed weights."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from engine.kernels import layout, matmul
from engine.kernels.formats import BY_TYPE, FLOATS, expanded
from engine.kernels.ops import Tensor
from engine.kernels.packing import Packed, pack, unpack
from tests.kernels.programs import random_tensor
from tests.kernels.test_quantize import quantized
from tests.kernels.twins import Rows, arguments, call


def multiply(
    packed: Packed,
    x: np.ndarray,
    *,
    bias: np.ndarray | None = None,
    scale: float = 1.0,
    add_to: np.ndarray | None = None,
) -> Rows:
    """W x for float32[n, cols] by the kernels."""
    n = len(x)
    source = quantized(x) if packed.format else Rows(x)
    out = Rows(np.zeros((n, packed.rows), np.float32) if add_to is None else add_to)
    padded = np.zeros(-(-packed.rows // 16) * 16, np.float32)
    if bias is not None:
        padded[: packed.rows] = bias
    kernels = matmul.tiles(packed.format, packed.kind)
    tiles = np.array([0, *(kernel.address for kernel in kernels)], np.int64)
    words = {
        layout.M_WEIGHTS: packed.address,
        layout.M_BLOCK_BYTES: packed.block_bytes,
        layout.M_GROUPS: packed.groups,
        layout.M_COLS: packed.cols,
        layout.M_X: source.at,
        layout.M_OUT: out.at,
        layout.M_OUTPUTS: packed.rows,
        layout.M_BIAS: padded.ctypes.data if bias is not None else 0,
        layout.M_ADD: int(add_to is not None),
        layout.M_TILES: tiles.ctypes.data,
        layout.M_ROWS: layout.C_ROWS,
    }
    wide = np.zeros(0, np.int64)
    if packed.format and matmul.expanded_bytes(packed.format, packed.groups):
        wide = np.array([0, *(kernel.address for kernel in matmul.TILES[expanded(packed.format).name])], np.int64)
        words[layout.M_EXPAND] = matmul.EXPANDERS[packed.format.name].address
        words[layout.M_EXPANDED_TILES] = wide.ctypes.data
    context = np.zeros(layout.CONTEXT_WORDS, np.int64)
    context[layout.C_ROWS] = n
    call(matmul.matmul_rows, arguments(words, {layout.M_SCALE: scale}), packed.blocks, context)
    return out


def inputs(n: int, cols: int) -> np.ndarray:
    x = np.random.default_rng(n).standard_normal((n, cols)).astype(np.float32)
    x[:, 40] *= 60  # outliers
    return x


def read_by_kernels(packed: Packed, x: np.ndarray) -> np.ndarray:
    """What the kernels multiply with: the activations as quantized."""
    return quantized(x).values if packed.format else x.astype(np.float64)


@pytest.mark.parametrize("kind", [*BY_TYPE, *FLOATS], ids=lambda kind: kind.name)
def test_products_equal_the_twin_for_any_number_of_rows(kind: T) -> None:
    """Against float64 over the unpacked weights and quantized activations; and every row has the bits that it has
    alone."""
    packed = pack(random_tensor(np.random.default_rng(1), kind, 53, 512))
    weights = unpack(packed).astype(np.float64)
    x = inputs(13, 512)
    whole = multiply(packed, x)
    expected = read_by_kernels(packed, x) @ weights.T
    bound = np.abs(read_by_kernels(packed, x)) @ np.abs(weights.T)
    assert (np.abs(whole.values - expected) <= 2e-6 * bound).all()
    assert whole.guards_hold()
    for n in range(1, 13):
        assert (multiply(packed, x[:n]).values == whole.values[:n]).all()


@pytest.mark.parametrize("kind", [T.Q4_1, T.F32], ids=lambda kind: kind.name)
@pytest.mark.parametrize("outputs", [16, 5, 35])
def test_bias_scale_and_residual(kind: T, outputs: int) -> None:
    rng = np.random.default_rng(2)
    packed = pack(random_tensor(rng, kind, outputs, 64))
    x = rng.standard_normal((8, 64)).astype(np.float32)
    bias = rng.standard_normal(outputs).astype(np.float32)
    old = rng.standard_normal((8, outputs)).astype(np.float32)
    plain = multiply(packed, x).values
    out = multiply(packed, x, bias=bias, scale=0.25, add_to=old)
    assert (out.values == old + (plain + bias) * np.float32(0.25)).all()
    assert out.guards_hold()


def test_eight_bit_extremes_do_not_saturate() -> None:
    """The largest codes with the largest activations: where a 16-bit sum of byte products would overflow."""
    raw = np.full((16, 34), 0x80, np.uint8)  # code -128
    raw[8:, 2:] = 0x7F
    raw[:, :2] = np.array([1.0], np.float16).view(np.uint8)
    packed = pack(Tensor("w", int(T.Q8_0), (16, 32), raw))
    x = np.full((4, 32), 127.0, np.float32)
    x[1] = -127
    assert multiply(packed, x).values[0].tolist() == [-128.0 * 127 * 32] * 8 + [127.0 * 127 * 32] * 8
    assert multiply(packed, x).values[1].tolist() == [128.0 * 127 * 32] * 8 + [-127.0 * 127 * 32] * 8
