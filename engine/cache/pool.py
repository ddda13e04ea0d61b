"""KVPool: keys and values of all sequences in pages of one memory, with a reference count for each page.

A page is one integer id. It covers ``page_rows`` positions of K and V of all layers; how these lie inside a page is
the kernels' business (see ``engine/kernels/ops.py``). Sessions and the prefix cache borrow pages:

    free        no references
    cached      one reference, the prefix cache's
    referenced  at least one session's block table names it (the prefix cache may hold it as well)

The pool lives on one thread, like everything that borrows from it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from engine.cache.memory import DEFAULT_POOL_TOKENS, PageMemory, free_memory
from engine.errors import BadRequestValueError, IntegrityError, PoolBorrowedError, PoolExhaustedError
from engine.scheduling.events import PoolCounts


@dataclass(frozen=True, slots=True)
class KVSpec:
    """Shape of the KV rows of a model: what one position needs in every layer. ``dtype`` is float16 or float32."""

    layers: int
    kv_heads: int
    head_size: int
    dtype: str = "float16"

    @property
    def row_bytes(self) -> int:
        """Bytes of K and V of one position in all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * np.dtype(self.dtype).itemsize

    def page_bytes(self, page_rows: int) -> int:
        """Bytes of a page of ``page_rows`` positions."""
        return self.row_bytes * page_rows

    def default_capacity(self, page_rows: int = 16, *, budget_bytes: int | None = None) -> int:
        """How many pages a pool should have: what ``budget_bytes`` holds, or else pages for 65,536 tokens but no more
        than a quarter of the free memory; at least one."""
        page = self.page_bytes(page_rows)
        if budget_bytes is not None:
            return max(1, budget_bytes // page)
        return max(1, min(-(-DEFAULT_POOL_TOKENS // page_rows), free_memory() // 4 // page))


class Borrower(Protocol):
    """Who holds references to pages: a session, or the prefix cache."""

    def borrowed_pages(self) -> Iterable[int]:
        """Every page it holds a reference to, once per reference."""
        ...


class KVPool:
    """Pages, their reference counts and the memory behind them.

    ``memory`` is uint8[capacity, page_bytes]; ``refs`` and ``held`` are to be read, not written: references of each
    page, and 1 where one of them is the prefix cache's.
    """

    def __init__(self, spec: KVSpec, *, capacity_pages: int, page_rows: int = 16) -> None:
        if capacity_pages < 1:
            raise BadRequestValueError("A KV pool needs at least one page.", field="capacity_pages")
        if page_rows < 1:
            raise BadRequestValueError("A KV page needs at least one row.", field="page_rows")
        if min(spec.layers, spec.kv_heads, spec.head_size) < 1 or spec.dtype not in ("float16", "float32"):
            raise BadRequestValueError(
                "KV rows need at least one layer, head and value, in float16 or float32.", field="spec"
            )
        self.spec = spec
        self.page_rows = page_rows
        self.capacity_pages = capacity_pages
        self.page_bytes = spec.page_bytes(page_rows)
        self._storage = PageMemory(capacity_pages, self.page_bytes)
        self.memory = self._storage.array
        self.refs = array("i", bytes(4 * capacity_pages))
        self.held = bytearray(capacity_pages)
        self.borrowers: dict[int, Borrower] = {}
        self._free = list(range(capacity_pages - 1, -1, -1))  # a stack: warm memory is used again first
        self._n_cached = 0
        self._written = bytearray(capacity_pages)
        self.closed = False

    @property
    def n_free(self) -> int:
        """Pages that ``allocate`` can give now."""
        return len(self._free)

    @property
    def n_cached(self) -> int:
        """Pages that only the prefix cache holds."""
        return self._n_cached

    def counts(self) -> PoolCounts:
        """Pages by state."""
        free, cached = len(self._free), self._n_cached
        return PoolCounts(self.capacity_pages, free, cached, self.capacity_pages - free - cached)

    def require(self, n: int) -> None:
        """Raise ``PoolExhaustedError`` (with ``missing``) unless ``n`` pages are free."""
        missing = n - len(self._free)
        if missing > 0:
            raise PoolExhaustedError(
                f"The KV pool has {len(self._free)} free pages, {n} are needed: wait for a reply to end, release "
                "cached prefixes, or give the pool more memory.",
                missing=missing,
            )

    def allocate(self, n: int) -> list[int]:
        """Take ``n`` free pages with one reference each, or none at all (``PoolExhaustedError``)."""
        self.require(n)
        taken = [self._free.pop() for _ in range(n)]
        for page in taken:
            self.refs[page] = 1
            self._written[page] = 1
        return taken

    def retain(self, pages: Sequence[int]) -> None:
        """Add a reference to each of ``pages``, which must be in use."""
        refs, held = self.refs, self.held
        for page in pages:
            if refs[page] < 1:
                raise IntegrityError(f"Page {page} is free and cannot be shared.")
            if refs[page] == 1 and held[page]:
                self._n_cached -= 1
            refs[page] += 1

    def release(self, pages: Sequence[int]) -> None:
        """Give up a reference to each of ``pages``; what nobody holds is free again."""
        refs, held = self.refs, self.held
        for page in pages:
            left = refs[page] - 1
            if left < held[page]:
                raise IntegrityError(f"Page {page} was released more often than it was taken.")
            refs[page] = left
            if left == 0:
                self._free.append(page)
            elif left == 1 and held[page]:
                self._n_cached += 1

    def hold(self, page: int) -> None:
        """The prefix cache takes its one reference to a page that a session has filled."""
        if self.held[page] or self.refs[page] < 1:
            raise IntegrityError(f"Page {page} is free or cached already and cannot be donated.")
        self.held[page] = 1
        self.refs[page] += 1

    def unhold(self, page: int) -> bool:
        """The prefix cache gives its reference up. True: that freed the page; False: a session still uses it."""
        if not self.held[page]:
            raise IntegrityError(f"Page {page} is not held by the prefix cache.")
        self.held[page] = 0
        self.refs[page] -= 1
        if self.refs[page]:
            return False
        self._n_cached -= 1
        self._free.append(page)
        return True

    def copy_page(self, page: int) -> int:
        """Copy-on-write: move the caller's reference from a shared ``page`` to a new copy of it."""
        (copy,) = self.allocate(1)
        self.memory[copy] = self.memory[page]
        self.release((page,))
        return copy

    def trim(self) -> int:
        """Give the physical memory of all free pages back to the system; returns bytes. For moments of rest."""
        used = [page for page in self._free if self._written[page]]
        for page in used:
            self._written[page] = 0
        return self._storage.give_back(used)

    def check_integrity(self) -> None:
        """Raise ``IntegrityError`` unless every page is exactly one of free, cached or referenced and all books agree
        (see ``engine/cache/integrity.py``)."""
        from engine.cache.integrity import check_pool  # the check reads the pool, the pool does not need the check

        check_pool(self)

    def close(self) -> None:
        """Give the memory back. Raises ``PoolBorrowedError`` while a session or the prefix cache holds pages."""
        if self.closed:
            return
        borrowed = self.capacity_pages - len(self._free)
        if borrowed:
            raise PoolBorrowedError(
                f"{borrowed} pages of the KV pool are still borrowed ({self._n_cached} of them by the prefix cache "
                "alone): release sessions and cached prefixes first."
            )
        self.closed = True
        self.memory = self.memory[:0]
        self._storage.close()
