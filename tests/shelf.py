"""A pool with its prefix cache, a model whose pages know what they hold, and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Sequence

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.cache.session import Session
from tests.fakes import SPEC, FakeEvaluator

P = 4
MODEL = FakeEvaluator(n_ctx=64)


class Shelf:
    """A pool with its cache, and a clock that the test moves."""

    def __init__(self, pages: int = 16, **options: object) -> None:
        self.now = 1000.0
        self.pool = KVPool(SPEC, capacity_pages=pages, page_rows=P)
        self.cache = PrefixCache(self.pool, clock=lambda: self.now, **options)  # type: ignore[arg-type]

    def donate(self, tokens: Sequence[int], label: str = "", chat: str = "") -> int | None:
        """Evaluate ``tokens`` (from the cache where it can) and donate them."""
        with Session(self.pool, n_ctx=64) as session:
            self.cache.attach(session, tokens)
            MODEL.eval(session, tokens[session.n_past :])
            chain = self.cache.insert(session, tokens, label, chat=chat)
        self.check()
        return chain

    def attach(self, prompt: Sequence[int], **options: bool) -> int:
        """How much of ``prompt`` is reused; the rest is evaluated, which verifies every page."""
        with Session(self.pool, n_ctx=64) as session:
            spared = self.cache.attach(session, prompt, **options)
            assert session.tokens == list(prompt[:spared])
            if spared < len(prompt):
                MODEL.eval(session, prompt[spared:])
            self.check()
        self.check()
        return spared

    def check(self) -> None:
        self.cache.check_integrity()


def tokens(n: int, start: int = 0) -> list[int]:
    return list(range(start, start + n))
