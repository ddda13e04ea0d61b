"""Random traffic through the scheduler in pools of 2 to 8 pages, with the integrity check after every step.

What must hold, whatever happens: every request gets exactly one last event; its tokens are those of its prompt alone;
a page never holds anything but the history it stands for (``FakeEvaluator`` reads them back); at the end free + cached
is the capacity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from random import Random
from typing import Any

import pytest

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.cache.session import Session
from engine.errors import EngineError
from engine.scheduling.events import Finished, Piece
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler
from tests.desk import Desk
from tests.fakes import SPEC, FakeEvaluator, FakeText, reply

ROUNDS, STEPS = 300, 60
VOCAB = 12
HASHES = (None, lambda parent, page: 0, lambda parent, page: sum(page) % 3)


class Traffic:
    """One scheduler under random requests, cancellations, releases and failures."""

    def __init__(self, seed: int, seen: Counter[str]) -> None:
        self.random, self.seen = Random(seed), seen
        choose = self.random.choice
        self.busy = seed % 5 in (1, 2)  # short prompts and long replies, so that many decode together
        self.rows = 4 if self.busy else choose([1, 2, 4, 4])
        self.model = FakeEvaluator(n_ctx=choose([10, 40]), n_vocab=VOCAB, shared_rows=choose([0, 4, 64]))
        self.model.on_call = self.fail_sometimes
        self.pool = KVPool(SPEC, capacity_pages=8 if self.busy else self.random.randint(2, 8), page_rows=self.rows)
        hash_page = HASHES[seed % 3]
        options: dict[str, Any] = {} if hash_page is None else {"hash_page": hash_page}
        self.collides = hash_page is not None
        self.cache = (
            PrefixCache(self.pool, max_pages=choose([1, 2, None] if self.busy else [None, None, 3]), **options)
            if seed % 7
            else None
        )
        self.scheduler = Scheduler(
            self.model,
            pool=self.pool if seed % 11 else None,
            cache=self.cache if seed % 11 else None,
            max_streams=4 if self.busy else choose([1, 2, 4]),
            max_queue=choose([2, 6]),
            chunk=choose([1, 2] if self.busy else [1, 3, 8, 16]),
            pace=None,
            text_factory=FakeText,
            share_in_flight=seed % 2 == 0,
        )
        self.cache = self.scheduler.cache
        self.storm = seed % 5 == 0
        self.last_id = 0
        self.prompts: list[list[int]] = [[self.random.randrange(VOCAB) for _ in range(20)] for _ in range(3)]
        self.requests: dict[int, Request] = {}
        self.tokens: dict[int, list[int]] = {}
        self.finished: dict[int, Finished] = {}
        self.failing = False
        self.cancelled: set[int] = set()  # since the last step

    def fail_sometimes(self, _name: str, sessions: Sequence[Session]) -> None:
        if self.failing and any(session.tokens[:1] == [5] for session in sessions):
            raise RuntimeError("failed on purpose")

    def chance(self, when_busy: float, otherwise: float) -> bool:
        return self.random.random() < (when_busy if self.busy else otherwise)

    def length(self) -> int:
        """Prompt lengths lie at page borders more often than not."""
        n, rows = self.random.randint(0, 1 if self.busy else 4), self.rows
        return self.random.choice([0, 1, rows - 1, rows, rows + 1, n * rows, n * rows, n * rows + 1, n * rows + 2])

    def submit(self) -> None:
        self.last_id += 1
        choose, base = self.random.choice, self.random.choice(self.prompts)
        prompt = [*base[: self.length()], *(self.random.randrange(VOCAB) for _ in range(choose([0, 0, 0, 1, 2])))]
        if self.random.random() < 0.1:
            prompt = [self.random.randrange(VOCAB) for _ in range(self.model.n_ctx - 1)]
        first = reply(prompt, 4, VOCAB)
        request = Request(
            id=self.last_id if self.random.random() < 0.94 else max(1, self.last_id - 1),
            prompt=tuple(prompt),
            max_new=choose([9, 30] if self.busy else [0, 1, 1, 2, 5, 9, 30]),
            kind=choose(["generate"] * 6 + ["warm"]),
            stop_ids=frozenset(() if self.busy else choose([(), (3,), first[:1], first[2:3]])),
            stop_strings=() if self.busy else choose([(), (), (f"<{first[1]}>",)]),
            close_tokens=(1, 2, 4, 5, 6, 7, 8)[: self.random.randint(0, 7)],
            label=str(self.last_id),
            chat=choose(["", "a", "b"]),
        )
        try:
            self.scheduler.submit(request)
        except EngineError as error:
            self.seen[f"refused: {error.code}"] += 1
            return
        self.requests[request.id] = request
        self.finished.pop(request.id, None)  # an id may be used again
        self.tokens[request.id] = []
        self.seen["next turns"] += request.prompt[-1] in request.close_tokens
        self.seen[f"submitted: {request.kind}"] += 1

    def cancel(self) -> None:
        phases = {state.stream: state.phase for state in self.scheduler.states()}
        closing = [id for id in self.scheduler.stream_pages() if id not in phases]
        targets = [*phases, *closing, *closing, self.last_id + 5]
        id = self.random.choice(targets)
        phase = phases.get(id, "completing a page" if id in closing else "unknown")
        done = self.scheduler.cancel(id)
        assert done is (id in phases and id not in self.cancelled)
        if done:
            self.cancelled.add(id)
        self.seen[f"cancelled while {phase}"] += 1

    def meddle(self) -> None:
        """What a person does with the cache meanwhile."""
        if self.cache is None or not self.cache.chains():
            return
        chain = self.random.choice(self.cache.chains())
        match self.random.choice([0, 1, 1, 1, 1, 2] if self.busy else [0, 1, 2]):
            case 0:
                plan = self.cache.release(chain.id, dry_run=True)
                assert self.cache.release(chain.id) == replace(plan, dry_run=False)
                self.seen["released by hand"] += 1
            case 1:
                self.cache.pin(chain.id)
                self.seen["pinned"] += 1
            case 2:
                self.cache.pin(chain.id, False)

    def step(self) -> None:
        before = self.scheduler.stream_pages().keys() - {state.stream for state in self.scheduler.states()}
        self.failing = self.random.random() < 0.1
        shared = self.model.passes_shared
        for event in self.scheduler.step():
            self.take(event)
        self.cancelled.clear()
        report = self.scheduler.last_report
        assert report is not None
        self.scheduler.check_integrity()
        counts = report.pool
        assert counts.free + counts.cached + counts.referenced == counts.capacity
        self.seen["evictions of cached pages"] += sum(eviction.pages for eviction in report.evictions)
        self.seen["batched steps"] += len(report.decoded) > 1
        self.seen["passes shared with a prompt"] += self.model.passes_shared - shared
        after = self.scheduler.stream_pages().keys()
        for id in before - after:
            self.seen["pages completed" if id in dict(report.prefilled) else "completions given up"] += 1

    def take(self, event: Piece | Finished) -> None:
        assert event.stream in self.requests and event.stream not in self.finished
        match event:
            case Piece():
                if event.token is not None:
                    self.tokens[event.stream].append(event.token)
            case Finished():
                self.finished[event.stream] = event
                self.check_finished(event)

    def check_finished(self, event: Finished) -> None:
        request, tokens = self.requests[event.stream], self.tokens[event.stream]
        assert event.n_gen == len(tokens) and event.n_prompt == len(request.prompt)
        assert event.n_kept in (event.n_gen, event.n_gen - 1)
        expected = reply(request.prompt, len(tokens) + 1, VOCAB)
        assert tokens == expected[:-1]
        assert event.n_cached % self.rows == 0 and event.n_cached <= len(request.prompt)
        assert request.kind == "warm" or event.n_cached < len(request.prompt)
        by_token = event.reason == "stop" and event.n_kept == event.n_gen
        assert not by_token or expected[-1] in request.stop_ids
        room = min(request.max_new, self.model.n_ctx - len(request.prompt))
        assert event.reason != "length" or event.n_gen == (0 if request.kind == "warm" else room)
        assert (event.reason == "error") == bool(event.error)
        self.count(event, request, by_token)

    def count(self, event: Finished, request: Request, by_token: bool) -> None:
        seen = self.seen
        seen[f"finished: {event.reason}"] += 1
        seen["stop as first token"] += by_token and event.n_gen == 0
        seen["stop string"] += event.n_kept < event.n_gen
        seen["max_new = 1"] += request.max_new == 1 and event.n_gen == 1
        seen["prompt that just fits"] += len(request.prompt) == self.model.n_ctx - 1
        seen["prefix attached"] += event.n_cached > 0
        seen["prefix attached among collisions"] += event.n_cached > 0 and self.collides
        seen[f"miss: {event.miss.cause if event.miss else 'none'}"] += self.cache is not None
        n, rows = len(request.prompt), self.rows
        for name, length in (("1", 1), ("P-1", rows - 1), ("P", rows), ("P+1", rows + 1)):
            seen[f"prompt of {name}"] += n == length
        seen["prompt of kP"] += n > rows and n % rows == 0
        if event.reason in ("stop", "length", "cancelled") and request.kind == "generate":
            kept = self.tokens[event.stream][: event.n_kept]
            grown = [*request.prompt, *kept, *request.close_tokens]
            self.prompts[self.random.randrange(len(self.prompts))] = grown[: self.model.n_ctx - 4]  # the next turn

    def run(self) -> None:
        for _ in range(STEPS):
            if self.random.random() < 0.5:
                self.submit()
            for _ in range(
                self.random.randrange(3) if self.storm else self.random.random() < (0.25 if self.busy else 0.1)
            ):
                self.cancel()
            if self.chance(0.3, 0.1):
                self.meddle()
            if self.scheduler.has_work:
                self.step()
        for _ in range(2000):
            if not self.scheduler.has_work:
                break
            self.step()
        assert not self.scheduler.has_work
        assert self.finished.keys() == self.requests.keys()
        counts = self.scheduler.pool.counts()
        assert counts.referenced == 0 and counts.free + counts.cached == counts.capacity
        self.scheduler.close()
        if self.cache is not None:
            self.cache.close()
            self.pool.close()


def test_random_traffic_keeps_every_promise(capsys: pytest.CaptureFixture[str], caplog: Any) -> None:
    seen: Counter[str] = Counter()
    for seed in range(ROUNDS):
        Traffic(seed, seen).run()
        caplog.clear()
    with capsys.disabled():
        print("\n  scheduler, random traffic:", ", ".join(f"{name} {n}" for name, n in sorted(seen.items())))
    del seen["completions given up"]  # seldom by chance; the next test is about them
    assert len(seen) >= 39
    assert min(seen.values()) >= 100, {name: n for name, n in seen.items() if n < 100}


def test_completing_a_page_is_given_up_before_a_stream_is_evicted() -> None:
    given_up = 0
    for pages, n_first, n_close, n_second in product((4, 5, 6), range(4, 8), range(8, 13), range(1, 6)):
        desk = Desk(pages=pages, chunk=1, max_streams=2)
        desk.submit(1, [1] * n_first, max_new=1, close_tokens=range(10, 10 + n_close))
        desk.submit(2, [9] * n_second, max_new=8)
        while desk.scheduler.has_work:
            held = desk.scheduler.stream_pages().keys()
            desk.step()
            report = desk.reports[-1]
            gone = held - desk.scheduler.stream_pages().keys() - {event.stream for event in report.events}
            given_up += 1 in gone and 1 not in dict(report.prefilled)
        assert desk.finished[2].reason == "length" and desk.right(2, [9] * n_second)
    assert given_up >= 100
