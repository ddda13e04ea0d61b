"""PrefixCache: donate, attach, chains, eviction, release — on pages that know what they hold."""

from __future__ import annotations

import pytest

from engine.cache.session import Session
from engine.errors import SessionError, UnknownChainError
from tests.shelf import MODEL, P, Shelf, tokens


@pytest.mark.parametrize("stored", [0, 1, P - 1, P, P + 1, 2 * P, 3 * P - 1, 3 * P])
@pytest.mark.parametrize("asked", [1, P - 1, P, P + 1, 2 * P, 2 * P + 1, 3 * P, 3 * P + 1])
def test_whole_pages_are_reused_and_always_one_token_is_left(stored: int, asked: int) -> None:
    shelf = Shelf()
    if stored:
        shelf.donate(tokens(stored))
    assert shelf.cache.held_pages == stored // P
    assert shelf.attach(tokens(asked)) == min(stored // P, (asked - 1) // P) * P


def test_a_prompt_that_is_only_to_be_stored_may_be_reused_whole() -> None:
    shelf = Shelf()
    shelf.donate(tokens(2 * P))
    assert shelf.attach(tokens(2 * P), whole=True) == 2 * P
    assert shelf.attach(tokens(2 * P)) == P


def test_an_empty_prompt_reuses_nothing() -> None:
    shelf = Shelf()
    shelf.donate(tokens(P))
    with Session(shelf.pool, n_ctx=64) as session:
        assert shelf.cache.attach(session, []) == 0
        assert shelf.cache.insert(session) is None


def test_a_page_is_only_reused_after_the_very_same_history() -> None:
    shelf = Shelf()
    shelf.donate([1, 2, 3, 4, 9, 9, 9, 9])
    shelf.donate([5, 6, 7, 8, 9, 9, 9, 9])
    assert shelf.cache.held_pages == 4  # the second pages hold the same tokens, and are not the same
    assert shelf.attach([9, 9, 9, 9, 1]) == 0
    assert shelf.attach([5, 6, 7, 8, 9, 9, 9, 9, 1]) == 8


@pytest.mark.parametrize("hash_page", [lambda parent, page: 0, lambda parent, page: sum(page) % 2])
def test_colliding_hashes_never_confuse_pages(hash_page: object) -> None:
    shelf = Shelf(pages=32, hash_page=hash_page)
    histories = [[a, b, 1, 2, c, a, 3, 4] for a in (1, 2) for b in (3, 4) for c in (5, 6)]
    for history in histories:
        shelf.donate(history)
    assert shelf.cache.held_pages == 4 + 8
    for history in histories:
        assert shelf.attach([*history, 7]) == 8
    assert shelf.attach([1, 3, 2, 1, 5, 1, 3, 4, 7]) == 0
    assert shelf.attach([1, 3, 1, 2, 6, 6, 6, 6, 7]) == 4


def test_a_second_donation_of_the_same_history_keeps_the_first_pages() -> None:
    shelf = Shelf()
    with Session(shelf.pool, n_ctx=64) as a, Session(shelf.pool, n_ctx=64) as b:
        MODEL.eval(a, tokens(2 * P))
        MODEL.eval(b, tokens(2 * P))
        first = shelf.cache.insert(a, label="x")
        assert shelf.cache.insert(b, label="x") == first
        assert shelf.cache.held_pages == 2
        shelf.check()
    assert shelf.pool.counts().cached == 2 and shelf.pool.n_free == 14


def test_attach_goes_on_from_a_page_border_inside_the_prompt() -> None:
    shelf = Shelf()
    shelf.donate(tokens(3 * P))
    with Session(shelf.pool, n_ctx=64) as session:
        MODEL.eval(session, tokens(P))
        assert shelf.cache.attach(session, tokens(3 * P + 1)) == 2 * P
        MODEL.eval(session, [3 * P])
        assert shelf.cache.attach(session, tokens(4 * P)) == 0  # not at a border
        with pytest.raises(SessionError):
            shelf.cache.attach(session, [7, 7, 7])
        shelf.check()


def test_only_what_was_evaluated_can_be_donated_and_only_to_its_own_pool() -> None:
    shelf, other = Shelf(), Shelf()
    with Session(shelf.pool, n_ctx=64) as session:
        MODEL.eval(session, tokens(P))
        with pytest.raises(SessionError):
            shelf.cache.insert(session, [9] * P)
        with pytest.raises(SessionError):
            shelf.cache.insert(session, tokens(P + 1))
        with pytest.raises(SessionError):
            other.cache.insert(session)
        with pytest.raises(SessionError):
            other.cache.attach(session, tokens(P))


def test_chains_tell_what_was_donated() -> None:
    shelf = Shelf()
    first = shelf.donate(tokens(2 * P + 1), "first question", "a")
    shelf.now += 10
    second = shelf.donate([*tokens(P), 9, 9, 9, 9, 9, 9], "second question", "b")
    assert first != second
    one, two = shelf.cache.chains()
    assert (one.id, one.label, one.chat, one.n_tokens, len(one.pages), one.n_own) == (
        first, "first question", "a", 9, 2, 1,
    )  # fmt: skip
    assert (two.id, two.n_tokens, len(two.pages), two.n_own, two.born) == (second, 10, 2, 1, 1010.0)
    assert (one.hits, one.last_hit) == (1, 1010.0)  # the second donation attached the first one's page
    shelf.now += 5
    shelf.attach(tokens(2 * P + 1))
    one, two = shelf.cache.chains()
    assert (one.hits, one.last_hit) == (2, 1015.0)
    assert (two.hits, two.last_hit) == (0, None)


def test_a_chat_that_goes_on_extends_its_chain() -> None:
    shelf = Shelf()
    first = shelf.donate(tokens(P), "one", "a")
    assert shelf.donate(tokens(3 * P), "two", "a") == first
    (chain,) = shelf.cache.chains()
    assert (chain.label, chain.n_tokens, len(chain.pages)) == ("two", 3 * P, 3)
    branch = shelf.donate([*tokens(2 * P), 7, 7, 7, 7], "edited", "a")
    assert branch != first  # the old branch stays
    assert shelf.donate([*tokens(2 * P), 7, 7, 7, 7, 8, 8, 8, 8], "on", "a") == branch
    assert shelf.donate(tokens(2 * P), "back", "a") in (first, branch)
    assert len(shelf.cache.chains()) == 2


def test_donations_without_a_chat_are_chains_of_their_own() -> None:
    shelf = Shelf()
    ids = [shelf.donate(tokens(P), "system"), shelf.donate(tokens(P), "system"), shelf.donate(tokens(2 * P), "system")]
    assert ids[0] == ids[1] != ids[2]
    assert shelf.donate(tokens(P), "other label") not in ids


def test_a_donation_may_name_the_chain_that_it_continues() -> None:
    shelf = Shelf()
    with Session(shelf.pool, n_ctx=64) as session:
        MODEL.eval(session, tokens(P))
        first = shelf.cache.insert(session)
        MODEL.eval(session, tokens(P, P))
        assert shelf.cache.insert(session, grows=first) == first
        assert [len(chain.pages) for chain in shelf.cache.chains()] == [2]
        shelf.cache.release_all()
        assert shelf.cache.insert(session, grows=first) != first
        shelf.check()


def test_eviction_takes_the_least_recently_used_leaf_first() -> None:
    shelf = Shelf()
    shelf.donate([*tokens(P), 10, 10, 10, 10], "old")
    shelf.donate([*tokens(P), 20, 20, 20, 20], "new")
    shelf.attach([*tokens(P), 10, 10, 10, 10, 1])
    assert shelf.cache.evict(1, evicted_for="c") == 1
    assert shelf.attach([*tokens(P), 20, 20, 20, 20, 1]) == P
    assert shelf.attach([*tokens(P), 10, 10, 10, 10, 1]) == 2 * P
    assert [chain.label for chain in shelf.cache.chains()] == ["old"]
    assert shelf.cache.evict(99) == 2
    assert shelf.cache.chains() == () and shelf.pool.n_free == 16


def test_eviction_shortens_a_chain_from_its_end() -> None:
    shelf = Shelf()
    shelf.donate(tokens(3 * P + 2), "a")
    shelf.cache.evict(2)
    (chain,) = shelf.cache.chains()
    assert (len(chain.pages), chain.n_tokens) == (1, P)
    assert shelf.attach(tokens(3 * P)) == P


def test_pages_in_use_and_pinned_pages_are_never_evicted() -> None:
    shelf = Shelf()
    pinned = shelf.donate([1] * P, "pinned")
    shelf.donate([2] * 2 * P, "used")
    assert pinned is not None
    shelf.cache.pin(pinned)
    shelf.cache.pin(pinned)
    assert shelf.cache.n_evictable == 2
    with Session(shelf.pool, n_ctx=64) as session:
        shelf.cache.attach(session, [2] * (P + 1))
        assert shelf.cache.evict(99) == 1  # the used chain's second page
        shelf.check()
    assert shelf.attach([1] * (P + 1)) == P
    shelf.cache.pin(pinned, False)
    assert shelf.cache.evict(99) == 2
    with pytest.raises(UnknownChainError):
        shelf.cache.pin(pinned)


def test_a_pinned_chain_stays_pinned_as_it_grows() -> None:
    shelf = Shelf()
    chain = shelf.donate(tokens(P), "a", "chat")
    assert chain is not None
    shelf.cache.pin(chain)
    shelf.donate(tokens(3 * P), "b", "chat")
    assert shelf.cache.evict(99) == 0 and shelf.cache.n_evictable == 0


def test_the_cache_keeps_its_own_budget() -> None:
    shelf = Shelf(max_pages=3)
    shelf.donate([1] * 2 * P, "a")
    shelf.donate([2] * 2 * P, "b")
    assert shelf.cache.held_pages == 3
    assert shelf.attach([2] * (2 * P + 1)) == 2 * P
    assert shelf.attach([1] * (2 * P + 1)) == P
    shelf.donate([3] * 5 * P, "longer than the budget")
    assert shelf.cache.held_pages == 3
    assert shelf.attach([3] * (5 * P)) == 3 * P


def test_release_tells_beforehand_what_it_will_do() -> None:
    shelf = Shelf()
    a = shelf.donate([*tokens(2 * P), 10, 10, 10, 10, 11, 11, 11, 11], "chat A", "a")
    shelf.donate([*tokens(2 * P), 20, 20, 20, 20], "chat B", "b")
    assert a is not None
    with Session(shelf.pool, n_ctx=64) as session:
        shelf.cache.attach(session, [*tokens(2 * P), 10, 10, 10, 10, 1])
        plan = shelf.cache.release(a, dry_run=True)
        assert (plan.freed, plan.kept, plan.shared, plan.shared_with, plan.dry_run) == (1, 2, 1, ("chat B",), True)
        assert shelf.cache.held_pages == 5
        free = shelf.pool.n_free
        done = shelf.cache.release(a)
        assert (done.freed, done.kept, done.shared, done.shared_with) == (1, 2, 1, ("chat B",))
        assert shelf.pool.n_free == free + 1
        shelf.check()
        MODEL.eval(session, [1])  # the page in use was not taken away
    assert shelf.pool.n_free == 16 - 3
    assert shelf.attach([*tokens(2 * P), 20, 20, 20, 20, 1]) == 3 * P
    with pytest.raises(UnknownChainError):
        shelf.cache.release(a)


def test_release_all_gives_everything_back_even_what_is_pinned() -> None:
    shelf = Shelf()
    chain = shelf.donate(tokens(2 * P), "a")
    shelf.donate([9] * P, "b")
    assert chain is not None
    shelf.cache.pin(chain)
    assert shelf.cache.release_all(dry_run=True).freed == 3
    report = shelf.cache.release_all()
    assert (report.freed, report.kept, report.shared, len(report.chains)) == (3, 0, 0, 2)
    assert shelf.pool.n_free == 16
    shelf.check()
    shelf.cache.close()
    shelf.pool.close()


def test_segments_are_the_compressed_tree() -> None:
    shelf = Shelf()
    a = shelf.donate([*tokens(2 * P), 10, 10, 10, 10, 11, 11, 11, 11], "a")
    b = shelf.donate([*tokens(2 * P), 20, 20, 20, 20], "b")
    short = shelf.donate(tokens(P), "short")
    with Session(shelf.pool, n_ctx=64) as session:
        shelf.cache.attach(session, [*tokens(2 * P), 20, 20, 20, 20, 0])
        texts = shelf.cache.segments(lambda ids: " ".join(map(str, ids)))
        rows = [(s.depth, s.n_tokens, s.chains, s.in_use, s.text) for s in texts]
        assert rows == [
            (0, P, (a, b, short), True, "0 1 2 3"),
            (P, P, (a, b), True, "4 5 6 7"),
            (2 * P, 2 * P, (a,), False, "10 10 10 10 11 11 11 11"),
            (2 * P, P, (b,), True, "20 20 20 20"),
        ]
        ids = [s.id for s in texts]
        assert [s.parent for s in texts] == [None, ids[0], ids[1], ids[1]]
    assert not any(s.in_use for s in shelf.cache.segments())
    assert shelf.cache.segments()[0].text == ""
    assert sum(len(s.pages) for s in shelf.cache.segments()) == shelf.cache.held_pages
