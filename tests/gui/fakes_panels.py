"""A small engine for the panels' tests: a bridge with the real signals, a port that answers at once.

``scene`` builds a consistent snapshot: chats that share a system prompt, their chains, segments, pages and streams.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import numpy as np
from PySide6.QtCore import QObject, Signal

from engine.port import ChainInfo, PageDetail, ReleaseReport, Segment, Snapshot
from engine.scheduling.events import PoolCounts, StepReport, StreamState

NOW = 1_760_000_000.0


def done(value: Any) -> Future:
    """A future that already has its result."""
    future: Future = Future()
    future.set_result(value)
    return future


class FakePort:
    """Answers from one snapshot and counts what it is asked."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.current = snapshot
        self.calls: Counter[str] = Counter()
        self.released: list[int] = []
        self.pinned: list[tuple[int, bool]] = []
        self.vocabulary: dict[int, str] = {}

    def snapshot(self) -> Future:
        self.calls["snapshot"] += 1
        return done(self.current)

    def page_detail(self, page: int) -> Future:
        self.calls["page_detail"] += 1
        chains = tuple(c for c in self.current.chains if page in c.pages)
        state = ("free", "active", "shared", "cached")[int(self.current.page_states[page])]
        return done(
            PageDetail(
                page=page,
                state=state,
                refcount=int(self.current.refcounts[page]),
                chats=tuple(dict.fromkeys(c.chat for c in chains)),
                streams=tuple(s for s, pages in self.current.stream_pages.items() if page in pages),
                chains=tuple(c.id for c in chains),
                tokens=(1, 2, 3),
                text="You are a concise <assistant>",
                born=self.current.at - 61,
                hits=3,
            )
        )

    def _report(self, ids: tuple[int, ...], dry_run: bool) -> ReleaseReport:
        going = [c for c in self.current.chains if c.id in ids]
        staying = [c for c in self.current.chains if c.id not in ids]
        kept_pages = {p for c in staying for p in c.pages}
        mine = {p for c in going for p in c.pages}
        streams = {p for pages in self.current.stream_pages.values() for p in pages}
        return ReleaseReport(
            chains=ids,
            freed=len(mine - kept_pages - streams),
            kept=len(mine & kept_pages),
            shared=len((mine - kept_pages) & streams),
            shared_with=tuple(c.label for c in staying if set(c.pages) & mine),
            dry_run=dry_run,
        )

    def release(self, chain: int, *, dry_run: bool = False) -> Future:
        self.calls["dry_run" if dry_run else "release"] += 1
        report = self._report((chain,), dry_run)
        if not dry_run:
            self.released.append(chain)
            self.current = without(self.current, {chain})
        return done(report)

    def release_all(self, *, dry_run: bool = False) -> Future:
        self.calls["dry_run_all" if dry_run else "release_all"] += 1
        ids = tuple(c.id for c in self.current.chains)
        report = self._report(ids, dry_run)
        if not dry_run:
            self.released.extend(ids)
            self.current = without(self.current, set(ids))
        return done(report)

    def pin(self, chain: int, pinned: bool = True) -> Future:
        self.calls["pin"] += 1
        self.pinned.append((chain, pinned))
        return done(None)

    def decode(self, tokens: tuple[int, ...]) -> Future:
        self.calls["decode"] += 1
        return done("".join(self.vocabulary.get(t, f"<{t}>") for t in tokens))


class FakeBridge(QObject):
    """The signals of the bridge; ``ask`` answers at once, or when ``flush`` is called if ``held``."""

    step = Signal(object)
    state = Signal(object)
    finished = Signal(object)
    prepared = Signal(object)
    piece = Signal(object)
    failed = Signal(object)

    def __init__(self, port: FakePort) -> None:
        super().__init__()
        self.port = port
        self.held = False
        self._waiting: list[Callable[[], None]] = []

    def ask(
        self,
        future: Future,
        on_result: Callable[[Any], None],
        on_error: Callable[[BaseException], None] | None = None,
    ) -> None:
        def answer() -> None:
            error = future.exception()
            if error is None:
                on_result(future.result())
            elif on_error is not None:
                on_error(error)

        if self.held:
            self._waiting.append(answer)
        else:
            answer()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        for answer in waiting:
            answer()


def without(snapshot: Snapshot, ids: set[int]) -> Snapshot:
    """The snapshot after a release of these chains."""
    chains = tuple(c for c in snapshot.chains if c.id not in ids)
    held = {p for c in chains for p in c.pages}
    held |= {p for pages in snapshot.stream_pages.values() for p in pages}
    gone = [p for c in snapshot.chains if c.id in ids for p in c.pages if p not in held]
    states, counts = snapshot.page_states.copy(), snapshot.refcounts.copy()
    states[gone] = 0
    counts[gone] = 0
    segments = tuple(
        Segment(s.id, s.parent, s.depth, s.n_tokens, s.pages, left, s.in_use, s.text)
        for s in snapshot.segments
        if (left := tuple(c for c in s.chains if c not in ids))
    )
    return Snapshot(
        step=snapshot.step + 1,
        at=snapshot.at,
        pool=counts_of(states),
        page_rows=snapshot.page_rows,
        page_bytes=snapshot.page_bytes,
        page_states=states,
        refcounts=counts,
        stream_pages=snapshot.stream_pages,
        chains=chains,
        segments=segments,
        streams=snapshot.streams,
        integrity=snapshot.integrity,
    )


def counts_of(states: np.ndarray) -> PoolCounts:
    """Pages by state from the page map's codes."""
    free, cached = int((states == 0).sum()), int((states == 3).sum())
    return PoolCounts(len(states), free, cached, len(states) - free - cached)


class _Builder:
    """Hands out pages and collects segments, so that every number of a scene agrees with the others."""

    def __init__(self, capacity: int, page_rows: int) -> None:
        self.rows = page_rows
        self.states = np.zeros(capacity, np.uint8)
        self.counts = np.zeros(capacity, np.int32)
        self.next_page = 0
        self.segments: list[dict[str, Any]] = []
        self.chains: list[ChainInfo] = []

    def segment(self, parent: int | None, n_pages: int, text: str) -> int:
        up = self.segments[parent] if parent is not None else None
        pages = tuple(range(self.next_page, self.next_page + n_pages))
        self.next_page += n_pages
        depth = up["depth"] + up["n_tokens"] if up else 0
        self.segments.append(
            {
                "id": len(self.segments),
                "parent": parent,
                "depth": depth,
                "n_tokens": n_pages * self.rows,
                "pages": pages,
                "chains": [],
                "in_use": False,
                "text": text,
            }
        )
        return len(self.segments) - 1

    def path(self, segment: int) -> list[dict[str, Any]]:
        found, at = [], segment
        while at is not None:
            found.append(self.segments[at])
            at = self.segments[at]["parent"]
        return found[::-1]

    def chain(
        self, segment: int, label: str, chat: str, *, hits: int = 0, age: float = 60, pinned: bool = False
    ) -> int:
        path = self.path(segment)
        pages = tuple(p for s in path for p in s["pages"])
        number = len(self.chains) + 1
        for part in path:
            part["chains"].append(number)
        last_hit = NOW - age / 3 if hits else None
        self.chains.append(
            ChainInfo(number, label, chat, len(pages) * self.rows, pages, 0, hits, NOW - age, last_hit, pinned)
        )
        return number

    def stream_pages(self, segment: int, extra: int) -> tuple[int, ...]:
        for part in self.path(segment):
            part["in_use"] = True
        own = tuple(range(self.next_page, self.next_page + extra))
        self.next_page += extra
        return tuple(p for s in self.path(segment) for p in s["pages"]) + own

    def build(self, stream_pages: dict[int, tuple[int, ...]], streams: tuple[StreamState, ...]) -> Snapshot:
        for part in self.segments:
            self.counts[list(part["pages"])] = 1
            self.states[list(part["pages"])] = 3
        for pages in stream_pages.values():
            self.counts[list(pages)] += 1
        for pages in stream_pages.values():
            for page in pages:
                self.states[page] = 2 if self.counts[page] > 1 else 1
        segments = tuple(Segment(**{**s, "chains": tuple(s["chains"])}) for s in self.segments)
        own = Counter(p for c in self.chains for p in c.pages)
        chains = tuple(
            ChainInfo(
                c.id, c.label, c.chat, c.n_tokens, c.pages, sum(own[p] == 1 for p in c.pages),
                c.hits, c.born, c.last_hit, c.pinned,
            )
            for c in self.chains
        )  # fmt: skip
        return Snapshot(
            step=1276,
            at=NOW,
            pool=counts_of(self.states),
            page_rows=self.rows,
            page_bytes=368_640,
            page_states=self.states,
            refcounts=self.counts,
            stream_pages=stream_pages,
            chains=chains,
            segments=segments,
            streams=streams,
        )


def scene(capacity: int = 264) -> Snapshot:
    """Three chats over one system prompt, one of them pinned, one streaming; 16 tokens a page."""
    b = _Builder(capacity, 16)
    root = b.segment(None, 3, "You are a concise assistant for office work.")
    invoice = b.segment(root, 4, "Write a polite reminder for an unpaid invoice")
    invoice2 = b.segment(invoice, 7, "Make it firmer and add our bank details")
    edit = b.segment(invoice, 5, "Make it shorter")
    rust = b.segment(root, 3, "Why does the borrow checker refuse this?")
    rust2 = b.segment(rust, 5, "And with two mutable references?")
    rust3 = b.segment(rust2, 2, "Thanks. Show me the Rc version")
    porto = b.segment(root, 16, "Plan three days in Porto")
    b.chain(invoice2, "turn 2", "Invoice email", hits=2, age=400)
    b.chain(edit, "edit of turn 2", "Invoice email", age=340)
    b.chain(rust2, "turn 2", "Rust borrow checker", hits=1, age=300)
    b.chain(rust3, "turn 3", "Rust borrow checker", hits=3, age=120)
    b.chain(porto, "turn 1", "Trip to Porto", hits=1, age=4000, pinned=True)
    streams = {11: b.stream_pages(invoice2, 4), 12: b.stream_pages(root, 20)}
    states = (
        StreamState(11, "Invoice email", "turn 3", "decoding", 240, 224, 240, 58),
        StreamState(12, "Contract review", "turn 1", "prefilling", 4000, 48, 360, 0),
    )
    return b.build(streams, states)


def big_scene(capacity: int = 10_000, chats: int = 16, turns: int = 20) -> Snapshot:
    """A full pool: ``chats`` streams, each with ``turns`` stored turns over one system prompt."""
    b = _Builder(capacity, 16)
    root = b.segment(None, 10, "You are a helpful assistant.")
    streams: dict[int, tuple[int, ...]] = {}
    states = []
    per_turn = (capacity - 10) // (chats * (turns + 1))
    for chat in range(chats):
        at = root
        for turn in range(turns):
            at = b.segment(at, per_turn, f"Question {turn} of chat {chat}")
            b.chain(at, f"turn {turn + 1}", f"Chat {chat}", hits=turn, age=10 * turn + chat, pinned=chat == 3)
        streams[100 + chat] = b.stream_pages(at, per_turn)
        n_prompt = 16 * len(streams[100 + chat]) - 40
        states.append(StreamState(100 + chat, f"Chat {chat}", "", "decoding", n_prompt, n_prompt, n_prompt, 20))
    return b.build(streams, tuple(states))


def report(step: int, *, at: float | None = None, width: int = 4, prefill: int = 0, **changes: Any) -> StepReport:
    """One step with ``width`` decoding streams and ``prefill`` prompt tokens read."""
    decode_us, prefill_us = 2000 * width, 75 * prefill
    values: dict[str, Any] = {
        "step": step,
        "started": time.time() if at is None else at,
        "duration_us": decode_us + prefill_us + 200,
        "events": (),
        "decoded": tuple(range(1, width + 1)),
        "prefilled": ((9, prefill),) if prefill else (),
        "pool": PoolCounts(264, 119, 87, 58),
        "queued": 0,
        "streams": tuple(StreamState(s, f"Chat {s}", "", "decoding", 40, 16, 40, 5) for s in range(1, width + 1)),
        "decode_us": decode_us,
        "prefill_us": prefill_us,
    }
    return StepReport(**{**values, **changes})
