"""Scheduler: nobody waits for a long prompt longer than for a chunk of it."""

from __future__ import annotations

from engine.scheduling.pace import Pace
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
