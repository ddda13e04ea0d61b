"""Kernels as compiled for older CPUs, run here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.kernels.cpu import describe, target
from tests.kernels.older_cpu import KINDS, report

Report = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return report()


def test_avx2_gives_the_same_bits(here: dict[str, Any], older_cpu: Report) -> None:
    """Haswell: AVX2 and fused multiply-add, no AVX-512, no byte dot products."""
    there = older_cpu("haswell")
    assert there.pop("cpu") == ["haswell", True, True, False]
    if target().fma:
        assert there == {key: value for key, value in here.items() if key != "cpu"}


@pytest.mark.parametrize("features", ["", "+ssse3"])
def test_a_cpu_without_avx_agrees(here: dict[str, Any], older_cpu: Report, features: str) -> None:
    """Nehalem: SSE 4.2, no float16, no fused multiply-add: conversions and codes to the bit, products nearly; by name
    alone, which promises no byte products, and with the byte products that it has."""
    there = older_cpu("nehalem", features)
    assert there["cpu"] == ["nehalem", False, False, False]
    exact = ["half", "codes", *(f"unpack {kind.name}" for kind in KINDS)]
    assert [there[key] for key in exact] == [here[key] for key in exact]
    for kind in KINDS:
        assert np.allclose(there[f"numbers {kind.name}"], here[f"numbers {kind.name}"], rtol=1e-4, atol=1e-4)
    assert np.allclose(there["logits numbers"], here["logits numbers"], rtol=0.05, atol=0.05)


@pytest.mark.parametrize(
    ("name", "features", "expected"),
    [
        ("znver4", "", "avx512 vnni512"),
        ("skylake-avx512", "", "avx512"),
        ("alderlake", "", "avx2 vnni256"),
        ("haswell", "", "avx2"),
        ("haswell", "-avx2,-fma", "sse"),
        ("nehalem", "+ssse3", "sse"),
        ("some-new-chip", "+avx2,+fma,+f16c,+ssse3", "avx2"),
        ("generic", "", "sse"),
    ],
)
def test_what_a_cpu_can_do_follows_its_name_and_features(name: str, features: str, expected: str) -> None:
    cpu = describe(name, features, "x86_64-unknown-linux-gnu")
    found = [word for word in ("avx512", "vnni512") if getattr(cpu, word)]
    if not cpu.avx512:
        found = ["avx2" if cpu.avx2 else "sse"] + (["vnni256"] if cpu.vnni256 else [])
    assert " ".join(found) == expected


def test_arm_converts_and_fuses_in_hardware() -> None:
    cpu = describe("apple-m1", "", "arm64-apple-darwin")
    assert (cpu.x86, cpu.fma, cpu.f16, cpu.avx2) == (False, True, True, False)
