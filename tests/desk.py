"""A scheduler over the fake model, which collects what it reports and checks the books after every step."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.scheduling.events import Finished, Piece, SchedEvent, StepReport
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler
from tests.fakes import SPEC, FakeEvaluator, FakeText, reply

P = 4
VOCAB = 50


class Desk:
    """``chunk`` 8 and pages of 4 tokens, unless told otherwise. ``pages`` None: no pool, no cache."""

    def __init__(
        self,
        *,
        pages: int | None = 64,
        cache: bool = True,
        n_ctx: int = 64,
        n_vocab: int = VOCAB,
        shared_rows: int = 0,
        **options: Any,
    ) -> None:
        self.model = FakeEvaluator(n_ctx=n_ctx, n_vocab=n_vocab, shared_rows=shared_rows)
        self.pool = None if pages is None else KVPool(SPEC, capacity_pages=pages, page_rows=P)
        self.cache = PrefixCache(self.pool) if cache and self.pool is not None else None
        settings = {"chunk": 8, "pace": None, "text_factory": FakeText, **options}
        self.scheduler = Scheduler(self.model, pool=self.pool, cache=self.cache, **settings)
        self.pieces: dict[int, list[Piece]] = {}
        self.finished: dict[int, Finished] = {}
        self.reports: list[StepReport] = []

    def submit(self, id: int, prompt: Iterable[int], **fields: Any) -> Request:
        request = Request(id=id, prompt=tuple(prompt), **fields)
        self.scheduler.submit(request)
        self.finished.pop(id, None)
        self.pieces.pop(id, None)
        return request

    def step(self, n: int = 1) -> list[SchedEvent]:
        """``n`` steps; returns the events of the last."""
        events: list[SchedEvent] = []
        for _ in range(n):
            events = self.scheduler.step()
            report = self.scheduler.last_report
            assert report is not None and report.events == tuple(events)
            assert report.pool.free + report.pool.cached + report.pool.referenced == report.pool.capacity
            self.reports.append(report)
            self.take(events)
            self.scheduler.check_integrity()
        return events

    def take(self, events: Iterable[SchedEvent]) -> None:
        for event in events:
            assert event.stream not in self.finished, "an event after the last one"
            match event:
                case Piece():
                    self.pieces.setdefault(event.stream, []).append(event)
                case Finished():
                    self.finished[event.stream] = event

    def drain(self, limit: int = 2000) -> None:
        """Step until there is nothing to do; then everything must be accounted for."""
        for _ in range(limit):
            if not self.scheduler.has_work:
                break
            self.step()
        assert not self.scheduler.has_work, "the scheduler does not come to an end"
        assert self.scheduler.pool.counts().referenced == 0
        assert self.scheduler.states() == () and self.scheduler.stream_pages() == {}

    def run(self, id: int, prompt: Iterable[int], **fields: Any) -> Finished:
        """Submit, drain, and return the last event."""
        self.submit(id, prompt, **fields)
        self.drain()
        return self.finished[id]

    def tokens(self, id: int) -> list[int]:
        """The tokens that a stream has produced."""
        return [piece.token for piece in self.pieces.get(id, []) if piece.token is not None]

    def text(self, id: int) -> str:
        """The text that a stream has produced."""
        return "".join(piece.text for piece in self.pieces.get(id, []))

    def right(self, id: int, prompt: Iterable[int]) -> bool:
        """Whether a stream's tokens are those of this prompt alone."""
        return self.tokens(id) == reply(list(prompt), len(self.tokens(id)), self.model.n_vocab)
