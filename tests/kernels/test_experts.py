"""Mixtures of experts."""

from __future__ import annotations

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from engine.kernels import ops
from engine.kernels.executor import Executor
from engine.kernels.ops import Program, Reg
from engine.kernels.reference import NumpyExecutor
from tests.kernels.programs import Sequences, random_tensor

VOCAB, WIDTH, INNER = 203, 256, 256


def mixture(kind: T, *, n: int, used: int, renormalize: bool, ties: bool = False) -> Program:
    """Embedding, router, experts, head."""
    rng = np.random.default_rng(3)
    x, router, normed, logits = Reg(0, WIDTH), Reg(1, n), Reg(2, WIDTH), Reg(3, 64)
    up_shape, down_shape = (n, INNER, WIDTH), (n, WIDTH, INNER)
    gate, up, down = (random_tensor(rng, kind, *shape, size=1 / 16) for shape in (up_shape, up_shape, down_shape))
    routing = random_tensor(rng, T.F32, n, WIDTH, size=0.0 if ties else 0.2)
    body = (
        ops.Embed(x, random_tensor(rng, T.F32, VOCAB, WIDTH, size=1.0)),
        ops.Matmul(router, x, routing),
        ops.Experts(x, x, router, gate, up, down, used, "silu", renormalize, 0.7),
    )
    head = (
        ops.RmsNorm(normed, x, None, 1e-5),
        ops.Matmul(logits, normed, random_tensor(rng, T.F32, 64, WIDTH, size=1 / 16)),
    )
    return Program(body, head, (WIDTH, n, WIDTH, 64), x, normed, logits, 1, 1, 16, 128, 64)


def run(executor: Executor | NumpyExecutor, chunks: list[list[int]]) -> np.ndarray:
    sequences = Sequences(executor.program, 1)
    rows = []
    for ids in chunks:
        batch = sequences.batch([(0, ids)], wanted="all")
        executor.step(batch)
        rows += batch.logits
    return np.array(rows)


@pytest.mark.parametrize(("n", "used", "renormalize"), [(6, 2, True), (20, 4, False), (128, 8, True)])
@pytest.mark.parametrize(("kind", "tolerance"), [(T.F32, 1e-5), (T.Q8_0, 0.06), (T.MXFP4, 0.1)])
def test_mixture(kind: T, tolerance: float, n: int, used: int, renormalize: bool) -> None:
    """Near the interpreter; and a row has the same bits alone and in company."""
    program = mixture(kind, n=n, used=used, renormalize=renormalize)
    ids = np.random.default_rng(4).integers(0, VOCAB, 40).tolist()
    executor = Executor(program, max_rows=64, threads=2)
    try:
        together = run(executor, [ids])
        assert np.abs(together - run(NumpyExecutor(program, max_rows=64), [ids])).max() <= tolerance
        assert (run(executor, [[i] for i in ids]) == together).all()
    finally:
        executor.close()


def test_of_equal_experts_the_first_are_taken() -> None:
    program = mixture(T.F32, n=20, used=3, renormalize=True, ties=True)
    executor = Executor(program, max_rows=8, threads=1)
    try:
        expected = run(NumpyExecutor(program, max_rows=8), [[1, 2, 3]])
        assert np.abs(run(executor, [[1, 2, 3]]) - expected).max() <= 1e-5
    finally:
        executor.close()
