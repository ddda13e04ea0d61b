"""What a start compiles: nothing the second time, wherever it is started; other kernels for another CPU."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import engine.kernels

KERNELS = Path(engine.kernels.__file__).parent
ROOT = KERNELS.parent.parent
COUNT = """
import json
from engine.kernels import kernel, rowops, team
team.Team(2).close()
rowops.add.address
print(json.dumps([kernel.counts.compiled, kernel.counts.loaded]))
"""


def start(cache: Path, *, root: Path = ROOT, cwd: Path | None = None, code: str = COUNT, **env: str) -> list[int]:
    """[compiled, loaded] of a fresh process that needs three kernels."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith("NUMBA_")}
    variables |= {"KVSCOPE_CACHE_DIR": str(cache), "PYTHONPATH": str(root)} | env
    run = subprocess.run(
        [sys.executable, "-c", code], env=variables, cwd=cwd or ROOT, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout)


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache that a first start has filled."""
    cache = tmp_path_factory.mktemp("cache")
    assert start(cache) == [3, 0]
    return cache


def copied(tmp_path: Path) -> Path:
    """The engine in another place."""
    root = tmp_path / "elsewhere"
    shutil.copytree(ROOT / "engine", root / "engine", ignore=shutil.ignore_patterns("__pycache__"))
    return root


def test_a_second_start_compiles_nothing_wherever_it_is_started(warm: Path, tmp_path: Path) -> None:
    assert start(warm) == [0, 3]
    assert start(warm, cwd=tmp_path) == [0, 3]
    assert start(warm, root=copied(tmp_path), cwd=tmp_path) == [0, 3]


def test_another_cpu_has_kernels_of_its_own(warm: Path) -> None:
    older = {"NUMBA_CPU_NAME": "nehalem", "NUMBA_CPU_FEATURES": ""}
    assert start(warm, **older) == [3, 0]
    assert start(warm, **older) == [0, 3]
    assert start(warm) == [0, 3]


def test_numbas_own_variable_is_honoured(warm: Path, tmp_path: Path) -> None:
    assert start(warm, NUMBA_CACHE_DIR=str(tmp_path)) == [3, 0]
    assert list(tmp_path.glob("*/*/*.nbi"))


def test_importing_the_kernels_compiles_nothing(warm: Path) -> None:
    code = """
import json
from engine.kernels import executor, kernel, sampling, warm
print(json.dumps([kernel.counts.compiled, kernel.counts.loaded]))
"""
    assert start(warm, code=code) == [0, 0]


def test_warming_prints_progress_and_fills_the_cache(warm: Path, tmp_path: Path) -> None:
    """Only for one float type, in two processes."""
    cache = tmp_path / "cache"
    shutil.copytree(warm, cache)
    code = """
import json
from engine.kernels import kernel
from engine.kernels.warm import is_warm, needed
everything = needed()
names = ["team_work", "rms_norm", "rope_halves", "add"]
everything[:] = [made for made in everything if made.name in names]
import engine.kernels.warm as warm
warm.needed = lambda types=None, kv=None: everything
before = is_warm()
warm.main(["--processes", "2"])
print(json.dumps([before, is_warm(), kernel.counts.compiled]))
"""
    lines = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"KVSCOPE_CACHE_DIR": str(cache), "NUMBA_CACHE_DIR": "", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    told = [json.loads(line) for line in lines]
    assert told[-1] == [False, True, 0]
    assert [line["done"] for line in told[:-1]] == [1, 2, 3, 4]
    assert {line["name"] for line in told[:-1]} == {"team_work", "rms_norm", "rope_halves", "add"}


def test_a_types_list_leaves_out_other_types() -> None:
    from engine.kernels.warm import needed

    names = {made.name for made in needed(["Q4_1", "F32"], "float16")}
    assert {"matmul_u4m_1", "pack_u4m", "read_u4m", "matmul_f0_6", "pack_4_bytes", "attend", "sample_tokens"} <= names
    assert not {name for name in names if "u8" in name or name.endswith("_float") or "2_bytes" in name}
