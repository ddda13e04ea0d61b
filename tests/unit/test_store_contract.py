"""What every store promises, tried on the one in memory and on the one in a file, which is opened anew each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.state.document import Conversation, Message, ReplyStats
from app.state.sampling import ChatSettings
from app.state.sqlite_open import open_store
from app.state.store import ChatStore, ChatView, MemoryStore, SearchHit, TabGroup, Workspace
from engine.scheduling.events import Miss
from engine.scheduling.request import SamplingParams

Reopen = Callable[[], ChatStore]


@pytest.fixture(params=["memory", "sqlite"])
def reopen(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Reopen]:
    """A store; each call closes the one before and opens it again (memory cannot be opened again: it stays)."""
    opened: list[ChatStore] = []
    memory = MemoryStore()

    def again() -> ChatStore:
        if request.param == "memory":
            return memory
        if opened:
            opened[-1].close()
        store, notice = open_store(tmp_path, lambda sentence: pytest.fail(sentence))
        assert notice == ""
        opened.append(store)
        return store

    yield again
    if opened:
        opened[-1].close()


def chat(store: ChatStore, *texts: str, title: str = "A chat", updated: float = 2.0) -> Conversation:
    """A saved chat in which a person and a model take turns."""
    made = Conversation(f"id of {title}", title, 1.0, updated)
    store.save_chat(made)
    parent = None
    for number, text in enumerate(texts):
        message = made.add("assistant" if number % 2 else "user", text, parent=parent)
        store.save_message(made.id, message)
        store.choose(made.id, message.id)
        parent = message.id
    return made


def test_a_chat_comes_back_with_everything_in_it(reopen: Reopen) -> None:
    made = Conversation("c1", "Invoice ✉", 10.5, 11.25)
    made.settings = ChatSettings(
        "Be brief.", SamplingParams(temperature=0.3, logit_bias=((5, -1.5), (9, 2.0)), seed=77), max_new=12
    )
    store = reopen()
    store.save_chat(made)
    question = made.add("user", "Hello\n  “you” 👋\x00", parent=None)
    reply = made.add("assistant", "Hi", parent=question.id)
    reply.status, reply.model, reply.seed = "length", "llama/SmolLM2/49152", 2**64 - 1
    reply.ids = [0, 1, 255, 256, 65_536, 262_143, 16_777_215]
    reply.stats = ReplyStats(
        231, 208, 72, 0.038, 1.5, 3.5, 16, 7, Miss("evicted", 208, evicted_at=5.5, evicted_for="B")
    )
    reply.error, reply.error_code = "It broke.", "integrity"
    for message in (question, reply):
        store.save_message("c1", message)
        store.choose("c1", message.id)
    made.first_kept = reply.id
    store.save_chat(made)
    assert reopen().load("c1") == made


def test_chats_are_listed_by_their_last_change(reopen: Reopen) -> None:
    store = reopen()
    for number, updated in enumerate((5.0, 9.0, 7.0)):
        chat(store, "x", title=f"{number}", updated=updated)
    assert [head.title for head in reopen().heads()] == ["1", "2", "0"]


def test_an_unknown_chat_is_a_key_error(reopen: Reopen) -> None:
    with pytest.raises(KeyError):
        reopen().load("nobody")


def test_branches_and_the_shown_one_come_back(reopen: Reopen) -> None:
    store = reopen()
    made = chat(store, "first", "reply")
    other = made.add("user", "first, better", parent=None)
    store.save_message(made.id, other)
    store.choose(made.id, other.id)
    again = made.add("assistant", "another reply", parent=made.roots[0])
    store.save_message(made.id, again)
    store.choose(made.id, again.id)
    store.choose(made.id, made.roots[0])
    made.choose(made.roots[0])
    loaded = reopen().load(made.id)
    assert [message.text for message in loaded.path()] == ["first", "another reply"]
    assert loaded.siblings(again.id) == (1, 2)
    assert loaded.siblings(other.id) == (1, 2)


def test_saving_a_message_again_keeps_its_place_and_its_branch(reopen: Reopen) -> None:
    store = reopen()
    made = chat(store, "question", "reply", "next")
    first, second = made.path()[:2]
    second.text, second.status = "reply, longer", "stopped"
    store.save_message(made.id, second)
    store.save_message(made.id, first)
    path = reopen().load(made.id).path()
    assert [(message.text, message.status) for message in path] == [
        ("question", "done"),
        ("reply, longer", "stopped"),
        ("next", "done"),
    ]


def test_a_reply_grows_piece_by_piece(reopen: Reopen) -> None:
    store = reopen()
    made = chat(store, "question", "")
    reply = made.path()[1]
    for text, ids in (("Once ", [1, 2]), ("", [3]), ("upon", [70_000])):
        store.append_reply(made.id, reply.id, text, ids)
    found = store.load(made.id).messages[reply.id]
    assert (found.text, found.ids) == ("Once upon", [1, 2, 3, 70_000])
    found = reopen().load(made.id).messages[reply.id]
    assert (found.text, found.ids) == ("Once upon", [1, 2, 3, 70_000])


def test_the_whole_message_replaces_its_pieces(reopen: Reopen) -> None:
    store = reopen()
    made = chat(store, "question", "")
    reply = made.path()[1]
    store.append_reply(made.id, reply.id, "Once upon a ti", [1, 2, 3])
    reply.text, reply.ids = "Once upon", [1, 2]
    store.save_message(made.id, reply)
    store.append_reply(made.id, reply.id, " a time", [9])
    found = reopen().load(made.id).messages[reply.id]
    assert (found.text, found.ids) == ("Once upon a time", [1, 2, 9])


def test_a_deleted_chat_can_be_brought_back(reopen: Reopen) -> None:
    store = reopen()
    made = chat(store, "question")
    store.delete_chat(made.id)
    assert store.heads() == []
    assert store.search("question") == []
    with pytest.raises(KeyError):
        store.load(made.id)
    store.restore_chat(made.id)
    assert [message.text for message in reopen().load(made.id).path()] == ["question"]


def test_drafts_places_tabs_and_layout_come_back(reopen: Reopen) -> None:
    store = reopen()
    made = chat(store, "question")
    saved = Workspace((TabGroup((made.id, "other"), made.id), TabGroup(("third",), None)), 1)
    store.save_view(made.id, ChatView("half a th", 120))
    store.save_workspace(saved)
    store.save_layout("docks", b"\x00\xff\x01")
    store = reopen()
    assert store.view(made.id) == ChatView("half a th", 120)
    assert store.view("other") == ChatView()
    assert store.workspace() == saved
    assert store.layout("docks") == b"\x00\xff\x01"
    assert store.layout("window") == b""


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("borrow", {"Rust"}),
        ("BORROW", {"Rust"}),
        ("invoice", {"Invoice", "Rust"}),
        ("ÜBER", {"Travel"}),
        ("ab", {"Invoice"}),
        ("100%", {"Travel"}),
        ('say "no"', {"Rust"}),
        ("nowhere", set()),
        ("a AND b", set()),
        ("  ", set()),
    ],
)
def test_search_finds_titles_and_messages(reopen: Reopen, words: str, found: set[str]) -> None:
    store = reopen()
    chat(store, "Please pay", "abc", title="Invoice", updated=3)
    chat(store, "What does the borrow checker say?", 'I say "no" to this invoice', title="Rust", updated=2)
    chat(store, "über 100% sure", title="Travel", updated=1)
    hits = reopen().search(words) if words.strip() else []
    assert {hit.chat.removeprefix("id of ") for hit in hits} == found


def test_a_hit_shows_the_text_around_it(reopen: Reopen) -> None:
    store = reopen()
    chat(store, "first", "a long reply that mentions the\nborrow checker somewhere", title="Rust", updated=2)
    chat(store, "nothing", title="borrow", updated=3)
    assert reopen().search("borrow") == [
        SearchHit("id of borrow", ""),
        SearchHit("id of Rust", "… that mentions the borrow checker somewhere"),
    ]


def test_text_with_half_a_character_is_kept(reopen: Reopen) -> None:
    store = reopen()
    made = chat(store, "ok \ud83d and \ud83d\ude00")
    text = reopen().load(made.id).path()[0].text
    assert text.startswith("ok ") and text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").endswith("😀")


def test_a_message_without_ids_or_figures(reopen: Reopen) -> None:
    store = reopen()
    made = chat(store, "question")
    message = Message("m", "assistant", "x", made.roots[0], created=3.0)
    made.insert(message)
    store.save_message(made.id, message)
    found = reopen().load(made.id).messages["m"]
    assert (found.ids, found.stats, found.seed, found.created) == ([], None, None, 3.0)
