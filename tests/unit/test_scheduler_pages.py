"""Scheduler and pool: who is let in, who must go, what is donated, shared and completed for the next turn."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from engine.cache.session import Session
from engine.scheduling.events import Finished
from tests.desk import VOCAB, Desk, P
from tests.fakes import reply

CLOSE = (48, 49)


def kept_by(desk: Desk, id: int) -> list[int]:
    """The tokens of a reply that a chat keeps."""
    return desk.tokens(id)[: desk.finished[id].n_kept]


# Reuse


def test_a_finished_stream_donates_and_the_next_attaches() -> None:
    desk = Desk()
    desk.run(1, range(10), max_new=3, label="first", chat="a")
    assert desk.cache is not None
    (chain,) = desk.cache.chains()
    assert (chain.label, chain.chat, chain.id) == ("first", "a", desk.finished[1].chain)
    before = desk.model.prompt_tokens
    finished = desk.run(2, [*range(9), 40, 41], max_new=3)
    assert (finished.n_cached, desk.model.prompt_tokens - before) == (8, 3)
    assert desk.right(2, [*range(9), 40, 41])
    assert finished.miss is None


def test_the_cause_of_a_miss_comes_with_the_last_event() -> None:
    desk = Desk()
    desk.run(1, range(14), max_new=3, label="first", chat="a")
    finished = desk.run(2, [*range(9), 40, *range(10, 20)], max_new=3, chat="a")
    assert finished.miss is not None
    assert (finished.miss.cause, finished.miss.token_position, finished.miss.chain_label) == ("diverged", 9, "first")


def test_four_chats_over_one_system_prompt_read_it_once() -> None:
    desk = Desk(chunk=64)
    system = list(range(3 * P + 1))
    for id in range(4):
        desk.submit(id, [*system, 30 + id, 40, 41], max_new=4, chat=str(id))
    desk.step()
    assert [desk.scheduler.states()[id].n_cached for id in range(4)] == [0, 3 * P, 3 * P, 3 * P]
    assert desk.model.prompt_tokens == len(system) + 3 + 3 * 4
    desk.drain()
    assert all(desk.right(id, [*system, 30 + id, 40, 41]) for id in range(4))


def test_a_long_prefix_that_two_streams_read_at_once_is_computed_once() -> None:
    desk = Desk(chunk=8)
    prompt = list(range(40))
    desk.submit(1, prompt, max_new=2)
    desk.submit(2, [*prompt, 41], max_new=2)
    desk.drain()
    assert desk.model.prompt_tokens <= len(prompt) + 1 + 2 * P
    assert desk.right(1, prompt) and desk.right(2, [*prompt, 41])
    assert desk.finished[1].n_cached + desk.finished[2].n_cached >= 36


def test_sharing_in_flight_can_be_switched_off() -> None:
    desk = Desk(chunk=64, share_in_flight=False)
    for id in range(3):
        desk.submit(id, [*range(12), 30 + id], max_new=2)
    desk.drain()
    assert [desk.finished[id].n_cached for id in range(3)] == [0, 0, 0]
    assert desk.model.prompt_tokens == 3 * 13
    assert desk.cache is not None and desk.cache.held_pages == 3 + 0


def test_without_a_cache_nothing_is_reused_and_the_replies_are_the_same() -> None:
    desk = Desk(cache=False)
    for id in range(3):
        desk.run(id, range(12), max_new=4, close_tokens=CLOSE)
    assert desk.tokens(0) == desk.tokens(1) == desk.tokens(2) == reply(range(12), 4, VOCAB)
    assert desk.model.prompt_tokens == 36
    assert desk.scheduler.pool.counts().free == 64


# What the next turn must compute


@pytest.mark.parametrize("length", range(5, 5 + P))
@pytest.mark.parametrize("ending", ["stop", "length", "cancel", "stop string", "cancel while reading"])
def test_the_next_turn_computes_its_new_tokens_the_close_and_less_than_a_page(ending: str, length: int) -> None:
    desk = Desk(n_ctx=200, pages=80)
    history: list[int] = []
    for turn in range(10):
        new = [(turn * 7 + i) % 40 for i in range(length)]
        prompt = [*history, *new]
        expected = reply(prompt, 8, VOCAB)
        stop_ids = frozenset(expected[5:6]) if ending == "stop" else frozenset[int]()
        stops = (f"<{expected[4]}>",) if ending == "stop string" else ()
        n_prompt = desk.model.prompt_tokens
        desk.submit(turn, prompt, max_new=6, stop_ids=stop_ids, stop_strings=stops, close_tokens=CLOSE, chat="c")
        if ending == "cancel":
            while len(desk.tokens(turn)) < 3:
                desk.step()
            desk.scheduler.cancel(turn)
        elif ending == "cancel while reading" and turn % 2:
            desk.step()
            desk.scheduler.cancel(turn)
        desk.drain()
        finished = desk.finished[turn]
        read = finished.n_prompt - finished.n_cached
        assert turn == 0 or read < len(new) + len(CLOSE) + P, (turn, finished)
        assert desk.model.prompt_tokens - n_prompt <= read + len(CLOSE) + P
        history = [*prompt, *kept_by(desk, turn), *CLOSE]
    assert desk.cache is not None and len(desk.cache.chains()) <= 2


def test_the_tail_that_completes_a_page_is_computed_and_no_more() -> None:
    for n_prompt in range(4, 12):
        desk = Desk()
        desk.run(1, range(n_prompt), max_new=3, close_tokens=CLOSE)
        history = n_prompt + 3 + len(CLOSE)
        evaluated = n_prompt + 2  # the last token of the reply was sampled, not evaluated
        tail = max(0, history // P * P - evaluated)
        assert desk.model.prompt_tokens == n_prompt + tail
        assert desk.cache is not None and desk.cache.held_pages == history // P


def test_completing_a_page_is_bounded_by_the_chunk_and_comes_after_the_last_event() -> None:
    desk = Desk(chunk=2)
    desk.submit(1, range(7), max_new=2, close_tokens=tuple(range(10, 19)))
    while 1 not in desk.finished:
        desk.step()
    assert desk.scheduler.has_work and desk.scheduler.states() == ()
    n = len(desk.reports)
    desk.drain()
    late = [dict(report.prefilled).get(1, 0) for report in desk.reports[n:]]
    assert sum(late) == 16 - 8 and max(late) <= 2


def test_completing_a_page_survives_cancellations_and_reuse_of_the_id() -> None:
    desk = Desk(chunk=2)
    desk.submit(1, range(7), max_new=9, close_tokens=tuple(range(10, 19)), chat="a")
    while not desk.tokens(1):
        desk.step()
    assert desk.scheduler.cancel(1) is True
    desk.step()
    assert desk.finished[1].reason == "cancelled"
    assert desk.scheduler.cancel(1) is False
    chain = desk.finished[1].chain
    desk.submit(1, [30, 31], max_new=1)
    desk.drain()
    assert desk.finished[1].n_gen == 1
    assert desk.cache is not None
    (grown,) = (info for info in desk.cache.chains() if info.id == chain)
    assert grown.n_tokens == 16 and len(grown.pages) == 4


def test_an_error_while_completing_a_page_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.submit(1, range(8), max_new=2, close_tokens=CLOSE)
    while 1 not in desk.finished:
        desk.step()

    def fail(name: str, _sessions: Sequence[Session]) -> None:
        raise RuntimeError("no")

    desk.model.on_call = fail
    desk.drain()
    assert desk.finished[1].reason == "length" and "could not be completed" in caplog.text


# A dry pool


def test_cached_pages_are_shed_before_any_stream_suffers() -> None:
    desk = Desk(pages=6)
    desk.run(1, range(12), max_new=1, label="old")
    finished = desk.run(2, range(20, 36), max_new=4, chat="b")
    assert finished.reason == "length" and desk.right(2, range(20, 36))
    evictions = [eviction for report in desk.reports for eviction in report.evictions]
    assert sum(eviction.pages for eviction in evictions) >= 2
    assert {(eviction.label, eviction.evicted_for) for eviction in evictions} == {("old", "b")}
    again = desk.run(3, range(13), max_new=1)
    assert again.miss is not None and again.miss.cause == "evicted"
    assert again.miss.evicted_at in {eviction.at for eviction in evictions}


@pytest.mark.parametrize("cache", [True, False])
def test_the_youngest_stream_is_evicted_and_the_older_go_on(cache: bool) -> None:
    desk = Desk(pages=8, cache=cache)
    prompts = {id: [id, *range(4)] for id in (1, 2, 3)}
    for id, prompt in prompts.items():
        desk.submit(id, prompt, max_new=20)
    desk.drain()
    reasons = {id: desk.finished[id].reason for id in prompts}
    assert reasons[1] == "length" and "evicted" in reasons.values()
    assert all(desk.right(id, prompt) for id, prompt in prompts.items())
    for before, report in pairwise(desk.reports):
        gone = [event.stream for event in report.events if isinstance(event, Finished) and event.reason == "evicted"]
        admitted = [state.stream for state in before.streams if state.phase != "queued"]
        assert gone == [] or gone == admitted[-len(gone) :]


def test_a_stream_alone_that_outgrows_the_pool_is_evicted_with_what_it_wrote() -> None:
    desk = Desk(pages=3)
    finished = desk.run(1, range(8), max_new=30)
    assert (finished.reason, finished.n_gen) == ("evicted", 5)
    assert desk.tokens(1) == reply(range(8), 5, VOCAB)
    assert desk.cache is not None and desk.cache.held_pages == 3


def test_a_prompt_waits_until_it_fits_beside_the_others() -> None:
    desk = Desk(pages=8, cache=False)
    desk.submit(1, range(12), max_new=8)
    desk.submit(2, range(20, 34), max_new=2)
    desk.submit(3, [1], max_new=1)
    desk.step(3)
    assert [state.phase for state in desk.scheduler.states()] == ["decoding", "queued", "queued"]
    desk.drain()
    assert [desk.finished[id].reason for id in (1, 2, 3)] == ["length"] * 3


def test_a_cached_prefix_counts_when_a_prompt_asks_for_room() -> None:
    desk = Desk(pages=12)
    desk.run(0, range(20), max_new=1)
    desk.submit(1, [*range(20), 1], max_new=3)
    desk.step()
    desk.submit(2, [*range(20), 2], max_new=3)
    desk.step()
    assert set(desk.scheduler.stream_pages()) == {1, 2}
    desk.drain()
    assert [desk.finished[id].n_cached for id in (1, 2)] == [20, 20]


def test_pinned_pages_that_leave_no_room_end_in_an_error_not_in_silence() -> None:
    desk = Desk(pages=4)
    desk.run(1, range(12), max_new=1)
    assert desk.cache is not None
    (chain,) = desk.cache.chains()
    desk.cache.pin(chain.id)
    finished = desk.run(2, range(20, 30), max_new=1)
    assert (finished.reason, finished.error_code) == ("error", "pool_exhausted") and "unpin" in finished.error


def test_a_release_during_a_run_takes_nothing_from_the_streams() -> None:
    desk = Desk()
    desk.run(0, range(12), max_new=1)
    desk.submit(1, [*range(12), 1, 2], max_new=9)
    desk.step(4)
    assert desk.cache is not None
    report = desk.cache.release_all()
    assert report.shared == 3
    desk.drain()
    assert desk.right(1, [*range(12), 1, 2]) and desk.finished[1].n_gen == 9


# Cancelling


def test_cancel_in_the_queue() -> None:
    desk = Desk(max_streams=1)
    desk.submit(1, range(5), max_new=4)
    desk.submit(2, range(5), max_new=4)
    desk.step()
    assert desk.scheduler.cancel(2) is True
    assert desk.scheduler.cancel(2) is False
    desk.step()
    cancelled = desk.finished[2]
    assert (cancelled.reason, cancelled.n_gen, cancelled.n_cached, cancelled.ttft_us) == ("cancelled", 0, 0, 0)
    desk.drain()
    assert desk.finished[1].reason == "length"


def test_cancel_before_the_first_step_still_gives_a_last_event() -> None:
    desk = Desk()
    desk.submit(1, range(5))
    desk.scheduler.cancel(1)
    assert desk.scheduler.has_work
    (event,) = desk.step()
    assert isinstance(event, Finished) and event.reason == "cancelled"
    assert not desk.scheduler.has_work


def test_cancel_while_reading_keeps_what_was_read() -> None:
    desk = Desk()
    desk.submit(1, range(30), close_tokens=CLOSE)
    desk.step()
    desk.scheduler.cancel(1)
    desk.step()
    assert desk.finished[1].reason == "cancelled" and not desk.scheduler.has_work
    assert desk.model.prompt_tokens == 8
    assert desk.run(2, range(30), max_new=1).n_cached == 8


def test_cancel_while_decoding_takes_effect_with_the_next_step() -> None:
    desk = Desk()
    desk.submit(1, range(5), max_new=50)
    desk.step(4)
    rows = desk.model.generated_rows
    desk.scheduler.cancel(1)
    desk.step()
    assert (desk.finished[1].reason, desk.finished[1].n_gen) == ("cancelled", 4)
    assert desk.model.generated_rows == rows


def test_cancel_in_the_step_that_finishes_a_stream_gives_one_last_event() -> None:
    desk = Desk()
    desk.submit(1, range(5), max_new=3)
    desk.step(2)

    def cancel(name: str, _sessions: Sequence[Session]) -> None:
        if name == "sample_batch":
            assert desk.scheduler.cancel(1) is True

    desk.model.on_call = cancel
    desk.drain()
    assert desk.finished[1].reason == "cancelled"
    assert desk.scheduler.cancel(1) is False and desk.step() == []


def test_cancelling_what_never_was_does_nothing() -> None:
    desk = Desk()
    assert desk.scheduler.cancel(99) is False and not desk.scheduler.has_work
