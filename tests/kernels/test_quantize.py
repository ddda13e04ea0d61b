"""Activations as int8 records."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels import layout
from engine.kernels import quantize as quantizing
from tests.kernels.twins import Quantized, Rows, arguments, call, quantize_row


def quantized(x: np.ndarray, into: Quantized | None = None) -> Quantized:
    rows, out = Rows(x), into or Quantized(*x.shape)
    words = {quantizing.X_ROWS: rows.at, quantizing.X_OUT_ROWS: out.at, quantizing.X_GROUPS: x.shape[1] // 32}
    call(quantizing.quantize_rows, arguments(words), len(x))
    return out


def activations() -> np.ndarray:
    rng = np.random.default_rng(3)
    x = rng.standard_normal((6, 256)).astype(np.float32)
    x[0, 40] = 300  # one outlier
    x[1, [3, 4, 200, 201]] = 80, -75, 1500, -2000  # two in one group
    x[2, 64:96] = 0  # a group of zeros
    x[3] = 0
    x[4] *= 1e-30
    x[5, ::2] = 5
    return x


def test_codes_and_scales_equal_the_twin() -> None:
    x = activations()
    out = quantized(x)
    for row, values in enumerate(x):
        codes, scales = quantize_row(values)
        assert (out.codes[row] == codes).all()
        assert (out.field(layout.Q_SCALE, np.float32)[row] == scales).all()


def test_sums_belong_to_the_codes() -> None:
    out = quantized(activations())
    codes = out.codes
    assert (out.field(layout.Q_NEGATIVE, np.int32) == -codes.sum(axis=2)).all()
    assert (out.field(layout.Q_NEGATIVE_HALVES, np.int32) == -codes[:, :, :16].sum(axis=2)).all()
    assert (out.field(layout.Q_NEGATIVE_HALVES + 4, np.int32) == -codes[:, :, 16:].sum(axis=2)).all()
    scales = out.field(layout.Q_SCALE, np.float32)
    assert (out.field(layout.Q_SUM, np.float32) == (scales * codes.sum(axis=2).astype(np.float32))).all()


def test_only_groups_with_outliers_have_a_second_digit() -> None:
    out = quantized(activations())
    marked = out.field(layout.Q_OUTLIERS, np.int32)
    assert np.argwhere(marked).tolist() == [[0, 1], [1, 6]]
    assert (np.abs(out.codes[marked == 0]) <= 127).all()


def test_records_can_be_used_again() -> None:
    x = activations()
    out = quantized(x)
    quantized(x[::-1], into=out)
    assert (out.codes == quantized(x[::-1]).codes).all()


def test_an_outlier_costs_its_neighbours_no_precision() -> None:
    rng = np.random.default_rng(4)
    x = rng.standard_normal((1, 128)).astype(np.float32)
    plain = np.abs(quantized(x).values - x)[0]
    x[0, 70] = 200
    spiked = np.abs(quantized(x).values - x)[0]
    others = np.delete(np.arange(64, 96), 6)
    assert spiked[others].max() <= 1.05 * plain[64:96].max()
    assert spiked[70] <= 200 / 127 / 50


@pytest.mark.parametrize("width", [32, 64, 4864])
def test_any_width_of_whole_groups(width: int) -> None:
    x = np.random.default_rng(5).standard_normal((2, width)).astype(np.float32)
    error = np.abs(quantized(x).values - x)
    assert error.max() <= np.abs(x).max() / 254 * 1.001
