"""What the CPU that Numba compiles for can do.

Numba's target need not be this machine (``NUMBA_CPU_NAME``, ``NUMBA_CPU_FEATURES``), and code for one must not use what
only the other has: so the target is asked, never the chip. Where a target is given by name without features, the name
decides by the table below; an unknown name gets the plain path, which runs everywhere.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import llvmlite.binding as llvm
from numba.core import config

_AVX2_NAMES = frozenset(
    (
        "haswell",
        "broadwell",
        "skylake",
        "core-avx2",
        "x86-64-v3",
        "znver1",
        "znver2",
        "znver3",
        "alderlake",
        "raptorlake",
        "meteorlake",
        "sierraforest",
        "grandridge",
        "gracemont",
        "arrowlake",
        "lunarlake",
        "pantherlake",
        "bdver4",
    )
)
_AVX512_NAMES = frozenset(
    (
        "skylake-avx512",
        "skx",
        "x86-64-v4",
        "cannonlake",
    )
)
_VNNI512_NAMES = frozenset(
    (
        "cascadelake",
        "cooperlake",
        "icelake-client",
        "icelake-server",
        "tigerlake",
        "rocketlake",
        "sapphirerapids",
        "emeraldrapids",
        "graniterapids",
        "graniterapids-d",
        "diamondrapids",
        "znver4",
        "znver5",
    )
)
_VNNI256_NAMES = frozenset(
    (
        "alderlake",
        "raptorlake",
        "meteorlake",
        "sierraforest",
        "grandridge",
        "gracemont",
        "arrowlake",
        "lunarlake",
        "pantherlake",
    )
)


@dataclass(frozen=True, slots=True)
class Cpu:
    """A compilation target.

    ``vnni512``/``vnni256``: byte dot products in 512- or 256-bit registers; ``avx512``: 512-bit integer and float
    arithmetic; ``fma``: fused multiply-add (else multiply, then add: the only place where results may differ between
    CPUs); ``f16``, ``bf16``: float16 and bfloat16 conversion; ``amx``: products of bfloat16 tiles; ``x86``: the x86
    family, ``ssse3`` with byte shuffles.
    """

    name: str
    features: str
    x86: bool
    ssse3: bool
    avx2: bool
    avx512: bool
    vnni512: bool
    vnni256: bool
    fma: bool
    f16: bool
    bf16: bool
    amx: bool

    @property
    def columns(self) -> int:
        """How many activation rows one pass over a block of weights serves; bounded by the registers."""
        if self.avx2:
            return 6
        return 3 if self.x86 else 4

    @property
    def widest_tile(self) -> int:
        """As ``columns`` where one pass more would cost more than a few values that the registers do not hold."""
        return self.columns + 2 if self.avx512 else self.columns


def target_name() -> str:
    """The CPU name that Numba compiles for."""
    return str(getattr(config, "CPU_NAME", None) or llvm.get_host_cpu_name())


def target_features() -> str:
    """The feature string that Numba compiles with (comma separated, each with + or -)."""
    features = getattr(config, "CPU_FEATURES", None)
    if features is not None:
        return str(features)
    return str(llvm.get_host_cpu_features().flatten())


@lru_cache(maxsize=1)
def target() -> Cpu:
    """The compilation target of this process."""
    return describe(target_name(), target_features(), llvm.get_default_triple())


TileUnit = Literal["amx", "emulated"]
TILES_VARIABLE = "KVSCOPE_TILES"
_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA = 158, 0x1023, 18


def tile_unit() -> TileUnit | None:
    """What multiplies the tiles of prompt rows; None: they use the integer products of generated rows.

    The variable ``KVSCOPE_TILES`` set to ``emulated`` computes the same without tile registers (slowly: for tests), set
    to ``off`` it leaves tiles out.
    """
    match os.environ.get(TILES_VARIABLE):
        case "off":
            return None
        case "emulated":
            return "emulated"
    return "amx" if target().amx and _tiles_granted() else None


@lru_cache(maxsize=1)
def _tiles_granted() -> bool:
    """Whether the system lets this process use tile registers. Linux wants to be asked, once for all threads."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 1 << 32:
        return False
    return ctypes.CDLL(None).syscall(_ARCH_PRCTL, _REQUEST_PERMISSION, _TILE_DATA) == 0


def describe(name: str, features: str, triple: str) -> Cpu:
    """The target that LLVM knows as ``name`` with ``features`` added or taken away."""
    x86 = triple.startswith(("x86_64", "amd64", "i686"))
    have = _implied(name)
    for item in filter(None, features.split(",")):
        if item.startswith("-"):
            have.discard(item[1:])
        else:
            have.add(item.lstrip("+"))
    arm = triple.startswith(("aarch64", "arm64"))
    avx512 = {"avx512f", "avx512bw", "avx512vl", "avx512dq"} <= have
    return Cpu(
        name=name,
        features=features,
        x86=x86,
        ssse3=x86 and "ssse3" in have,
        avx2=x86 and "avx2" in have,
        avx512=x86 and avx512,
        vnni512=x86 and avx512 and "avx512vnni" in have,
        vnni256=x86 and "avx2" in have and ("avxvnni" in have or (avx512 and "avx512vnni" in have)),
        fma=arm or (x86 and "fma" in have),
        f16=arm or (x86 and "f16c" in have),
        bf16=x86 and avx512 and "avx512bf16" in have,
        amx=x86 and {"amx-tile", "amx-bf16"} <= have,
    )


def _implied(name: str) -> set[str]:
    """Features that come with a CPU's name."""
    have: set[str] = set()
    if name in _AVX2_NAMES | _AVX512_NAMES | _VNNI512_NAMES:
        have |= {"ssse3", "avx2", "fma", "f16c"}
    if name in _AVX512_NAMES | _VNNI512_NAMES:
        have |= {"avx512f", "avx512bw", "avx512vl", "avx512dq"}
    if name in _VNNI512_NAMES:
        have.add("avx512vnni")
    if name in _VNNI256_NAMES:
        have.add("avxvnni")
    return have
