"""Scheduler: nobody waits for a long prompt longer than for a chunk of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from engine.cache.session import Session
from engine.scheduling.pace import FRESH, Pace
from tests.desk import Desk


def test_no_step_reads_more_than_a_chunk() -> None:
    desk = Desk(chunk=7, n_ctx=200, pages=200)
    for id in range(5):
        desk.submit(id, [id, *range(20 + 7 * id)], max_new=5)
    desk.drain()
    read = [sum(tokens for _, tokens in report.prefilled) for report in desk.reports]
    assert max(read) == 7
    assert all(desk.finished[id].reason == "length" for id in range(5))


def test_running_streams_get_a_token_in_every_step_while_a_long_prompt_is_read() -> None:
    desk = Desk(chunk=8, n_ctx=300, pages=200)
    desk.submit(1, [1, 2, 3], max_new=60)
    desk.submit(2, [4, 5], max_new=60)
    desk.step(2)
    desk.submit(3, list(range(50)) * 4, max_new=1)
    desk.step(25)
    for report in desk.reports[2:]:
        assert report.decoded[:2] == (1, 2)
        assert sum(tokens for _, tokens in report.prefilled) == 8
    assert desk.finished[3].n_prompt == 200


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    desk = Desk(chunk=8, n_ctx=300, pages=200)
    desk.submit(1, list(range(50)) * 5, max_new=1)
    desk.step(4)
    desk.submit(2, [7, 7, 7], max_new=1)
    desk.step(2)
    assert 2 in desk.finished and 1 not in desk.finished


def test_a_long_prompt_does_not_starve_under_a_flow_of_short_ones() -> None:
    desk = Desk(chunk=8, n_ctx=300, pages=400, cache=False, max_streams=4)
    desk.submit(0, list(range(50)) * 2, max_new=1)
    for id in range(1, 400):
        if 0 in desk.finished:
            break
        desk.submit(id, [id % 50] * 8, max_new=1)
        desk.step()
    assert 0 in desk.finished and id < 100


def test_queued_requests_come_in_their_order() -> None:
    desk = Desk(max_streams=1)
    for id in (5, 3, 9, 1):
        desk.submit(id, [id], max_new=2)
    desk.drain()
    assert list(desk.finished) == [5, 3, 9, 1]


def test_pace_reads_whole_chunks_while_nothing_decodes() -> None:
    pace = Pace(128, 2.0, 16)
    assert pace.budget(0.0) == 128
    pace.spent(128, 0.128)
    assert pace.budget(0.0) == 128
    assert Pace(128, None, 16).budget(1.0) == 128


def test_pace_grants_a_burst_then_twice_the_time_of_a_decode() -> None:
    pace = Pace(128, 2.0, 16)
    pace.spent(128, 0.128)  # a millisecond for each token
    assert pace.budget(0.0) == 128
    granted = []
    for _ in range(12):
        tokens = pace.budget(0.020)
        granted.append(tokens)
        pace.spent(tokens, tokens * 0.001)
    assert granted[0] == 128
    assert granted[1:] == [32, *[48, 32] * 5] or set(granted[1:]) <= {32, 48}
    assert sum(granted[1:]) * 0.001 <= 11 * 2 * 0.020 + 0.016


def test_pace_always_grants_a_little() -> None:
    pace = Pace(128, 2.0, 16)
    pace.spent(16, 1.0)
    pace.budget(0.0)
    for _ in range(5):
        tokens = pace.budget(0.001)
        pace.spent(tokens, tokens / 16)
    assert tokens == 16
    assert Pace(8, 2.0, 16).budget(1.0) == 8


def test_a_paced_scheduler_still_reads_everything() -> None:
    desk = Desk(chunk=8, pace=2.0, n_ctx=300, pages=200)
    desk.submit(1, [1, 2], max_new=50)
    desk.step()
    desk.submit(2, list(range(50)) * 2, max_new=3)
    desk.drain()
    assert desk.right(1, [1, 2]) and desk.right(2, list(range(50)) * 2)


def test_a_prompt_is_read_in_the_same_pass_as_running_streams_decode() -> None:
    """Once the time of their decode is known; what is left of the step's grant is read apart."""
    desk = Desk(shared_rows=16, chunk=8, n_ctx=300, pages=200)
    desk.submit(1, [1, 2], max_new=40)
    desk.submit(2, [3], max_new=40)
    desk.step(2)
    prompt = list(range(30))
    desk.submit(3, prompt, max_new=3)
    desk.submit(4, [9, *range(40)], max_new=3)
    desk.step(4)
    reports = desk.reports[-4:]
    assert [r.decoded for r in reports] == [(1, 2)] * 4
    assert [dict(r.prefilled) for r in reports] == [*[{3: 8}] * 3, {3: 6, 4: 2}]
    assert desk.model.passes_shared == 4
    assert all(r.prefill_us >= 0 and r.decode_us >= 0 for r in reports)
    desk.drain()
    assert desk.right(1, [1, 2]) and desk.right(2, [3]) and desk.right(3, prompt) and desk.right(4, [9, *range(40)])


def test_what_does_not_fit_into_a_pass_is_read_apart() -> None:
    desk = Desk(shared_rows=9, chunk=8, n_ctx=300, pages=200)
    for id in (1, 2):
        desk.submit(id, [id], max_new=40)
    desk.step(3)
    desk.submit(3, list(range(30)), max_new=3)
    desk.step(3)
    assert [dict(r.prefilled)[3] for r in desk.reports[-3:]] == [8] * 3
    assert desk.model.passes_shared == 0


def test_a_prompt_is_read_although_the_number_of_running_streams_is_new_in_every_step() -> None:
    desk = Desk(shared_rows=64, max_streams=30, max_queue=40, n_ctx=64, pages=200, chunk=64)
    for id in range(20):
        desk.submit(id, [id], max_new=3 + id)
    desk.step(2)
    desk.submit(50, list(range(30)), max_new=1)
    desk.step()
    assert dict(desk.reports[-1].prefilled) == {50: 30}


def test_a_failure_in_a_shared_pass_ends_only_the_stream_that_causes_it() -> None:
    desk = Desk(shared_rows=16)
    desk.submit(1, [1, 2], max_new=20)
    desk.step(3)

    def fail(_name: str, sessions: Sequence[Session]) -> None:
        if any(session.n_past < 8 and session.tokens[:1] != [1] for session in sessions):
            raise RuntimeError("broken")

    desk.model.on_call = fail
    desk.submit(2, [7] * 8, max_new=3)
    desk.drain()
    assert desk.finished[2].reason == "error" and desk.finished[2].error == "broken"
    assert desk.finished[1].reason == "length" and desk.right(1, [1, 2])


def test_pace_counts_what_a_shared_pass_takes_over_a_decode() -> None:
    pace = Pace(128, 1.0, 2)
    assert not pace.knows(4)
    pace.decoded(4, 0.010)
    assert pace.knows(4) and not pace.knows(3)
    assert pace.expected(4) == 0.010
    assert pace.shared(10, 4, 0.015) == pytest.approx(0.005)
    assert pace.budget(0.010) == 20
    assert pace.shared(8, 4, 0.009) == pytest.approx(8 * 0.010 / 32)  # no row is for nothing, whatever the clock said
    for _ in range(FRESH - 1):
        pace.expected(4)
    assert not pace.knows(4)
