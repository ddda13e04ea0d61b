"""Measure the scheduler's own Python time: a model that does nothing, eight streams. Run by hand:

python -m tests.bench.scheduler_overhead
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median, quantiles
from typing import Any

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.cache.session import Session, reserve_all
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler
from tests.fakes import SPEC, FakeText


class NullModel:
    """Costs nothing and always says the same."""

    kv_spec, n_ctx, n_vocab = SPEC, 8192, 50_000

    def eval(self, session: Session, tokens: Sequence[int], *, logits: bool = True) -> None:
        """Only the session advances."""
        session.reserve(len(tokens))
        session.advance(tokens)

    def eval_batch(self, sessions: Sequence[Session], tokens: Sequence[int]) -> None:
        """Only the sessions advance."""
        reserve_all(sessions)
        for session, token in zip(sessions, tokens, strict=True):
            session.advance((token,))

    def sample_batch(self, sessions: Sequence[Session], params: Any, *, masks: Any = None) -> list[int]:
        """Always the same token."""
        return [7] * len(sessions)


def main() -> None:
    """Print microseconds a step while eight streams decode, and while a long prompt is read."""
    pool = KVPool(SPEC, capacity_pages=4096)
    cache = PrefixCache(pool)
    scheduler = Scheduler(NullModel(), pool=pool, cache=cache, text_factory=FakeText, pace=None)
    for id in range(8):
        prompt = tuple((i * id) % 1000 for i in range(500 + id))
        scheduler.submit(Request(id, prompt, max_new=3000, chat=str(id)))
    decoding = []
    while scheduler.has_work:
        seconds = _timed(scheduler)
        report = scheduler.last_report
        if report is not None and len(report.decoded) == 8 and not report.prefilled:
            decoding.append(seconds * 1e6)
    scheduler.submit(Request(100, tuple(range(4000)), max_new=1))
    reading = []
    while scheduler.has_work:
        reading.append(_timed(scheduler) * 1e6)
    p95 = quantiles(decoding, n=20)[-1]
    print(f"decoding, 8 streams: median {median(decoding):.0f} µs a step, p95 {p95:.0f} µs ({len(decoding)} steps)")
    print(f"reading 4,000 tokens in chunks of 128: median {median(reading):.0f} µs a step")


def _timed(scheduler: Scheduler) -> float:
    start = time.perf_counter()
    scheduler.step()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
