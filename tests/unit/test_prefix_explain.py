"""Why a prompt was not reused: every cause, and the eviction ledger behind one of them."""

from __future__ import annotations

from engine.scheduling.events import Miss
from tests.shelf import P, Shelf, tokens

HISTORY = [*tokens(2 * P), 30, 31, 32, 33]


def miss(shelf: Shelf, prompt: list[int], chat: str = "") -> Miss:
    found = shelf.cache.explain(prompt, chat)
    assert found is not None
    return found


def test_nothing_is_to_explain_when_all_whole_pages_were_reused() -> None:
    shelf = Shelf()
    shelf.donate(HISTORY)
    assert shelf.cache.explain([*HISTORY, 1]) is None
    assert shelf.cache.explain(HISTORY) is None  # the last page cannot be reused: one token must be evaluated
    assert shelf.cache.explain(HISTORY[:-1]) is None


def test_never_stored() -> None:
    shelf = Shelf()
    assert miss(shelf, tokens(9)) == Miss("never_stored", 0)
    shelf.donate(HISTORY)
    assert miss(shelf, [40] * 9) == Miss("never_stored", 0)
    assert miss(shelf, [*HISTORY, *[40] * 5]) == Miss("never_stored", 3 * P)


def test_a_few_common_tokens_of_another_chat_are_no_divergence() -> None:
    shelf = Shelf()
    shelf.donate(HISTORY, "theirs", "b")
    assert miss(shelf, [0, 40, 40, 40, 40], "a") == Miss("never_stored", 0)
    assert miss(shelf, [0, 1, 40, 40, 40], "a").cause == "diverged"


def test_diverged_names_the_chain_and_shows_both_texts() -> None:
    shelf = Shelf()
    chain = shelf.donate([*tokens(20), 21, 22, 23, 24], "the question", "a")
    prompt = [*tokens(14), 99, 98, 97, 96, 95, 94, 93, 92, 91, 90]
    found = miss(shelf, prompt, "a")
    assert found == Miss(
        "diverged", 3 * P, 14, chain, "the question", tuple([*tokens(20), 21, 22][6:22]), tuple(prompt[6:22])
    )


def test_divergence_at_the_first_token_counts_only_within_a_chat() -> None:
    shelf = Shelf()
    shelf.donate(HISTORY, "mine", "a")
    assert miss(shelf, [40, *HISTORY], "a").token_position == 0
    assert miss(shelf, [40, *HISTORY], "b").cause == "never_stored"


def test_the_same_chats_history_is_preferred_to_a_longer_match() -> None:
    shelf = Shelf()
    mine = shelf.donate([*tokens(P), 10, 50, 50, 50], "mine", "a")
    shelf.donate([*tokens(P), 10, 11, 12, 50], "theirs", "b")
    found = miss(shelf, [*tokens(P), 10, 11, 12, 13, 14], "a")
    assert (found.chain, found.token_position) == (mine, P + 1)
    assert miss(shelf, [*tokens(P), 10, 11, 12, 13, 14], "c").chain_label == "theirs"


def test_part_of_a_page() -> None:
    shelf = Shelf()
    chain = shelf.donate([*HISTORY, 1, 2], "a", "chat")
    assert miss(shelf, [*HISTORY, 1, 2, 3, 4, 5], "chat") == Miss("partial_page", 3 * P, 3 * P + 2, chain, "a")
    assert miss(shelf, [*HISTORY, 1, 7, 3, 4, 5], "chat").cause == "diverged"
    assert miss(shelf, tokens(P)) == Miss("partial_page", 0)  # not longer than a page


def test_evicted_tells_when_and_for_whom_until_it_comes_back() -> None:
    shelf = Shelf()
    chain = shelf.donate(HISTORY, "gone", "a")
    shelf.now += 60
    shelf.cache.evict(2, evicted_for="chat B")
    (eviction,) = shelf.cache.take_evictions()
    assert (eviction.pages, eviction.label, eviction.chat, eviction.chain) == (2, "gone", "a", chain)
    assert (eviction.at, eviction.age_s, eviction.idle_s, eviction.evicted_for) == (1060.0, 60.0, 60.0, "chat B")
    assert shelf.cache.take_evictions() == ()
    shelf.now += 60
    found = miss(shelf, [*HISTORY, 5])
    assert found == Miss("evicted", P, chain=chain, chain_label="gone", evicted_at=eviction.at, evicted_for="chat B")
    assert shelf.cache.regrets == 1
    shelf.donate(HISTORY)
    assert shelf.cache.explain([*HISTORY, 5]) is None


def test_what_was_released_by_hand_was_evicted_for_nobody() -> None:
    shelf = Shelf()
    chain = shelf.donate(HISTORY)
    assert chain is not None
    shelf.cache.release(chain)
    found = miss(shelf, [*HISTORY, 5])
    assert (found.cause, found.evicted_for, found.evicted_at) == ("evicted", "", 1000.0)
    assert shelf.cache.take_evictions() == ()


def test_one_eviction_is_reported_per_chain_and_moment() -> None:
    shelf = Shelf()
    shelf.donate([1] * 2 * P, "a")
    shelf.donate([2] * P, "b")
    shelf.cache.evict(3)
    shelf.donate([3] * P, "c")
    shelf.now += 1
    shelf.cache.evict(1)
    assert [(e.label, e.pages) for e in shelf.cache.take_evictions()] == [("a", 2), ("b", 1), ("c", 1)]


def test_the_ledger_is_bounded() -> None:
    shelf = Shelf(ledger_size=2)
    shelf.donate(HISTORY)
    shelf.cache.evict(3)
    assert miss(shelf, HISTORY[: P + 1]).cause == "evicted"  # evicted last
    assert miss(shelf, [*HISTORY, 1]).position == 0
    shelf.donate([9] * 2 * P)
    shelf.cache.evict(2)
    assert miss(shelf, HISTORY[: P + 1]).cause == "never_stored"


def test_another_model_is_the_cause_once_per_chat() -> None:
    shelf = Shelf()
    shelf.cache.former_chats.add("a")
    assert miss(shelf, HISTORY, "b").cause == "never_stored"
    assert miss(shelf, HISTORY, "a") == Miss("other_model", 0)
    assert miss(shelf, HISTORY, "a").cause == "never_stored"


def test_colliding_hashes_do_not_make_up_evictions() -> None:
    shelf = Shelf(hash_page=lambda parent, page: 0)
    shelf.donate([1] * P)
    shelf.cache.evict(1)
    assert miss(shelf, [2] * (P + 1)).cause == "never_stored"
