"""Phases over a team of threads: every unit once, in order, whatever the number of threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import numpy as np
import pytest

from engine.kernels.kernel import kernel
from engine.kernels.layout import CONTEXT_WORDS
from engine.kernels.phases import Phase, PhaseOp, phase_tables
from engine.kernels.simd import get, put
from engine.kernels.team import CHECKPOINT, PARALLEL, Team


@kernel
def count_units(context, args, begin, end, scratch):
    """Add 1 for each unit."""
    for unit in range(begin, end):
        put(args, unit, get(args, unit) + 1)


@kernel
def copy_and_add(context, args, begin, end, scratch):
    """out[i] = sum of all inputs, which an earlier phase must have finished, + i."""
    total = 0
    for i in range(get(args, 0)):
        total += get(get(args, 1), i)
    for i in range(begin, end):
        put(get(args, 2), i, total + i)


@pytest.fixture(params=[1, 2, 5])
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    made = Team(request.param)
    yield made
    made.close()


def run(team: Team, phases: list[Phase], context: np.ndarray | None = None) -> None:
    table, ops = phase_tables(phases)
    team.run(table, np.zeros(CONTEXT_WORDS, np.int64) if context is None else context)
    del ops


def test_every_unit_is_done_once(team: Team) -> None:
    context = np.zeros(CONTEXT_WORDS, np.int64)
    counts = np.zeros((40, 64), np.int64)
    phases = [Phase("rows", 3, [PhaseOp(count_units, counts[i])], step=1 + i % 7) for i in range(40)]
    for n in (0, 1, 2, 50, 60):
        counts[:] = 0
        context[3] = n
        run(team, phases, context)
        assert (counts[:, :n] == 1).all()
        assert (counts[:, n:] == 0).all()


def test_operations_of_a_parallel_phase_share_out_their_own_units(team: Team) -> None:
    counts = np.zeros((3, 64), np.int64)
    ops = [PhaseOp(count_units, counts[i], units, step) for i, (units, step) in enumerate([(10, 3), (1, 5), (60, 7)])]
    run(team, [Phase("matmul", 3, ops, PARALLEL)])
    assert counts.sum(axis=1).tolist() == [10, 1, 60]
    assert counts.max() == 1


def test_a_phase_begins_when_the_one_before_is_complete(team: Team) -> None:
    """Each value is the sum of the phase before: any overlap would show."""
    n, rounds = 32, 60
    values = np.zeros((rounds + 1, n), np.int64)
    args = np.zeros((rounds, 3), np.int64)
    args[:, 0] = n
    expected = np.zeros(n, np.int64)
    for i in range(rounds):
        args[i, 1:] = values[i].ctypes.data, values[i + 1].ctypes.data
    phases = [Phase("rows", -1, [PhaseOp(copy_and_add, args[i])], multiplier=n) for i in range(rounds)]
    for _ in range(20):
        values[1:] = -1
        run(team, phases)
        for i in range(rounds):
            with np.errstate(over="ignore"):
                expected = values[i].sum() + np.arange(n)
            assert (values[i + 1] == expected).all()


def test_the_cancel_flag_is_looked_at_before_marked_phases() -> None:
    team = Team(2)
    counts = np.zeros((3, 64), np.int64)
    phases = [Phase("rows", -1, [PhaseOp(count_units, counts[i])], multiplier=8) for i in range(3)]
    phases[1].flags = CHECKPOINT
    team.cancelled = True
    run(team, phases)
    assert counts.sum(axis=1).tolist() == [8, 0, 0]
    team.cancelled = False
    run(team, phases)
    assert counts.sum(axis=1).tolist() == [16, 8, 8]
    team.close()


def helpers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("kvscope-kernel")]


def test_threads_come_and_go() -> None:
    others = len(helpers())  # of models that other tests share
    team = Team(4)
    assert len(helpers()) == others + 3
    counts = np.zeros((1, 64), np.int64)
    for threads in (2, 6, 1, 3):
        team.set_threads(threads)
        assert (team.threads, len(helpers())) == (threads, others + threads - 1)
        run(team, [Phase("rows", -1, [PhaseOp(count_units, counts[0])], multiplier=64)])
    assert (counts == 4).all()
    team.close()
    assert len(helpers()) == others
    run(team, [Phase("rows", -1, [PhaseOp(count_units, counts[0])], multiplier=64)])
    assert (counts == 5).all()


def test_time_is_counted_by_kind() -> None:
    team = Team(2)
    counts = np.zeros((1, 64), np.int64)
    team.profile(True)
    for _ in range(200):
        run(team, [Phase("attention", -1, [PhaseOp(count_units, counts[0])], multiplier=64)])
    seconds = team.seconds()
    team.profile(False)
    assert 0 < seconds[2] < 5
    assert seconds[[0, 1, 3, 4]].sum() == 0
    team.close()
