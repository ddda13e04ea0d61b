"""Whole programs whose prompt rows run on tiles (emulated ones where there are no others), and the machine code of real
tiles."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from engine.kernels import ops
from engine.kernels.cpu import TILES_VARIABLE, tile_unit
from engine.kernels.executor import Executor
from engine.kernels.formats import BY_TYPE
from engine.kernels.ops import Program
from engine.kernels.reference import NumpyExecutor
from tests.kernels.programs import Sequences, Shape, random_llama, random_tensor
from tests.kernels.test_experts import mixture

ROOT = Path(__file__).parent.parent.parent
ROWS = 130
IDS = np.random.default_rng(1).integers(0, 203, ROWS).tolist()
AMX = "+amx-tile,+amx-bf16,+avx512f,+avx512bw,+avx512vl,+avx512dq,+avx512vnni,+avx512bf16,+avx2,+fma,+f16c,+ssse3"


UNIT: Literal["amx", "emulated"] = tile_unit() or "emulated"


@contextmanager
def loaded(program: Program, tiles: Literal["amx", "emulated", "off"] = UNIT, threads: int = 2) -> Iterator[Executor]:
    """An executor that was told what to do about tiles."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(TILES_VARIABLE, tiles)  # "amx": no word that it knows, so it asks the machine
        executor = Executor(program, max_rows=ROWS, threads=threads)
    try:
        yield executor
    finally:
        executor.close()


def logits(
    executor: Executor | NumpyExecutor, cuts: tuple[int, ...] = (), lane: Literal["prompt", "generated"] = "prompt"
) -> np.ndarray:
    """Logits of all rows of one sequence that is read in chunks."""
    sequences = Sequences(executor.program, 1)
    rows = []
    for start, end in zip((0, *cuts), (*cuts, ROWS), strict=True):
        batch = sequences.batch([(0, IDS[start:end])], wanted="all")
        batch.lane = lane
        executor.step(batch)
        rows += batch.logits
    return np.array(rows)


@pytest.mark.parametrize("kind", BY_TYPE, ids=lambda kind: kind.name)
def test_prompts_are_near_the_interpreter(kind: T) -> None:
    program = random_llama(np.random.default_rng(3), kind, Shape(heads=8, layers=1))
    expected = logits(NumpyExecutor(program, max_rows=ROWS))
    with loaded(program) as executor:
        assert executor.tiles == UNIT
        assert np.abs(logits(executor) - expected).max() <= 0.25 * expected.std()


@pytest.mark.parametrize("kind", [T.Q4_1, T.Q6_K], ids=lambda kind: kind.name)
def test_a_prompts_row_has_the_same_bits_in_any_chunks_and_threads(kind: T) -> None:
    program = random_llama(np.random.default_rng(4), kind, Shape(heads=8))
    with loaded(program) as executor:
        whole = logits(executor)
        for cuts in ((1, 2, 3), (16, 32, 48, 64), (1, 18, 19, 51, 98), tuple(range(100, ROWS)), (129,)):
            assert (logits(executor, cuts) == whole).all()
        executor.set_threads(1)
        assert (logits(executor) == whole).all()
    with loaded(program, threads=3) as executor:
        assert (logits(executor, (64, 96)) == whole).all()


def test_generated_rows_stay_as_they_are() -> None:
    program = random_llama(np.random.default_rng(5), T.Q4_1)
    with loaded(program, "off") as plain, loaded(program) as tiled:
        assert plain.tiles is None
        expected = logits(plain)
        assert (logits(plain, lane="generated") == expected).all()
        assert (logits(tiled, lane="generated") == expected).all()
        assert (logits(tiled) != expected).any()
        assert (logits(tiled, lane="generated") == expected).all()


def test_float_weights_keep_their_precision() -> None:
    program = random_llama(np.random.default_rng(6), T.F16, Shape(layers=1))
    with loaded(program) as executor:
        assert (logits(executor) == logits(executor, lane="generated")).all()


def test_experts_and_products_of_one_register() -> None:
    """Experts take int8 rows in both lanes, and products beside them tiles: both are made of the same register."""
    program = mixture(T.Q8_0, n=6, used=2, renormalize=True)
    with loaded(program) as executor:
        assert (logits(executor) == logits(executor, lane="generated")).all()
    x = program.residual
    beside = ops.Matmul(x, program.hidden, random_tensor(np.random.default_rng(7), T.Q8_0, x.width, x.width), add=True)
    norm = ops.RmsNorm(program.hidden, x, None, 1e-5)
    experts = program.body[-1]
    assert isinstance(experts, ops.Experts)
    shared = ops.Experts(
        x, program.hidden, experts.router_logits, experts.gate, experts.up, experts.down, 2, "silu", True
    )
    body = (*program.body[:2], norm, shared, beside)
    both = Program(body, program.head, program.registers, x, program.hidden, program.logits, 1, 1, 16, 128, 64)
    expected = logits(NumpyExecutor(both, max_rows=ROWS))
    with loaded(both) as executor:
        whole = logits(executor)
        assert np.abs(whole - expected).max() <= 0.1 * expected.std()
        assert (logits(executor, (1, 40, 57)) == whole).all()


# -- machine code -----------------------------------------------------------------------------------------------------

CODE = """
import json
from engine.kernels.cpu import target, tile_unit
from engine.kernels.tile_matmul import PRODUCTS
print(json.dumps([target().amx, tile_unit(), PRODUCTS["amx"].compiled and PRODUCTS["amx"].assembly()]))
"""


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="compiles for x86")
def test_machine_code_for_real_tiles(tmp_path: Path) -> None:
    """Compiled for a processor that has them, not run: the instructions are there, tiles stay in registers, and the
    configuration is loaded once and neither saved nor changed."""
    run = subprocess.run(
        [sys.executable, "-c", CODE],
        env={key: value for key, value in os.environ.items() if key != TILES_VARIABLE}
        | {"NUMBA_CPU_NAME": "sapphirerapids", "NUMBA_CPU_FEATURES": AMX, "NUMBA_CACHE_DIR": str(tmp_path)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    amx, unit, code = json.loads(run.stdout)
    assert amx
    assert unit in (None, "amx")  # as this machine grants it
    found = re.findall(r"^\s+(ldtilecfg|sttilecfg|tilerelease|tilezero|tileload\w*|tilestore\w*|tdp\w+)", code, re.M)
    assert set(found) == {"ldtilecfg", "tilerelease", "tilezero", "tileloadd", "tilestored", "tdpbf16ps"}
    assert (found.count("ldtilecfg"), found.count("tilerelease")) == (1, 1)
    assert (found.count("tilezero"), found.count("tilestored")) == (6, 6)  # 2 x 2 and 1 x 2 tiles; a spill would add
