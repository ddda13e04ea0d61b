"""Attention over pages: against the interpreter, and the same bits however rows, pages and threads are arranged.

Pages start as NaN, so reading a position that was never written would show.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from engine.kernels.executor import Executor
from engine.kernels.ops import Program
from engine.kernels.reference import NumpyExecutor
from tests.kernels.programs import Sequences, Shape, random_llama

CASES = {
    "grouped 3": (Shape(), {}),
    "grouped 7": (Shape(heads=14, kv_heads=2, head_size=64), {"pairs": "halves"}),
    "grouped 9, odd size": (Shape(heads=9, kv_heads=1, head_size=80), {}),
    "window and softcap": (Shape(heads=2, kv_heads=2, head_size=24), {"window": 100, "cap": 20.0}),
    "window over partitions": (Shape(heads=4, kv_heads=1, head_size=16), {"window": 700}),
}
LENGTH = 1253
IDS = np.random.default_rng(1).integers(0, 203, LENGTH).tolist()


@pytest.fixture(params=CASES)
def program(request: pytest.FixtureRequest) -> Program:
    shape, options = CASES[request.param]
    return random_llama(np.random.default_rng(2), T.F32, shape, **options)


@pytest.fixture
def executor(program: Program) -> Iterator[Executor]:
    made = Executor(program, max_rows=128, threads=2)
    yield made
    made.close()


def read(executor: Executor | NumpyExecutor, chunks: list[int], **options: object) -> np.ndarray:
    """Logits after the last token, the text read in ``chunks``."""
    sequences = Sequences(executor.program, 1, pages=120, **options)
    at = 0
    for n in chunks:
        batch = sequences.batch([(0, IDS[at : at + n])])
        executor.step(batch)
        at += n
    assert at == LENGTH
    return batch.logits[0]


def test_logits_equal_the_interpreters(program: Program, executor: Executor) -> None:
    chunks = [128] * 9 + [101]
    expected = read(NumpyExecutor(program, max_rows=128), chunks)
    assert np.abs(read(executor, chunks) - expected).max() <= 2e-3 * expected.std()


def test_the_bits_do_not_depend_on_chunks_pages_or_threads(executor: Executor) -> None:
    expected = read(executor, [128] * 9 + [101])
    shuffled = np.random.default_rng(3)
    assert (read(executor, [7, 100, 50] + [77] * 13 + [95], page_rows=48, rng=shuffled) == expected).all()
    assert (read(executor, [128] * 9 + [100, 1], rng=shuffled) == expected).all()
    for threads in (1, 5):
        executor.set_threads(threads)
        assert (read(executor, [128] * 9 + [98, 1, 1, 1]) == expected).all()


def test_the_bits_do_not_depend_on_batch_mates(executor: Executor) -> None:
    """One long sequence and three others advance together: by prompts of different lengths, then by single rows."""
    together = Sequences(executor.program, 4, pages=60)
    alone = [Sequences(executor.program, 4, pages=60) for _ in range(4)]
    steps = [[(0, IDS[i : i + 100])] for i in range(0, 600, 100)]
    steps += [[(0, IDS[600:620]), (1, IDS[:30]), (2, IDS[5:6]), (3, IDS[9:60])]]
    steps += [[(who, [IDS[who + i]]) for who in (3, 0, 2, 1)] for i in range(3)]
    for step in steps:
        batch = together.batch(step)
        executor.step(batch)
        for (who, ids), logits in zip(step, batch.logits, strict=True):
            single = alone[who].batch([(who, ids)])
            executor.step(single)
            assert (single.logits[0] == logits).all()


def test_float32_pages(program: Program) -> None:
    executor = Executor(program, max_rows=128, threads=2, kv_dtype="float32")
    try:
        chunks = [128] * 9 + [101]
        interpreter = NumpyExecutor(program, max_rows=128, kv_dtype="float32")
        expected = read(interpreter, chunks, kv_dtype="float32")
        assert np.abs(read(executor, chunks, kv_dtype="float32") - expected).max() <= 1e-4 * expected.std()
    finally:
        executor.close()
