"""Room in the pool: what admission may count on, and how pages are found when none is free."""

from __future__ import annotations

from collections.abc import Collection

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.errors import PoolExhaustedError
from engine.scheduling.stream import Stream

GROWTH_PAGES = 2
"""Pages that admission leaves for the reply of every running stream."""


class Room:
    """The pages of one pool, with the cached ones as its reserve."""

    def __init__(self, pool: KVPool, cache: PrefixCache | None) -> None:
        self._pool = pool
        self._cache = cache
        self._refused: tuple[Stream, int, int] | None = None

    def fits(self, stream: Stream, running: Collection[Stream]) -> bool:
        """Whether a prompt fits beside what runs, with some growth for every reply: a stream that is let in too early
        would only be evicted later. Refused once, it is not looked at again before something has changed."""
        pool, cache = self._pool, self._cache
        version = 0 if cache is None else cache.version
        if self._refused is not None:
            refused, unused, seen = self._refused
            if refused is stream and pool.n_free + pool.n_cached <= unused and version == seen:
                return False
        matched = [] if cache is None else cache.match(stream.request.prompt, whole=stream.request.kind == "warm")
        needed = -(-len(stream.request.prompt) // pool.page_rows) - len(matched)
        needed += sum(self._growth(other) for other in (stream, *running))
        available = pool.n_free
        if cache is not None:
            available += cache.n_evictable - sum(1 for page in matched if pool.refs[page] == 1)
        if needed <= available:
            return True
        self._refused = (stream, pool.n_free + pool.n_cached, version)
        return False

    def reserve(self, stream: Stream, n: int) -> bool:
        """Make the stream's next ``n`` positions writable, at the cost of cached pages if need be; or change nothing
        and say False."""
        session = stream.live_session
        try:
            session.reserve(n)
        except PoolExhaustedError as dry:
            if self.shed(dry.missing, stream.request.chat) < dry.missing:
                return False
            session.reserve(n)
        return True

    def shed(self, n: int, wanted_by: str) -> int:
        """Let the cache give up to ``n`` pages; returns how many it gave."""
        return 0 if self._cache is None else self._cache.evict(n, evicted_for=wanted_by)

    def _growth(self, stream: Stream) -> int:
        return min(GROWTH_PAGES, -(-(stream.limit - len(stream.generated)) // self._pool.page_rows))
