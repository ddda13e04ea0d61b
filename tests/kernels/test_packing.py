"""Packed weights stand for exactly what the gguf package dequantizes."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize

from engine.errors import UnsupportedModelError
from engine.kernels.formats import BY_TYPE, FLOATS
from engine.kernels.ops import Tensor
from engine.kernels.packing import pack, unpack

TYPES = [*BY_TYPE, *FLOATS]


def same_bits(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal bit for bit, any NaN being as good as another."""
    return bool(np.where(np.isnan(a), np.isnan(b), a.view(np.uint32) == b.view(np.uint32)).all())


@pytest.mark.parametrize("kind", TYPES, ids=lambda kind: kind.name)
def test_unpacked_weights_equal_the_dequantized_ones(kind: T) -> None:
    """Random bits, so that every code and scale occurs, subnormal, infinite and NaN scales included."""
    columns, size = GGML_QUANT_SIZES[kind]
    rows, cols = 37, 512
    raw = np.random.default_rng(7).integers(0, 256, (rows, cols // columns * size), dtype=np.uint8)
    packed = pack(Tensor("w", int(kind), (rows, cols), raw), threads=2)
    with np.errstate(all="ignore"):
        expected = dequantize(raw, kind)
    assert same_bits(unpack(packed), expected)


@pytest.mark.parametrize("kind", [T.Q4_1, T.Q6_K, T.F16], ids=lambda kind: kind.name)
def test_each_expert_is_a_matrix_of_its_own(kind: T) -> None:
    columns, size = GGML_QUANT_SIZES[kind]
    experts, rows, cols = 3, 20, 256
    raw = np.random.default_rng(8).integers(0, 120, (experts * rows, cols // columns * size), dtype=np.uint8)
    packed = pack(Tensor("w", int(kind), (experts, rows, cols), raw))
    assert same_bits(unpack(packed).reshape(experts * rows, cols), dequantize(raw, kind))


@pytest.mark.parametrize(
    ("kind", "most"),
    [(T.Q4_0, 4.5), (T.Q4_1, 5), (T.Q5_0, 5.5), (T.Q8_0, 8.5), (T.Q4_K, 4.63), (T.Q6_K, 6.57), (T.Q2_K, 2.63)],
)
def test_packed_weights_take_no_more_bits_than_stated(kind: T, most: float) -> None:
    columns, size = GGML_QUANT_SIZES[kind]
    raw = np.zeros((16, 2048 // columns * size), np.uint8)
    packed = pack(Tensor("w", int(kind), (16, 2048), raw))
    assert packed.memory.nbytes * 8 / (16 * 2048) <= most


def test_a_type_without_kernels_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModelError, match="'w' has type IQ2_XXS"):
        pack(Tensor("w", int(T.IQ2_XXS), (16, 256), np.zeros(16 * 66, np.uint8)))
    with pytest.raises(UnsupportedModelError, match="unknown type 999"):
        pack(Tensor("w", 999, (16, 256), np.zeros(16 * 66, np.uint8)))


def test_shapes_that_kernels_could_not_trust_are_refused() -> None:
    with pytest.raises(
        UnsupportedModelError, match="'w' has 192 columns, which is no multiple of the 256 of type Q4_K"
    ):
        pack(Tensor("w", int(T.Q4_K), (16, 192), np.zeros(16 * 108, np.uint8)))
    with pytest.raises(UnsupportedModelError, match="fewer bytes"):
        pack(Tensor("w", int(T.Q4_0), (16, 64), np.zeros(16 * 36 - 1, np.uint8)))
