"""float16 and bfloat16 conversions, in hardware and by integer arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from numba.core import types

from engine.kernels import half, simd
from engine.kernels.kernel import Kernel
from engine.kernels.simd import V_F32, V_I16, V_I32, load, load_f, primitive, store, store_f
from tests.kernels.twins import to_bfloat


@primitive(simd.f32x16, simd.address)
def load_h_by_integers(b, where):
    """As on a CPU without float16."""
    return half.widen_bits(b, b.zext(load(b, where, V_I16, 2), V_I32), V_I32, V_F32)


@primitive(types.void, simd.address, simd.f32x16)
def store_h_by_integers(b, where, value):
    store(b, b.trunc(half.narrow_bits(b, value, V_I32, V_F32), V_I16), where, 2)


@primitive(types.void, simd.address, simd.f32x16)
def store_bf_by_integers(b, where, value):
    """As on a CPU without bfloat16."""
    store(b, half.narrow_to_bfloat(b, value), where, 2)


def _widener(name: str, load_some: object) -> Kernel:
    def widen(context, source, begin, end, target):
        for i in range(begin, end, 16):
            store_f(target + 4 * i, load_some(source + 2 * i))

    return Kernel(name, widen)


def _narrower(name: str, store_some: object) -> Kernel:
    def narrow(context, source, begin, end, target):
        for i in range(begin, end, 16):
            store_some(target + 2 * i, load_f(source + 4 * i))

    return Kernel(name, narrow)


WIDEN = {
    "hardware": _widener("widen_h", half.load_h),
    "integers": _widener("widen_h_by_integers", load_h_by_integers),
}
NARROW = {
    "hardware": _narrower("narrow_h", half.store_h),
    "integers": _narrower("narrow_h_by_integers", store_h_by_integers),
}
NARROW_BF = {
    "hardware": _narrower("narrow_bf", half.store_bf),
    "integers": _narrower("narrow_bf_by_integers", store_bf_by_integers),
}


def same(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    bits = np.uint16 if a.dtype == np.float16 else np.uint32
    return np.where(np.isnan(a), np.isnan(b), a.view(bits) == b.view(bits))


@pytest.mark.parametrize("way", WIDEN)
def test_every_float16_widens_exactly(way: str) -> None:
    source = np.arange(65536, dtype=np.uint16).view(np.float16)
    target = np.zeros(65536, np.float32)
    WIDEN[way].call(0, source.ctypes.data, 0, 65536, target.ctypes.data)
    assert same(target, source.astype(np.float32)).all()


@pytest.mark.parametrize("way", NARROW)
def test_float32_narrows_to_the_nearest_even(way: str) -> None:
    """Random bits; and for every float16 the numbers at, just below and just above the middle to the next one."""
    rng = np.random.default_rng(0)
    bits = rng.integers(0, 2**32, 65536, dtype=np.uint32)
    exact = np.arange(65536, dtype=np.uint16).view(np.float16).astype(np.float32).view(np.uint32)
    middles = np.concatenate([exact + d for d in (0, 0xFFF, 0x1000, 0x1001)]).astype(np.uint32)
    tiny = rng.integers(0x33000000 - 5000, 0x38800000 + 5000, 65536, dtype=np.uint32)
    source = np.concatenate([bits, middles, tiny]).view(np.float32)
    target = np.zeros(len(source), np.float16)
    NARROW[way].call(0, source.ctypes.data, 0, len(source), target.ctypes.data)
    with np.errstate(all="ignore"):
        assert same(target, source.astype(np.float16)).all()


def test_bfloat16_widens_exactly() -> None:
    source = np.arange(65536, dtype=np.uint16)
    target = np.zeros(65536, np.float32)
    _widener("widen_bf", half.load_bf).call(0, source.ctypes.data, 0, 65536, target.ctypes.data)
    assert same(target, (source.astype(np.uint32) << 16).view(np.float32)).all()


@pytest.mark.parametrize("way", NARROW_BF)
def test_float32_narrows_to_the_nearest_even_bfloat16(way: str) -> None:
    """Random bits, and for every bfloat16 the numbers at, just below and just above the middle to the next one."""
    bits = np.random.default_rng(1).integers(0, 2**32, 65536, dtype=np.uint32)
    exact = np.arange(65536, dtype=np.uint32) << 16
    source = (
        np.concatenate([bits, *(exact + d for d in (0, 0x7FFF, 0x8000, 0x8001))]).astype(np.uint32).view(np.float32)
    )
    source = source[np.isnan(source) | (np.abs(source) >= np.finfo(np.float32).smallest_normal) | (source == 0)]
    source = np.resize(source, -(-len(source) // 16) * 16)
    target = np.zeros(len(source), np.uint16)
    NARROW_BF[way].call(0, source.ctypes.data, 0, len(source), target.ctypes.data)
    found = (target.astype(np.uint32) << 16).view(np.float32)
    assert same(found, np.where(np.isnan(source), source, to_bfloat(source))).all()
