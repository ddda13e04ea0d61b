"""Session: block table, reservation, copy-on-write, adoption of cached pages."""

from __future__ import annotations

import numpy as np
import pytest

from engine.cache.pool import KVPool
from engine.cache.session import Session, reserve_all
from engine.errors import PoolExhaustedError, SessionError
from tests.fakes import SPEC, FakeEvaluator

P = 4


def pool_of(pages: int) -> KVPool:
    return KVPool(SPEC, capacity_pages=pages, page_rows=P)


@pytest.mark.parametrize(("n", "pages"), [(0, 0), (1, 1), (P - 1, 1), (P, 1), (P + 1, 2), (3 * P, 3), (3 * P + 1, 4)])
def test_reserve_takes_as_many_pages_as_the_tokens_need(n: int, pages: int) -> None:
    pool = pool_of(8)
    with Session(pool, n_ctx=32) as session:
        assert session.pages_needed(n) == pages
        session.reserve(n)
        assert session.n_pages == pages
        assert session.block_table[:pages].tolist() == list(session.pages)
        session.reserve(n)  # the room is there already
        assert session.n_pages == pages
        pool.check_integrity()
    assert pool.n_free == 8


def test_reserve_is_all_or_nothing() -> None:
    pool = pool_of(2)
    with Session(pool, n_ctx=64) as session:
        session.reserve(P)
        with pytest.raises(PoolExhaustedError) as dry:
            session.reserve(3 * P)
        assert dry.value.missing == 1
        assert session.n_pages == 1 and pool.n_free == 1


def test_the_context_bounds_a_session() -> None:
    pool = pool_of(8)
    with Session(pool, n_ctx=6) as session:
        session.reserve(6)
        session.advance([1] * 6)
        with pytest.raises(SessionError):
            session.reserve(1)
    with pytest.raises(SessionError):
        Session(pool, n_ctx=0)
    pool.close()
    with pytest.raises(SessionError):
        Session(pool, n_ctx=6)


def test_only_reserved_positions_can_be_evaluated() -> None:
    with Session(pool_of(2), n_ctx=32) as session:
        session.reserve(P)
        with pytest.raises(SessionError):
            session.advance([1] * (P + 1))
        session.advance([1] * P)
        assert (session.n_past, session.tokens) == (P, [1] * P)


def test_leaving_returns_the_pages_and_closes_the_session() -> None:
    pool = pool_of(4)
    with Session(pool, n_ctx=16) as session:
        session.reserve(10)
    assert pool.n_free == 4 and session.closed
    session.release()
    with pytest.raises(SessionError):
        session.reserve(1)
    pool.check_integrity()


def test_a_session_without_a_pool_has_one_flat_slab() -> None:
    with Session(n_ctx=10, spec=SPEC, page_rows=P) as session:
        assert session.block_table.tolist() == [0, 1, 2]
        model = FakeEvaluator(n_ctx=10)
        model.eval(session, range(7))
        session.truncate(5)
        assert session.n_pages == 3
        model.eval(session, [9] * 5)
        assert session.tokens == [0, 1, 2, 3, 4, 9, 9, 9, 9, 9]
        with pytest.raises(SessionError):
            session.reserve(1)
        with pytest.raises(SessionError):
            session.fork()
    with pytest.raises(SessionError):
        Session(n_ctx=10)


def test_a_fork_shares_pages_until_one_of_the_two_writes() -> None:
    pool, model = pool_of(8), FakeEvaluator()
    with Session(pool, n_ctx=32) as a:
        model.eval(a, [1, 2, 3, 4, 5, 6])
        with a.fork() as b:
            assert list(a.pages) == list(b.pages)
            assert b.logits is not a.logits and np.array_equal(b.logits, a.logits)
            assert b.pages_needed(1) == 1
            model.eval(b, [7])  # the fake refuses to write a shared page, and reads every page back
            assert a.pages[0] == b.pages[0] and a.pages[1] != b.pages[1]
            model.eval(a, [8, 9, 10])
            model.eval(b, [11, 12])
            assert a.tokens == [1, 2, 3, 4, 5, 6, 8, 9, 10]
            assert b.tokens == [1, 2, 3, 4, 5, 6, 7, 11, 12]
            pool.check_integrity()
    assert pool.n_free == 8


def test_writing_into_a_shared_page_after_a_cut_copies_it_first() -> None:
    pool, model = pool_of(4), FakeEvaluator()
    with Session(pool, n_ctx=32) as a, Session(pool, n_ctx=32) as b:
        model.eval(a, [1, 2, 3, 4])
        b.adopt(list(a.pages), [1, 2, 3, 4])
        b.truncate(2)
        model.eval(b, [8, 9])
        assert b.pages[0] != a.pages[0]
        model.eval(a, [5])  # verifies that a's page is as it was
        model.eval(b, [5])
        pool.check_integrity()


def test_a_copy_that_does_not_fit_changes_nothing() -> None:
    pool, model = pool_of(2), FakeEvaluator()
    with Session(pool, n_ctx=32) as a:
        model.eval(a, [1, 2, 3])
        b = a.fork()
        b.reserve(1)  # takes the last page as its copy
        with a.fork() as c:
            with pytest.raises(PoolExhaustedError):
                c.reserve(1)
            assert list(c.pages) == list(a.pages)
        b.release()
        pool.check_integrity()


@pytest.mark.parametrize("cut", range(10))
def test_truncate_returns_the_pages_it_no_longer_needs(cut: int) -> None:
    pool, model = pool_of(4), FakeEvaluator()
    with Session(pool, n_ctx=32) as session:
        model.eval(session, range(9))
        session.truncate(cut)
        assert session.tokens == list(range(cut)) and session.n_past == cut
        assert session.n_pages == -(-cut // P)
        assert (session.logits is None) == (cut < 9)
        model.eval(session, [40])
        pool.check_integrity()


def test_truncate_cannot_lengthen() -> None:
    with Session(pool_of(2), n_ctx=32) as session, pytest.raises(SessionError):
        session.truncate(1)


def test_adopted_pages_take_the_place_of_reserved_ones() -> None:
    pool, model = pool_of(8), FakeEvaluator()
    with Session(pool, n_ctx=32) as a, Session(pool, n_ctx=32) as b:
        model.eval(a, range(8))
        b.reserve(11)
        b.adopt(list(a.pages), list(range(8)))
        assert list(b.pages[:2]) == list(a.pages) and b.n_pages == 3
        assert pool.n_free == 8 - 3
        model.eval(b, [30, 31, 32])
        pool.check_integrity()


def test_only_whole_pages_at_a_page_border_can_be_adopted() -> None:
    pool, model = pool_of(8), FakeEvaluator()
    with Session(pool, n_ctx=32) as a, Session(pool, n_ctx=32) as b:
        model.eval(a, range(8))
        with pytest.raises(SessionError):
            b.adopt([a.pages[0]], [0, 1, 2])
        model.eval(b, [0])
        with pytest.raises(SessionError):
            b.adopt([a.pages[0]], [0, 1, 2, 3])
        pool.check_integrity()


def test_reserve_all_takes_pages_for_everyone_or_for_nobody() -> None:
    pool = pool_of(3)
    sessions = [Session(pool, n_ctx=32) for _ in range(4)]
    with pytest.raises(PoolExhaustedError) as dry:
        reserve_all(sessions)
    assert dry.value.missing == 1
    assert [session.n_pages for session in sessions] == [0, 0, 0, 0]
    reserve_all(sessions[:3])
    assert [session.n_pages for session in sessions] == [1, 1, 1, 0]
    for session in sessions:
        session.release()
    assert pool.n_free == 3


def test_reserve_all_refuses_a_session_that_stands_twice_or_is_full_or_closed() -> None:
    pool = pool_of(8)
    with Session(pool, n_ctx=4) as full, Session(pool, n_ctx=16) as other:
        with pytest.raises(SessionError):
            reserve_all([other, other])
        full.reserve(4)
        full.advance([1, 2, 3, 4])
        with pytest.raises(SessionError):
            reserve_all([other, full])
        assert other.n_pages == 0
    with pytest.raises(SessionError):
        reserve_all([other])


def test_reserve_all_spans_pools() -> None:
    first, second = pool_of(1), pool_of(1)
    with Session(first, n_ctx=16) as a, Session(second, n_ctx=16) as b:
        reserve_all([a, b])
        assert (first.n_free, second.n_free) == (0, 0)
