"""Operations on rows, against the interpreter's NumPy functions; nothing is written behind a row."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels import layout, ops, reference, rowops
from engine.kernels.kernel import Kernel
from tests.kernels.twins import Rows, arguments, call

WIDTHS = (16, 1, 15, 33, 576)


def rows_of(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def elementwise(kernel: Kernel, a: np.ndarray, b: np.ndarray, factor: float = 1.0) -> np.ndarray:
    x, y, out = Rows(a), Rows(b), Rows(np.zeros_like(a))
    words = {rowops.E_A_ROWS: x.at, rowops.E_B_ROWS: y.at, rowops.E_OUT_ROWS: out.at, rowops.E_WIDTH: a.shape[1]}
    call(kernel, arguments(words, {rowops.E_FACTOR: factor}), len(a))
    assert out.guards_hold()
    return out.values


@pytest.mark.parametrize("width", WIDTHS)
def test_elementwise(width: int) -> None:
    a, b = rows_of(3, width) * 4, rows_of(3, width, seed=1)
    assert (elementwise(rowops.add, a, b, 0.5) == a + b * np.float32(0.5)).all()
    assert (elementwise(rowops.scale, a, a, 0.3) == a * np.float32(0.3)).all()
    assert np.allclose(elementwise(rowops.softcap, a, a, 3.0), reference.softcap(a, 3.0), rtol=1e-6)
    silu, gelu = (reference.activation(a, kind) * b for kind in ("silu", "gelu"))
    assert np.allclose(elementwise(rowops.silu_glu, a, b), silu, rtol=2e-6, atol=1e-7)
    assert np.allclose(elementwise(rowops.gelu_glu, a, b), gelu, rtol=2**-9, atol=1e-6)


@pytest.mark.parametrize("width", WIDTHS)
def test_sigmoid_gate(width: int) -> None:
    a, gate = rows_of(3, width), rows_of(3, 1, seed=1)
    x, y, out = Rows(a), Rows(gate), Rows(np.zeros_like(a))
    words = {rowops.E_A_ROWS: x.at, rowops.E_B_ROWS: y.at, rowops.E_OUT_ROWS: out.at, rowops.E_WIDTH: width}
    call(rowops.sigmoid_gate, arguments(words), 3)
    assert np.allclose(out.values, a * reference.sigmoid(gate), rtol=1e-6)
    assert out.guards_hold()


@pytest.mark.parametrize(("width", "groups"), [(576, 1), (64, 4), (30, 2), (256, 1), (48, 3)])
@pytest.mark.parametrize("weights", ["none", "part", "row"])
def test_rms_norm(width: int, groups: int, weights: str) -> None:
    part = width // groups
    x, w = rows_of(3, width) * 7, rows_of(width, seed=1)
    padded = np.zeros(width + 16, np.float32)
    padded[:width] = w
    source, out = Rows(x), Rows(np.zeros_like(x))
    words = {
        rowops.N_X_ROWS: source.at,
        rowops.N_OUT_ROWS: out.at,
        rowops.N_PART: part,
        rowops.N_PARTS: groups,
        rowops.N_WEIGHT: 0 if weights == "none" else padded.ctypes.data,
        rowops.N_WEIGHT_STEP: 4 * part if weights == "row" else 0,
    }
    call(rowops.rms_norm, arguments(words, {rowops.N_EPS: 1e-5}), 3)
    parts = x.reshape(3, groups, part)
    normed = parts / np.sqrt((parts**2).mean(axis=2, keepdims=True) + 1e-5)
    factor = {"none": 1.0, "part": w[:part], "row": w.reshape(groups, part)}[weights]
    assert np.allclose(out.values, (normed * factor).reshape(3, width), rtol=2e-6, atol=1e-7)
    assert out.guards_hold()


@pytest.mark.parametrize("pairs", ["adjacent", "halves"])
@pytest.mark.parametrize(("size", "rotated"), [(64, 64), (24, 24), (80, 20), (128, 64), (16, 2)])
def test_rope(pairs: str, size: int, rotated: int) -> None:
    heads, n = 3, 4
    x = rows_of(n, heads * size)
    angles = np.arange(40)[:, None] / 100.0 ** (np.arange(rotated // 2) / rotated)
    table = ops.RopeTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))
    positions = np.array([0, 39, 7, 8], np.int32)
    op = ops.Rope(ops.Reg(0, heads * size), heads, size, rotated, table, pairs)
    source = Rows(x)
    words = {
        rowops.R_X_ROWS: source.at,
        rowops.R_HEADS: heads,
        rowops.R_HEAD_SIZE: size,
        rowops.R_HALF: rotated // 2,
        rowops.R_COS: table.cos.ctypes.data,
        rowops.R_SIN: table.sin.ctypes.data,
    }
    context = np.zeros(layout.CONTEXT_WORDS, np.int64)
    context[layout.C_POSITIONS] = positions.ctypes.data
    call(rowops.rope_halves if pairs == "halves" else rowops.rope_adjacent, arguments(words), n, context)
    assert np.allclose(source.values, reference.rope(x, op, positions), rtol=1e-6, atol=1e-6)
    assert source.guards_hold()
