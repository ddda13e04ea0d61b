"""The team of threads: the same bits whatever its size, no work while idle, and a step that can be ended."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import numpy as np
import pytest
from gguf import GGMLQuantizationType as T

from engine.errors import CancelledError
from engine.kernels.executor import Executor
from engine.kernels.ops import Batch, Program
from engine.kernels.sample_row import SampleRow
from engine.kernels.sampling import Sampler
from engine.kernels.team import MAX_PHASES, PHASE_WORDS, Team
from tests.kernels.programs import Sequences, random_llama

ROWS = 48


@pytest.fixture(scope="module")
def program() -> Program:
    return random_llama(np.random.default_rng(11), T.Q4_1)


@pytest.fixture
def executor(program: Program) -> Iterator[Executor]:
    executor = Executor(program, max_rows=ROWS, threads=2)
    yield executor
    executor.close()


def helpers() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("kvscope-kernel-")}


def batches(program: Program) -> tuple[Sequences, list[Batch]]:
    """A prompt, a second one beside a row of the first, then rows of both: steps of 40, 21, 2 and 1 rows."""
    rng = np.random.default_rng(12)
    sequences = Sequences(program, 2)

    def ids(n: int) -> list[int]:
        return rng.integers(0, program.n_vocab, n).tolist()

    steps = [[(0, ids(40))], [(0, ids(1)), (1, ids(20))], [(0, ids(1)), (1, ids(1))], [(1, ids(1))]]
    return sequences, [sequences.batch(rows, wanted="all") for rows in steps]


def outcome(executor: Executor, threads: list[int]) -> tuple[list[np.ndarray], np.ndarray]:
    """Logits and pages after four steps, each with its number of threads."""
    sequences, steps = batches(executor.program)
    for batch, n in zip(steps, threads, strict=True):
        executor.set_threads(n)
        assert executor.threads == n
        executor.step(batch)
    return [row for batch in steps for row in batch.logits], sequences.memory


def same(one: tuple[list[np.ndarray], np.ndarray], other: tuple[list[np.ndarray], np.ndarray]) -> bool:
    """Whether all bits are equal."""
    pairs = zip([*one[0], one[1]], [*other[0], other[1]], strict=True)
    return all(a.tobytes() == b.tobytes() for a, b in pairs)


@pytest.mark.parametrize("threads", [[2, 2, 2, 2], [3, 3, 3, 3], [3, 1, 2, 3]])
def test_the_number_of_threads_changes_no_bit(executor: Executor, threads: list[int]) -> None:
    alone = outcome(executor, [1, 1, 1, 1])
    assert all(np.isfinite(row).all() for row in alone[0])
    assert same(outcome(executor, threads), alone)


def test_threads_come_and_go_with_their_number_and_all_end_with_close(program: Program) -> None:
    others = helpers()
    executor = Executor(program, max_rows=ROWS, threads=3)
    assert len(helpers() - others) == 2
    executor.set_threads(1)
    assert helpers() - others == set()
    executor.set_threads(4)
    assert len(helpers() - others) == 3
    executor.close()
    assert helpers() - others == set()
    executor.close()
    assert helpers() - others == set()


def test_a_closed_team_still_runs_on_the_callers_thread() -> None:
    rows = [SampleRow(np.eye(9, dtype=np.float32)[i]) for i in range(9)]
    team = Team(3)
    assert Sampler(team)(rows) == list(range(9))
    team.close()
    assert team.threads == 1
    assert Sampler(team)(rows) == list(range(9))


def test_idle_threads_use_no_processor_time(executor: Executor) -> None:
    executor.set_threads(4)
    _, steps = batches(executor.program)
    executor.step(steps[0])
    threading.Event().wait(0.02)  # they may look around briefly before they sleep
    before = time.process_time()
    threading.Event().wait(0.3)
    assert time.process_time() - before < 0.05


def test_a_cancelled_step_ends_and_the_next_one_is_right(executor: Executor) -> None:
    right = outcome(executor, [2, 2, 2, 2])
    sequences, steps = batches(executor.program)
    executor.cancel = True
    with pytest.raises(CancelledError):
        executor.step(steps[0])
    assert np.isnan(steps[0].logits[-1]).all(), "a cancelled step gives no logits"
    assert not executor.cancel
    for batch in steps:
        executor.step(batch)
    assert same(([row for batch in steps for row in batch.logits], sequences.memory), right)


def test_another_thread_can_cancel_a_running_step(executor: Executor) -> None:
    right = outcome(executor, [2, 2, 2, 2])
    _, steps = batches(executor.program)
    running, ended = threading.Event(), threading.Event()

    def work() -> None:
        try:
            while True:
                executor.step(steps[0])
                running.set()
        except CancelledError:
            ended.set()

    worker = threading.Thread(target=work)
    worker.start()
    try:
        assert running.wait(60)
    finally:
        executor.cancel = True
        worker.join(60)
    assert ended.is_set()
    assert same(outcome(executor, [2, 2, 2, 2]), right)


def test_a_program_that_is_too_long_is_refused() -> None:
    team = Team(1)
    with pytest.raises(ValueError, match="at most"):
        team.run(np.zeros((MAX_PHASES + 1, PHASE_WORDS), np.int64), np.zeros(64, np.int64))
