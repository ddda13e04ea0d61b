"""Serving on the real model: what is shared, what comes back, and that nothing of it changes a reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import pytest

from engine.assembly import scheduler_over
from engine.cli.demo_serving import FIRST_QUESTIONS, NEW_QUESTIONS, SYSTEM
from engine.model.language_model import LanguageModel
from engine.port import Turn
from engine.scheduling.events import Finished, Piece
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler

PAGE = 16
LONG = tuple(1000 + 7 * i % 30_000 for i in range(700))


@dataclass
class Served:
    """What a scheduler said: the ids of each reply, and its last event."""

    scheduler: Scheduler
    ids: dict[int, list[int]] = field(default_factory=dict)
    finished: dict[int, Finished] = field(default_factory=dict)

    def step(self) -> None:
        for event in self.scheduler.step():
            match event:
                case Piece(token=int()):
                    self.ids.setdefault(event.stream, []).append(event.token)
                case Finished():
                    self.finished[event.stream] = event
        self.scheduler.check_integrity()

    def until(self, condition: Callable[[], bool]) -> None:
        for _ in range(1000):
            if condition():
                return
            self.step()
        raise AssertionError("it did not happen in 1,000 steps")

    def run(self, requests: Iterable[Request]) -> None:
        """Submit all and run dry; then every page is free or cached."""
        for request in requests:
            self.scheduler.submit(request)
        self.until(lambda: not self.scheduler.has_work)
        self.at_rest()

    def at_rest(self) -> None:
        counts = self.scheduler.pool.counts()
        assert counts.referenced == 0 and counts.free + counts.cached == counts.capacity

    def phase(self, stream: int) -> str:
        """Where a stream stands, "" when it has ended."""
        return next((state.phase for state in self.scheduler.states() if state.stream == stream), "")


@pytest.fixture
def serve(smollm2: LanguageModel) -> Iterator[Callable[..., Served]]:
    """Makes schedulers over the real model; their pools are closed at the end."""
    with ExitStack() as stack:
        yield lambda **options: Served(stack.enter_context(scheduler_over(smollm2, **options)))


def chats(model: LanguageModel, questions: Iterable[str], **fields: object) -> list[Request]:
    """One request per question, all over one system prompt."""
    renderer = model.renderer()
    return [
        Request(
            id=number,
            prompt=renderer.render_prompt([Turn("system", SYSTEM), Turn("user", question)]).ids,
            close_tokens=renderer.render_close(),
            label=question,
            chat=f"chat {number}",
            **{"max_new": 16, **fields},  # type: ignore[arg-type]
        )
        for number, question in enumerate(questions, 1)
    ]


def common(prompts: Iterable[tuple[int, ...]]) -> int:
    """How many tokens all of these begin with."""
    length = 0
    for row in zip(*prompts, strict=False):
        if len(set(row)) > 1:
            break
        length += 1
    return length


def test_the_warm_round_attaches_every_full_page_of_the_shared_part(
    smollm2: LanguageModel, serve: Callable[..., Served]
) -> None:
    cold, warm = chats(smollm2, FIRST_QUESTIONS), chats(smollm2, NEW_QUESTIONS)
    shared = common(request.prompt for request in (*cold, *warm)) // PAGE * PAGE
    assert shared >= 2 * PAGE
    served = serve(max_streams=4)
    served.run(cold)
    served.finished.clear()
    served.run(warm)
    assert [served.finished[request.id].n_cached >= shared for request in warm] == [True] * 4


def test_replies_are_the_same_however_they_are_served(smollm2: LanguageModel, serve: Callable[..., Served]) -> None:
    """Batched or one at a time, cold or warm, with or without a cache, in any chunks."""
    requests = chats(smollm2, FIRST_QUESTIONS)
    alone = serve(max_streams=1, prefix_cache=False)
    alone.run(requests)
    assert all(len(ids) == 16 for ids in alone.ids.values()) and len(alone.ids) == 4
    together = serve(max_streams=4)
    together.run(requests)
    assert together.ids == alone.ids
    warm = Served(together.scheduler)
    warm.run(requests)
    assert warm.ids == alone.ids
    assert all(warm.finished[r.id].n_cached >= (len(r.prompt) - 1) // PAGE * PAGE for r in requests)
    for chunk in (5, 64):
        cut = serve(max_streams=3, chunk=chunk)
        cut.run(requests)
        assert cut.ids == alone.ids


def test_the_next_turn_is_the_same_warm_and_cold(smollm2: LanguageModel, serve: Callable[..., Served]) -> None:
    """A second turn over a donated first one gives the reply that a cold engine gives."""
    (first,) = chats(smollm2, FIRST_QUESTIONS[:1])
    served = serve()
    served.run([first])
    delta = smollm2.tokenizer.encode("Tell me more about it.")
    history = (*first.prompt, *served.ids[1], *first.close_tokens)
    second = replace(first, id=2, prompt=(*history, *delta))
    served.run([second])
    assert served.finished[2].n_cached == len(history) // PAGE * PAGE
    cold = serve(prefix_cache=False)
    cold.run([second])
    assert cold.finished[2].n_cached == 0
    assert cold.ids[2][0] == served.ids[2][0]


@pytest.mark.parametrize("phase", ["queued", "prefilling", "decoding"])
def test_cancel_in_every_state(smollm2: LanguageModel, serve: Callable[..., Served], phase: str) -> None:
    """The cancelled stream tells its last event once, the other writes the same reply as ever, pages come back."""
    other, victim = chats(smollm2, FIRST_QUESTIONS[:2])
    alone = serve(prefix_cache=False)
    alone.run([other])
    if phase == "prefilling":
        victim = replace(victim, prompt=LONG)
    served = serve(max_streams=1 if phase == "queued" else 4, chunk=32)
    served.scheduler.submit(other)
    served.scheduler.submit(victim)
    served.until(lambda: served.phase(2) == phase and served.phase(1) == "decoding")
    n_gen = len(served.ids.get(2, ()))
    assert served.scheduler.cancel(2)
    assert not served.scheduler.cancel(2), "it has a reason already"
    served.until(lambda: not served.scheduler.has_work)
    end = served.finished[2]
    assert (end.reason, end.n_gen) == ("cancelled", n_gen)
    assert (end.n_gen > 0) == (phase == "decoding")
    assert served.finished[1].reason == "length" and served.ids[1] == alone.ids[1]
    served.at_rest()
    assert not served.scheduler.cancel(1) and not served.scheduler.cancel(2)


def test_cancel_in_the_step_that_finishes(smollm2: LanguageModel, serve: Callable[..., Served]) -> None:
    (request,) = chats(smollm2, FIRST_QUESTIONS[:1], max_new=4)
    served = serve()
    served.scheduler.submit(request)
    served.until(lambda: len(served.ids.get(1, ())) == 3)
    assert served.scheduler.cancel(1)
    served.until(lambda: not served.scheduler.has_work)
    assert served.finished[1].reason == "cancelled" and served.finished[1].n_gen == 3
    served.at_rest()
    again = Served(served.scheduler)
    again.scheduler.submit(request)
    again.until(lambda: 1 in again.finished)
    assert not again.scheduler.cancel(1) and again.finished[1].reason == "length"
    again.until(lambda: not again.scheduler.has_work)
    again.at_rest()


def test_idle_means_free_and_cached_are_all(smollm2: LanguageModel, serve: Callable[..., Served]) -> None:
    """After a storm in a small pool: stops, limits, cancels, an eviction, warm requests, releases."""
    served = serve(max_streams=4, capacity_pages=24, chunk=48)
    requests = chats(smollm2, (*FIRST_QUESTIONS, *NEW_QUESTIONS), max_new=24)
    stops = frozenset(smollm2.renderer().stop_ids)
    for number, request in enumerate(requests):
        served.scheduler.submit(replace(request, stop_ids=stops if number % 2 else frozenset()))
    served.scheduler.submit(Request(id=20, prompt=LONG[:200], kind="warm", label="warmed"))
    for victim in (3, 7, 20, 1):
        for _ in range(6):
            served.step()
        served.scheduler.cancel(victim)
    served.until(lambda: not served.scheduler.has_work)
    served.at_rest()
    assert set(served.finished) == {*range(1, 9), 20}
    assert {"cancelled", "length"} <= {end.reason for end in served.finished.values()}
    cache, pool = served.scheduler.cache, served.scheduler.pool
    assert cache is not None and cache.held_pages == pool.counts().cached > 0
    for chain in cache.chains():
        before = pool.counts().free
        report = cache.release(chain.id)
        assert pool.counts().free == before + report.freed and report.shared == 0
        served.scheduler.check_integrity()
    assert pool.counts().free == pool.capacity_pages and cache.held_pages == 0


def test_the_youngest_is_evicted_and_its_pages_serve_the_others(
    smollm2: LanguageModel, serve: Callable[..., Served]
) -> None:
    one, two = chats(smollm2, FIRST_QUESTIONS[:2], max_new=90)
    alone = serve(prefix_cache=False)
    alone.run([one])
    pages = -(-(len(one.prompt) + 90) // PAGE) + 3
    served = serve(max_streams=2, capacity_pages=pages)
    served.run([one, two])
    assert [served.finished[i].reason for i in (1, 2)] == ["length", "evicted"]
    assert served.ids[1] == alone.ids[1] and served.ids[2]
