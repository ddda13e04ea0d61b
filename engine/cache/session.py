"""Session: one sequence, as a block table of pages, the tokens they hold, and the state of its sampling."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import TracebackType

import numpy as np

from engine.cache.pool import KVPool, KVSpec
from engine.errors import SessionError


class Session:
    """One sequence over a pool, or (``pool`` None, with ``spec``) over a flat slab of its own.

    ``block_table`` int32[ceil(n_ctx / page_rows)]: entry i is the page of positions [i * page_rows, (i+1) * page_rows);
    the first ``n_pages`` are valid. ``tokens`` is exactly what was evaluated, ``n_past`` its length. ``logits``
    float32[n_vocab] of the last evaluated position, or None. ``seed`` and ``n_drawn`` name the next random draw.

    Pages are reserved before a step writes (``reserve``), all or nothing; a page that someone else holds too is copied
    before it is written. A context manager: leaving it returns the pages.
    """

    __slots__ = (
        "_owns_pool",
        "_pages",
        "block_table",
        "closed",
        "logits",
        "n_ctx",
        "n_drawn",
        "n_past",
        "pool",
        "seed",
        "tokens",
    )

    def __init__(
        self,
        pool: KVPool | None = None,
        *,
        n_ctx: int,
        spec: KVSpec | None = None,
        page_rows: int = 16,
        seed: int = 0,
    ) -> None:
        if n_ctx < 1:
            raise SessionError("A session needs room for at least one token.")
        self._owns_pool = pool is None
        if pool is None:
            if spec is None:
                raise SessionError("A session without a pool needs the shape of the model's KV rows.")
            pool = KVPool(spec, capacity_pages=-(-n_ctx // page_rows), page_rows=page_rows)
        if pool.closed:
            raise SessionError("The KV pool of this session was closed.")
        self.pool = pool
        self.n_ctx = n_ctx
        self.block_table = np.zeros(-(-n_ctx // pool.page_rows), dtype=np.int32)
        self._pages: list[int] = []
        self.tokens: list[int] = []
        self.n_past = 0
        self.logits: np.ndarray | None = None
        self.seed = seed
        self.n_drawn = 0
        self.closed = False
        pool.borrowers[id(self)] = self
        if self._owns_pool:
            self._append(pool.allocate(pool.capacity_pages))

    @property
    def n_pages(self) -> int:
        """How many entries of ``block_table`` are valid."""
        return len(self._pages)

    @property
    def pages(self) -> Sequence[int]:
        """The valid part of the block table, as plain integers (to be read, not changed)."""
        return self._pages

    def borrowed_pages(self) -> Iterable[int]:
        """For the pool's books: the block table."""
        return self._pages

    def pages_needed(self, n: int) -> int:
        """How many free pages ``reserve(n)`` would take: new ones, and copies of shared ones that would be written."""
        rows, refs = self.pool.page_rows, self.pool.refs
        first, end = self.n_past // rows, -(-(self.n_past + n) // rows)
        shared = sum(1 for page in self._pages[first:end] if refs[page] > 1)
        return shared + max(0, end - len(self._pages))

    def reserve(self, n: int) -> None:
        """Make the next ``n`` positions writable: pages of its own for all of them, or ``PoolExhaustedError`` and no
        change. ``SessionError`` when the context has no room for ``n`` more tokens."""
        self._check_room(n)
        pool, rows = self.pool, self.pool.page_rows
        needed = self.pages_needed(n)
        if not needed:
            return
        pool.require(needed)
        first, end = self.n_past // rows, -(-(self.n_past + n) // rows)
        for i in range(first, min(end, len(self._pages))):
            if pool.refs[self._pages[i]] > 1:
                self._pages[i] = self.block_table[i] = pool.copy_page(self._pages[i])
        self._append(pool.allocate(max(0, end - len(self._pages))))

    def advance(self, tokens: Sequence[int]) -> None:
        """Record that ``tokens`` were evaluated into the reserved positions."""
        if self.n_past + len(tokens) > len(self._pages) * self.pool.page_rows:
            raise SessionError("More tokens were evaluated than pages had been reserved for.")
        self.tokens.extend(tokens)
        self.n_past += len(tokens)

    def adopt(self, pages: Sequence[int], tokens: Sequence[int]) -> None:
        """Go on from pages that someone else has filled with ``tokens`` (whole pages, at a page border): they join the
        block table with a reference each, in place of pages that were reserved for these positions."""
        rows = self.pool.page_rows
        if self.closed or self.n_past % rows or len(tokens) != len(pages) * rows:
            raise SessionError("Only whole pages can be attached, and only at a page border of an open session.")
        self._check_room(len(tokens))
        first = self.n_past // rows
        self.pool.retain(pages)
        replaced = self._pages[first : first + len(pages)]
        self._pages[first : first + len(pages)] = pages
        self.block_table[first : first + len(pages)] = pages
        self.pool.release(replaced)
        self.tokens.extend(tokens)
        self.n_past += len(tokens)

    def truncate(self, n: int) -> None:
        """Forget all but the first ``n`` tokens and return the pages that are not needed for them."""
        if not 0 <= n <= self.n_past:
            raise SessionError(f"A session of {self.n_past} tokens cannot be cut to {n}.")
        self.logits = None if n < self.n_past else self.logits
        del self.tokens[n:]
        self.n_past = n
        if not self._owns_pool:
            keep = -(-n // self.pool.page_rows)
            self.pool.release(self._pages[keep:])
            del self._pages[keep:]

    def fork(self) -> Session:
        """A second session that shares this one's history; the page both would write next is copied when it is."""
        if self._owns_pool:
            raise SessionError("A session without a pool cannot be forked: create it over a pool.")
        other = Session(self.pool, n_ctx=self.n_ctx, seed=self.seed)
        pages = self._pages[: -(-self.n_past // self.pool.page_rows)]
        self.pool.retain(pages)
        other._append(pages)
        other.tokens = list(self.tokens)
        other.n_past, other.n_drawn = self.n_past, self.n_drawn
        other.logits = None if self.logits is None else self.logits.copy()
        return other

    def release(self) -> None:
        """Return all pages. The session is closed afterwards; releasing it again does nothing."""
        if self.closed:
            return
        self.closed = True
        del self.pool.borrowers[id(self)]
        self.pool.release(self._pages)
        self._pages = []
        self.tokens, self.n_past, self.logits = [], 0, None
        if self._owns_pool:
            self.pool.close()

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    def _check_room(self, n: int) -> None:
        if self.closed:
            raise SessionError("This session was released and cannot be used again.")
        if self.n_past + n > self.n_ctx:
            raise SessionError(
                f"The context holds {self.n_ctx} tokens, and {self.n_past} + {n} do not fit: evaluate fewer, or load "
                "the model with a larger context."
            )

    def _append(self, pages: Sequence[int]) -> None:
        have = len(self._pages)
        self._pages.extend(pages)
        self.block_table[have : have + len(pages)] = pages


def reserve_all(sessions: Sequence[Session], n: int = 1) -> None:
    """``reserve(n)`` for each of ``sessions`` (distinct, over pools of any kind), or ``PoolExhaustedError`` and no
    change to any. For a step that moves several sequences at once."""
    if len({id(session) for session in sessions}) != len(sessions):
        raise SessionError("A session stands twice in one batch.")
    needed: dict[int, int] = {}
    growing = []
    for session in sessions:
        session._check_room(n)
        pages = session.pages_needed(n)
        if pages:
            growing.append(session)
            needed[id(session.pool)] = needed.get(id(session.pool), 0) + pages
    for session in growing:
        session.pool.require(needed[id(session.pool)])
    for session in growing:
        session.reserve(n)
