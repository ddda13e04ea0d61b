"""The executor: whole programs, what a step leaves where, cancelling, closing."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from engine.errors import CancelledError, UnsupportedModelError
from engine.kernels.executor import Executor
from engine.kernels.formats import BY_TYPE
from engine.kernels.ops import Program
from engine.kernels.reference import NumpyExecutor
from tests.kernels.programs import Sequences, Shape, random_llama

IDS = np.random.default_rng(1).integers(0, 203, 300).tolist()


@pytest.fixture(scope="module")
def program() -> Program:
    return random_llama(np.random.default_rng(2), T.Q4_1)


@pytest.fixture
def executor(program: Program) -> Iterator[Executor]:
    made = Executor(program, max_rows=64, threads=2)
    yield made
    made.close()


@pytest.mark.parametrize("kind", [T.Q4_0, T.Q5_1, T.Q4_K, T.Q6_K, T.IQ4_XS], ids=lambda kind: kind.name)
def test_quantized_programs_are_near_the_interpreters(kind: T) -> None:
    program = random_llama(np.random.default_rng(3), kind, Shape(heads=8))
    executor = Executor(program, max_rows=64, threads=2)
    try:
        ours, theirs = Sequences(program, 1), Sequences(program, 1)
        batch, expected = ours.batch([(0, IDS[:50])]), theirs.batch([(0, IDS[:50])])
        executor.step(batch)
        NumpyExecutor(program, max_rows=64).step(expected)
        assert np.abs(batch.logits[0] - expected.logits[0]).max() <= 0.25 * expected.logits[0].std()
    finally:
        executor.close()


@pytest.mark.parametrize("kind", [T.Q4_1, T.F16], ids=lambda kind: kind.name)
def test_a_row_has_the_same_bits_whatever_shares_its_step(kind: T) -> None:
    """Widths 1 … 13, so that every tile width occurs, and chunks of 1 … 64; one and three threads."""
    program = random_llama(np.random.default_rng(4), kind, Shape(layers=1))
    executor = Executor(program, max_rows=64, threads=2)
    try:
        for threads in (1, 3):
            executor.set_threads(threads)
            for n in (2, 3, 5, 7, 13):
                together, alone = Sequences(program, n), Sequences(program, n)
                for who in range(n):
                    executor.step(together.batch([(who, IDS[who : 2 * who + 3])]))
                    for token in IDS[who : 2 * who + 3]:
                        executor.step(alone.batch([(who, [token])]))
                batch = together.batch([(who, [IDS[who]]) for who in range(n)])
                executor.step(batch)
                for who in range(n):
                    single = alone.batch([(who, [IDS[who]])])
                    executor.step(single)
                    assert (single.logits[0] == batch.logits[who]).all()
    finally:
        executor.close()


def test_logits_of_any_rows_and_final_states(program: Program, executor: Executor) -> None:
    all_rows = Sequences(program, 1).batch([(0, IDS[:20])], wanted="all")
    executor.step(all_rows)
    some = Sequences(program, 1).batch([(0, IDS[:20])])
    some.wanted, some.logits = np.array([3, 7, 19], np.int32), [np.zeros(program.n_vocab, np.float32) for _ in range(3)]
    some.hidden = np.zeros((3, program.hidden.width), np.float32)
    executor.step(some)
    for row, logits in zip(some.wanted, some.logits, strict=True):
        assert (logits == all_rows.logits[row]).all()
    only_hidden = Sequences(program, 1).batch([(0, IDS[:20])])
    only_hidden.wanted, only_hidden.logits, only_hidden.hidden = some.wanted, [], np.zeros_like(some.hidden)
    executor.step(only_hidden)
    assert (only_hidden.hidden == some.hidden).all()
    assert np.abs(some.hidden).max() > 0


def test_nothing_is_written_behind_a_row_of_logits(program: Program, executor: Executor) -> None:
    """203 entries are no whole number of vectors."""
    guarded = np.full(program.n_vocab + 32, 5.0, np.float32)
    batch = Sequences(program, 1).batch([(0, IDS[:3])])
    batch.logits = [guarded[: program.n_vocab]]
    executor.step(batch)
    assert (guarded[program.n_vocab :] == 5.0).all()
    assert np.isfinite(guarded).all()


def test_rows_without_wanted_logits_still_reach_their_pages(program: Program, executor: Executor) -> None:
    sequences, plain = Sequences(program, 1), Sequences(program, 1)
    silent = sequences.batch([(0, IDS[:40])])
    silent.wanted, silent.logits = np.zeros(0, np.int32), []
    executor.step(silent)
    executor.step(plain.batch([(0, IDS[:40])]))
    after, expected = sequences.batch([(0, IDS[40:41])]), plain.batch([(0, IDS[40:41])])
    executor.step(after)
    executor.step(expected)
    assert (after.logits[0] == expected.logits[0]).all()


def test_cancel_ends_a_step_and_the_next_one_runs(program: Program, executor: Executor) -> None:
    executor.cancel = True
    with pytest.raises(CancelledError):
        executor.step(Sequences(program, 1).batch([(0, IDS[:40])]))
    batch = Sequences(program, 1).batch([(0, IDS[:40])])
    executor.step(batch)
    assert np.isfinite(batch.logits[0]).all()


def test_too_many_rows_are_refused(program: Program, executor: Executor) -> None:
    with pytest.raises(ValueError, match="1 to 64 rows, not 65"):
        executor.step(Sequences(program, 1).batch([(0, IDS[:65])]))


def test_loading_tells_progress_and_can_be_cancelled(program: Program) -> None:
    others = set(threading.enumerate())  # models that other tests share have threads of their own
    heard: list[float] = []
    Executor(program, max_rows=8, threads=1, progress=heard.append).close()
    assert heard == sorted(heard)
    assert heard[-1] == 1.0
    with pytest.raises(CancelledError):
        Executor(program, max_rows=8, threads=2, cancelled=lambda: True)
    left = set(threading.enumerate()) - others
    assert not [thread for thread in left if thread.name.startswith("kvscope-kernel")]


def test_small_heads_are_refused_in_plain_words() -> None:
    program = random_llama(np.random.default_rng(5), T.F32, Shape(head_size=8))
    with pytest.raises(UnsupportedModelError, match="heads of 8 values are too small"):
        Executor(program, max_rows=8, threads=1)


def test_tied_weights_are_packed_once(program: Program, executor: Executor) -> None:
    tensors = {id(op.weight): op.weight.data.nbytes for op in program.body if hasattr(op, "weight") and op.weight}
    embedding = program.head[1].weight.data.nbytes
    assert executor.weights_bytes <= 1.1 * (sum(tensors.values()) + embedding) + 4096
    assert T(program.head[1].weight.type) in BY_TYPE
