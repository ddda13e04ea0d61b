"""The proof that no page is lost, shared by mistake or counted twice; cheap enough to run several times a second."""

from __future__ import annotations

import numpy as np

from engine.cache.pool import KVPool
from engine.errors import IntegrityError


def check_pool(pool: KVPool) -> None:
    """Compare a pool's books with what its borrowers really hold; raise ``IntegrityError`` with the first difference.

    Checked: references of each page = entries in block tables + the cache's hold; the free list names exactly the
    pages without references, each once; the cache holds exactly the pages marked as held; and
    free + cached + referenced = capacity.
    """
    refs = np.frombuffer(pool.refs, dtype=np.int32)
    held = np.frombuffer(pool.held, dtype=np.uint8)
    borrowed = np.zeros(pool.capacity_pages, dtype=np.int64)
    cached = np.zeros(pool.capacity_pages, dtype=np.int64)
    for borrower in pool.borrowers.values():
        pages = np.fromiter(borrower.borrowed_pages(), dtype=np.int64)
        counted = np.bincount(pages, minlength=pool.capacity_pages)
        if len(counted) > pool.capacity_pages:
            raise IntegrityError(f"{borrower!r} names page {int(pages.max())}, which the pool does not have.")
        borrowed += counted
        if getattr(borrower, "is_cache", False):
            cached += counted
    _same(refs, borrowed, "has {} references in the pool's books, but {} holders")
    _same(held, cached, "is marked as held by the cache {} times, but the cache holds it {} times")
    free = np.bincount(np.array(pool._free, dtype=np.int64), minlength=pool.capacity_pages)
    _same(free, (refs == 0).astype(np.int64), "stands in the free list {} times instead of {}")
    only_cached = int(np.count_nonzero((refs == 1) & (held == 1)))
    if only_cached != pool.n_cached:
        raise IntegrityError(f"{only_cached} pages are only cached, the pool counts {pool.n_cached}.")
    counts = pool.counts()
    if counts.free + counts.cached + counts.referenced != counts.capacity or counts.referenced < 0:
        raise IntegrityError(f"Free, cached and referenced pages do not add up to the capacity: {counts}.")


def _same(found: np.ndarray, expected: np.ndarray, sentence: str) -> None:
    wrong = np.flatnonzero(found != expected)
    if len(wrong):
        page = int(wrong[0])
        raise IntegrityError(f"Page {page} " + sentence.format(int(found[page]), int(expected[page])) + ".")
