"""Elementary functions on vectors, against float64."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels import vmath
from engine.kernels.kernel import Kernel
from engine.kernels.simd import load_f, store_f


def _applied(name: str, function: object) -> Kernel:
    def apply(context, source, begin, end, target):
        for i in range(begin, end, 16):
            store_f(target + 4 * i, function(load_f(source + 4 * i)))

    return Kernel(f"apply_{name}", apply)


KERNELS = {name: _applied(name, getattr(vmath, name)) for name in ("exp16", "sigmoid16", "tanh16", "silu16", "gelu16")}


def apply(name: str, x: np.ndarray) -> np.ndarray:
    source = np.zeros(-(-len(x) // 16) * 16, np.float32)
    source[: len(x)] = x
    target = np.zeros_like(source)
    KERNELS[name].call(0, source.ctypes.data, 0, len(source), target.ctypes.data)
    return target[: len(x)]


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


@pytest.mark.parametrize(
    ("name", "exact", "low", "high"),
    [
        ("exp16", np.exp, -86, 87.9),
        ("sigmoid16", lambda x: 1 / (1 + np.exp(-x)), -80, 80),
        ("tanh16", np.tanh, -20, 20),
    ],
)
def test_relative_error(name: str, exact, low: float, high: float) -> None:
    x = np.linspace(low, high, 200_001).astype(np.float32)
    x = np.concatenate([x, x / 1000])
    expected = exact(x.astype(np.float64))
    assert (np.abs(apply(name, x) - expected) <= 4e-7 * np.abs(expected)).all()


def test_silu() -> None:
    x = np.linspace(-30, 30, 100_001).astype(np.float32)
    expected = x / (1 + np.exp(-x.astype(np.float64)))
    assert (np.abs(apply("silu16", x) - expected) <= 1e-6 * np.abs(expected) + 1e-7).all()


def test_gelu_is_rounded_to_float16() -> None:
    x = np.linspace(-30, 30, 100_001).astype(np.float32)
    inside = np.abs(x) < 10
    expected = gelu(x.astype(np.float16).astype(np.float64))
    y = apply("gelu16", x)
    assert (y[x >= 10] == x[x >= 10]).all()
    assert (y[x <= -10] == 0).all()
    assert (y[inside] == y[inside].astype(np.float16)).all()
    assert (np.abs(y - expected)[inside] <= 2**-10 * np.abs(expected[inside]) + 2**-24).all()


def test_the_ends_of_exp() -> None:
    x = np.array([0, -0.0, -87.5, -1000, -np.inf, 88, 1000, np.inf, np.nan], np.float32)
    y = apply("exp16", x)
    assert y[:5].tolist() == [1, 1, 0, 0, 0]
    assert (y[5:8] > 1e38).all()
    assert np.isfinite(y[5:8]).all()
    assert np.isnan(y[8])
