"""Random operations on pool, sessions and cache, checked after every one: books, page contents, and what must be found.

The pages know what they hold (``FakeEvaluator``), and a set of all cached prefixes, taken from the nodes, says what an
attach must find, without any hashing.
"""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.cache.session import Session, reserve_all
from engine.errors import PoolExhaustedError, SessionError
from tests.fakes import SPEC, FakeEvaluator

ROUNDS, OPERATIONS = 250, 100
HASHES = (lambda parent, page: hash((parent, page)), lambda parent, page: 0, lambda parent, page: sum(page) % 3)

WEIGHTS = {
    "open": 4, "extend": 3, "decode": 3, "donate": 4, "fork": 2, "cut": 1, "close": 2, "evict": 1, "release": 1,
    "pin": 1,
}  # fmt: skip


class Walk:
    """One random walk."""

    def __init__(self, seed: int, seen: Counter[str]) -> None:
        self.random = Random(seed)
        self.seen = seen
        self.rows = self.random.choice([1, 2, 4, 4])
        self.pool = KVPool(SPEC, capacity_pages=self.random.randint(2, 8), page_rows=self.rows)
        budget = self.random.choice([None, None, 1, 3])
        self.cache = PrefixCache(self.pool, max_pages=budget, hash_page=HASHES[seed % len(HASHES)])
        self.collides = seed % len(HASHES) != 0
        self.n_ctx = self.random.choice([10, 20])
        self.model = FakeEvaluator(n_ctx=self.n_ctx)
        self.sessions: list[Session] = []
        self.longest = min(self.n_ctx - 2, self.pool.capacity_pages * self.rows)
        self.bases = [[self.random.randrange(4) for _ in range(self.longest)] for _ in range(2)]

    def prompt(self) -> list[int]:
        """Often alike, seldom equal."""
        base = self.random.choice(self.bases)
        head = base[: self.random.randint(0, self.longest)]
        return [*head, *(self.random.randrange(4) for _ in range(self.random.choice([0, 0, 1, 2])))]

    def cached_prefixes(self) -> set[tuple[int, ...]]:
        prefixes = set()
        for page in self.cache.borrowed_pages():
            node = self.cache.node_of(page)
            assert node is not None
            prefixes.add(tuple(token for step in node.path() for token in step.tokens))
        return prefixes

    def step(self) -> None:
        (name,) = self.random.choices(list(WEIGHTS), list(WEIGHTS.values()))
        try:
            getattr(self, name)()
        except PoolExhaustedError:
            self.seen["dry"] += 1
            self.random.choice([self.close, self.evict])()
        self.check()

    def check(self) -> None:
        self.cache.check_integrity()
        counts = self.pool.counts()
        assert counts.free + counts.cached + counts.referenced == counts.capacity
        assert self.cache.held_pages <= self.cache.max_pages
        segments = self.cache.segments()
        assert sum(len(segment.pages) for segment in segments) == self.cache.held_pages

    def some(self) -> Session | None:
        return self.random.choice(self.sessions) if self.sessions else None

    def open(self) -> None:
        prompt = self.prompt()
        known = self.cached_prefixes()
        whole = [n for n in range(0, len(prompt), self.rows) if n == 0 or tuple(prompt[:n]) in known]
        session = Session(self.pool, n_ctx=self.n_ctx)
        self.sessions.append(session)
        spared = self.cache.attach(session, prompt)
        assert spared == max(whole, default=0)
        self.seen["hit" if spared else "miss"] += 1
        self.seen["hit among collisions"] += bool(spared) and self.collides
        self.seen["explained"] += self.cache.explain(prompt) is not None
        self.model.eval(session, prompt[spared:])

    def extend(self) -> None:
        session = self.some()
        if session is not None:
            shared = session.n_past % self.rows and self.pool.refs[session.pages[-1]] > 1
            try:
                self.model.eval(session, [self.random.randrange(4) for _ in range(self.random.randint(1, 4))])
            except SessionError:
                self.seen["context full"] += 1
                return
            self.seen["copied before writing"] += bool(shared)

    def decode(self) -> None:
        batch = self.random.sample(self.sessions, self.random.randint(0, len(self.sessions)))
        before = [list(session.pages) for session in batch]
        try:
            reserve_all(batch)
        except PoolExhaustedError:
            assert [list(session.pages) for session in batch] == before
            raise
        except SessionError:
            assert [list(session.pages) for session in batch] == before
            return
        self.model.eval_batch(batch, [self.random.randrange(4) for _ in batch])
        self.seen["batch"] += len(batch) > 1

    def donate(self) -> None:
        session = self.some()
        if session is not None:
            n = session.n_past if self.random.random() < 0.7 else self.random.randint(0, session.n_past)
            chat = self.random.choice(["", "a", "b"])
            chain = self.cache.insert(session, session.tokens[:n], str(self.random.randrange(3)), chat=chat)
            assert chain is None or chain in {info.id for info in self.cache.chains()}
            self.seen["donation" if chain is not None else "nothing to donate"] += 1

    def fork(self) -> None:
        session = self.some()
        if session is not None and len(self.sessions) < 6:
            self.sessions.append(session.fork())
            self.seen["fork"] += 1
            self.extend()

    def cut(self) -> None:
        session = self.some()
        if session is not None:
            session.truncate(self.random.randint(0, session.n_past))
            self.seen["cut"] += 1

    def close(self) -> None:
        if self.sessions:
            self.sessions.pop(self.random.randrange(len(self.sessions))).release()
            self.seen["close"] += 1

    def evict(self) -> None:
        free, asked = self.pool.n_free, self.random.randint(1, 3)
        pinned = {page for chain in self.cache.chains() if chain.pinned for page in chain.pages}
        freed = self.cache.evict(asked, evicted_for="x")
        assert freed <= asked and self.pool.n_free == free + freed
        assert pinned <= set(self.cache.borrowed_pages())
        assert sum(eviction.pages for eviction in self.cache.take_evictions()) >= freed
        self.seen["evicted pages"] += freed

    def release(self) -> None:
        chains = self.cache.chains()
        if not chains:
            return
        chain, free, held = self.random.choice(chains), self.pool.n_free, self.cache.held_pages
        plan = self.cache.release(chain.id, dry_run=True)
        assert (self.pool.n_free, self.cache.held_pages) == (free, held)
        done = self.cache.release(chain.id)
        assert (plan.freed, plan.kept, plan.shared) == (done.freed, done.kept, done.shared)
        assert (self.pool.n_free, self.cache.held_pages) == (free + done.freed, held - done.freed - done.shared)
        assert done.freed + done.shared == chain.n_own and done.kept == len(chain.pages) - chain.n_own
        self.seen["release"] += 1
        self.seen["release kept some"] += done.kept > 0
        self.seen["release of pages in use"] += done.shared > 0

    def pin(self) -> None:
        chains = self.cache.chains()
        if chains:
            chain = self.random.choice(chains)
            self.cache.pin(chain.id, not chain.pinned)
            self.seen["unpin" if chain.pinned else "pin"] += 1

    def end(self) -> None:
        for session in self.sessions:
            session.release()
        counts = self.pool.counts()
        assert counts.referenced == 0 and counts.free + counts.cached == counts.capacity
        self.check()
        self.cache.close()
        self.pool.close()


def test_random_operations_keep_books_and_contents_right(capsys: pytest.CaptureFixture[str]) -> None:
    seen: Counter[str] = Counter()
    for seed in range(ROUNDS):
        walk = Walk(seed, seen)
        for _ in range(OPERATIONS):
            walk.step()
        walk.end()
    with capsys.disabled():
        print("\n  cache, random operations:", ", ".join(f"{name} {n}" for name, n in sorted(seen.items())))
    assert len(seen) >= 18
    assert min(seen.values()) >= 100, seen
