"""Kernels as compiled for older CPUs, run here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.kernels.cpu import describe, target
from tests.kernels.older_cpu import KINDS, report

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def here() -> dict[str, Any]:
    return report()


def compiled_for(name: str, features: str = "") -> dict[str, Any]:
    """The report of a process that compiles for ``name`` (and caches what it compiled for the next run)."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.kernels.older_cpu"],
        env=os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(run.stdout)


def test_avx2_gives_the_same_bits(here: dict[str, Any]) -> None:
    """Haswell: AVX2 and fused multiply-add, no AVX-512, no byte dot products."""
    there = compiled_for("haswell")
    assert there.pop("cpu") == ["haswell", True, True, False]
    if target().fma:
        assert there == {key: value for key, value in here.items() if key != "cpu"}


@pytest.mark.parametrize("features", ["", "+ssse3"])
def test_a_cpu_without_avx_agrees(here: dict[str, Any], features: str) -> None:
    """Nehalem: SSE 4.2, no float16, no fused multiply-add: conversions and codes to the bit, products nearly; by name
    alone, which promises no byte products, and with the byte products that it has."""
    there = compiled_for("nehalem", features)
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
