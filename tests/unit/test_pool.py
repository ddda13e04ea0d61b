"""KVPool: pages, reference counts, memory, and the proof that all books agree."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from engine.cache.integrity import check_pool
from engine.cache.pool import KVPool, KVSpec
from engine.cache.prefix import PrefixCache
from engine.cache.session import Session
from engine.errors import BadRequestValueError, IntegrityError, PoolBorrowedError, PoolExhaustedError
from engine.scheduling.events import PoolCounts
from tests.fakes import SPEC

SMOLLM2 = KVSpec(layers=30, kv_heads=3, head_size=64)


def pool_of(pages: int, rows: int = 4) -> KVPool:
    return KVPool(SPEC, capacity_pages=pages, page_rows=rows)


def test_page_bytes_of_smollm2_are_those_of_the_design() -> None:
    assert SMOLLM2.page_bytes(16) == 368_640
    assert KVSpec(30, 3, 64, "float32").page_bytes(16) == 2 * 368_640


def test_default_capacity_is_65536_tokens_or_a_quarter_of_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.cache.pool.free_memory", lambda: 100 << 30)
    assert SMOLLM2.default_capacity() == 4096
    monkeypatch.setattr("engine.cache.pool.free_memory", lambda: 4 * 368_640 * 10 + 5)
    assert SMOLLM2.default_capacity() == 10
    monkeypatch.setattr("engine.cache.pool.free_memory", lambda: 0)
    assert SMOLLM2.default_capacity() == 1
    assert SMOLLM2.default_capacity(budget_bytes=368_640 * 7 + 1) == 7


def test_allocation_is_all_or_nothing_and_says_what_is_missing() -> None:
    pool = pool_of(4)
    taken = pool.allocate(3)
    assert len(set(taken)) == 3
    with pytest.raises(PoolExhaustedError) as dry:
        pool.allocate(3)
    assert dry.value.missing == 2
    assert pool.counts() == PoolCounts(4, free=1, cached=0, referenced=3)
    assert pool.allocate(0) == []
    assert len(pool.allocate(1)) == 1


def test_a_page_is_free_when_its_last_reference_goes() -> None:
    pool = pool_of(2)
    (page,) = pool.allocate(1)
    pool.retain([page])
    pool.release([page])
    assert pool.refs[page] == 1 and pool.n_free == 1
    pool.release([page])
    assert pool.refs[page] == 0 and pool.n_free == 2


def test_releasing_too_often_and_sharing_a_free_page_are_defects() -> None:
    pool = pool_of(2)
    (page,) = pool.allocate(1)
    pool.release([page])
    with pytest.raises(IntegrityError):
        pool.release([page])
    with pytest.raises(IntegrityError):
        pool.retain([page])
    with pytest.raises(IntegrityError):
        pool.hold(page)
    with pytest.raises(IntegrityError):
        pool.unhold(page)


def test_the_caches_own_reference_cannot_be_released_by_a_session() -> None:
    pool = pool_of(2)
    (page,) = pool.allocate(1)
    pool.hold(page)
    pool.release([page])
    assert pool.counts() == PoolCounts(2, free=1, cached=1, referenced=0)
    with pytest.raises(IntegrityError):
        pool.release([page])


def test_states_follow_who_holds_a_page() -> None:
    pool = pool_of(3)
    a, b = pool.allocate(2)
    pool.hold(a)
    assert pool.counts() == PoolCounts(3, 1, 0, 2)
    pool.release([a, b])
    assert pool.counts() == PoolCounts(3, 2, 1, 0)
    pool.retain([a])
    assert pool.counts() == PoolCounts(3, 2, 0, 1)
    assert pool.unhold(a) is False
    assert pool.counts() == PoolCounts(3, 2, 0, 1)
    pool.release([a])
    assert pool.counts() == PoolCounts(3, 3, 0, 0)


def test_unholding_the_last_reference_frees_the_page() -> None:
    pool = pool_of(1)
    (page,) = pool.allocate(1)
    pool.hold(page)
    pool.release([page])
    assert pool.unhold(page) is True
    assert pool.counts() == PoolCounts(1, 1, 0, 0)


def test_copy_page_moves_the_reference_to_a_copy_of_the_bytes() -> None:
    pool = pool_of(2)
    (page,) = pool.allocate(1)
    pool.retain([page])
    pool.memory[page] = 7
    copy = pool.copy_page(page)
    assert copy != page
    assert (pool.memory[copy] == 7).all()
    assert pool.refs[page] == 1 and pool.refs[copy] == 1


def test_memory_is_one_array_of_whole_pages() -> None:
    pool = pool_of(3)
    assert pool.memory.shape == (3, SPEC.page_bytes(4)) and pool.memory.dtype == np.uint8
    assert pool.memory.flags.c_contiguous
    assert not pool.memory.any()


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system cannot give single pages back")
def test_trim_gives_back_the_memory_of_free_pages_only() -> None:
    pool = KVPool(SMOLLM2, capacity_pages=8)
    pages = pool.allocate(6)
    pool.memory[pages] = 5
    keep = pages[2]
    pool.release([page for page in pages if page != keep])
    assert pool.trim() == 5 * 368_640  # 90 system pages each
    assert (pool.memory[keep] == 5).all()
    assert not np.delete(pool.memory, keep, axis=0).any()
    assert pool.trim() == 0


@pytest.mark.skipif(not hasattr(mmap, "MADV_DONTNEED"), reason="this system cannot give single pages back")
def test_trim_never_touches_a_neighbour_when_pages_are_smaller_than_the_systems() -> None:
    pool = KVPool(KVSpec(1, 1, 48), capacity_pages=64)  # 3,072 bytes a page
    pages = pool.allocate(64)
    pool.memory[pages] = 9
    pool.release([page for page in pages if page % 2])
    pool.trim()
    assert (pool.memory[0::2] == 9).all()


def test_a_borrowed_pool_cannot_be_closed() -> None:
    pool = pool_of(4)
    cache = PrefixCache(pool)
    with Session(pool, n_ctx=16) as session:
        session.reserve(4)
        session.advance([1, 2, 3, 4])
        cache.insert(session)
        with pytest.raises(PoolBorrowedError):
            pool.close()
    with pytest.raises(PoolBorrowedError):
        pool.close()
    cache.release_all()
    pool.close()
    assert pool.memory.shape[0] == 0
    pool.close()


def test_a_pool_can_be_closed_while_someone_still_looks_at_its_memory() -> None:
    pool = pool_of(2)
    view = pool.memory[0]
    pool.close()
    assert not view.any()


@pytest.mark.parametrize("sizes", [{"capacity_pages": 0}, {"capacity_pages": 1, "page_rows": 0}])
def test_senseless_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(BadRequestValueError):
        KVPool(SPEC, **sizes)


def _lost(pool: KVPool, _s: Session, _c: PrefixCache) -> None:
    pool._free.pop()


def _twice_free(pool: KVPool, _s: Session, _c: PrefixCache) -> None:
    pool._free.append(pool._free[0])


def _free_but_used(pool: KVPool, session: Session, _c: PrefixCache) -> None:
    pool._free[-1] = session.pages[0]


def _lost_decrement(pool: KVPool, session: Session, _c: PrefixCache) -> None:
    pool.refs[session.pages[0]] += 1


def _table_entry_gone(_p: KVPool, session: Session, _c: PrefixCache) -> None:
    session._pages.pop()


def _hold_without_node(pool: KVPool, session: Session, _c: PrefixCache) -> None:
    pool.hold(session.pages[-1])


def _miscounted(pool: KVPool, _s: Session, _c: PrefixCache) -> None:
    pool._n_cached += 1


def _foreign_page(pool: KVPool, session: Session, _c: PrefixCache) -> None:
    session._pages.append(pool.capacity_pages)


def _forgotten_session(pool: KVPool, session: Session, _c: PrefixCache) -> None:
    del pool.borrowers[id(session)]


DEFECTS = (
    _lost,
    _twice_free,
    _free_but_used,
    _lost_decrement,
    _table_entry_gone,
    _hold_without_node,
    _miscounted,
    _foreign_page,
    _forgotten_session,
)


@pytest.mark.parametrize("damage", DEFECTS)
def test_the_integrity_check_finds_every_kind_of_damage(damage: object) -> None:
    pool = pool_of(8)
    cache = PrefixCache(pool)
    with Session(pool, n_ctx=32) as old:
        old.reserve(8)
        old.advance(list(range(8)))
        cache.insert(old)
    session = Session(pool, n_ctx=32)
    cache.attach(session, [0, 1, 2, 3, 9, 9])
    session.reserve(6)
    pool.check_integrity()
    damage(pool, session, cache)  # type: ignore[operator]
    with pytest.raises(IntegrityError):
        check_pool(pool)
