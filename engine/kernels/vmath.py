"""Elementary functions on vectors of 16 float32. The same bits on every run; no tables, no library calls."""

from __future__ import annotations

from engine.kernels.half import through_half
from engine.kernels.kernel import helper
from engine.kernels.simd import (
    absolute,
    bits_f,
    bits_i,
    fma,
    maximum,
    minimum,
    round_even,
    splat_f,
    splat_i,
    where_below,
)

_LOWEST = -87.0
_HIGHEST = 88.0
_MAGIC = 12582912.0


@helper
def exp16(x):
    """e**x with a relative error below 2e-7; 0 below -87, e**88 above 88, NaN for NaN.

    x = n ln 2 + r with |r| <= ln 2 / 2; e**r by the polynomial of Cephes' expf; times 2**n by its exponent bits.
    """
    safe = minimum(splat_f(_HIGHEST), maximum(splat_f(_LOWEST), x))
    n = round_even(safe * splat_f(1.4426950408889634))
    r = fma(n, splat_f(-0.693359375), safe)
    r = fma(n, splat_f(2.12194440e-4), r)
    p = fma(splat_f(1.9875691500e-4), r, splat_f(1.3981999507e-3))
    p = fma(p, r, splat_f(8.3334519073e-3))
    p = fma(p, r, splat_f(4.1665795894e-2))
    p = fma(p, r, splat_f(1.6666665459e-1))
    p = fma(p, r, splat_f(5.0000001201e-1))
    p = fma(p, r * r, r) + splat_f(1.0)
    exponent = bits_i(n + splat_f(_MAGIC)) + splat_i(127)
    return where_below(x, splat_f(_LOWEST), splat_f(0.0), p * bits_f(exponent << splat_i(23)))


@helper
def sigmoid16(x):
    """1 / (1 + e**-x)."""
    one = splat_f(1.0)
    return one / (one + exp16(splat_f(0.0) - x))


@helper
def tanh16(x):
    """tanh x with a relative error below 3e-7: 1 - 2 / (e**2x + 1), and near 0 the polynomial of Cephes' tanhf."""
    one = splat_f(1.0)
    far = one - splat_f(2.0) / (exp16(x + x) + one)
    z = x * x
    p = fma(splat_f(-5.70498872745e-3), z, splat_f(2.06390887954e-2))
    p = fma(p, z, splat_f(-5.37397155531e-2))
    p = fma(p, z, splat_f(1.33314422036e-1))
    p = fma(p, z, splat_f(-3.33332819422e-1))
    return where_below(absolute(x), splat_f(0.625), fma(p * z, x, x), far)


@helper
def silu16(x):
    """x * sigmoid(x)."""
    return x * sigmoid16(x)


@helper
def gelu16(x):
    """GELU in its tanh approximation (Hendrycks and Gimpel 2016), x * sigmoid(2 sqrt(2 / pi) (x + 0.044715 x**3)), with
    argument and value rounded to float16 (see ``ops.Glu``)."""
    ten = splat_f(10.0)
    half = through_half(minimum(ten, maximum(splat_f(-10.0), x)))
    inner = fma(half * half, splat_f(0.044715), splat_f(1.0)) * half
    value = through_half(half * sigmoid16(inner * splat_f(1.5957691216057308)))
    return where_below(x, ten, where_below(x, splat_f(-10.0), splat_f(0.0), value), x)
