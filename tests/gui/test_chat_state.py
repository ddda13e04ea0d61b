"""Chats as data: branches, jobs, the store's calls, export."""

from __future__ import annotations

import json

import pytest

from app.state.document import Conversation, Message
from app.state.export import to_json, to_markdown
from app.state.jobs import first_kept, job_for_draft, job_for_reply, n_dropped, one_line, turns_of, vocabulary_of
from app.state.sampling import DEFAULT_SAMPLING, PRESETS, ChatSettings, preset_of
from app.state.store import ChatView, MemoryStore, TabGroup, Workspace
from app.text import tr, trn, use
from engine.port import Forecast, Span, Turn
from tests.gui.fake_engine import MODEL

VOCABULARY = vocabulary_of(MODEL)


def chat(*texts: str) -> Conversation:
    """User and assistant in turn."""
    made = Conversation("c")
    parent = None
    for number, text in enumerate(texts):
        message = made.add("assistant" if number % 2 else "user", text, parent=parent)
        if message.role == "assistant":
            message.ids, message.model = [10 * number, 10 * number + 1], VOCABULARY
        parent = message.id
    return made


def test_an_edit_makes_a_branch_and_the_old_one_is_reachable():
    made = chat("a", "b", "c", "d")
    old = [message.text for message in made.path()]
    first = made.path()[0]
    edited = made.add("user", "a2", parent=None)
    assert [message.text for message in made.path()] == ["a2"]
    assert made.siblings(edited.id) == (1, 2) and made.siblings(first.id) == (0, 2)
    assert made.sibling(edited.id, -1) == first.id and made.sibling(edited.id, 1) == edited.id
    made.choose(first.id)
    assert [message.text for message in made.path()] == old


def test_a_branch_inside_keeps_its_own_choice():
    made = chat("a", "b")
    reply = made.path()[1]
    again = made.add("assistant", "b2", parent=reply.parent)
    made.add("user", "c", parent=again.id)
    assert [message.text for message in made.path()] == ["a", "b2", "c"]
    made.choose(reply.id)
    assert [message.text for message in made.path()] == ["a", "b"]
    made.choose(again.id)
    assert [message.text for message in made.path()] == ["a", "b2", "c"]
    assert [message.text for message in made.path_to(again.id)] == ["a", "b2"]


def test_turns_carry_ids_only_for_the_same_vocabulary():
    made = chat("a", "b", "c")
    turns = turns_of(made, made.path(), VOCABULARY)
    assert turns == (Turn("user", "a"), Turn("assistant", "b", (10, 11)), Turn("user", "c"))
    assert turns_of(made, made.path(), "another")[1].ids is None


def test_a_system_prompt_comes_first_and_a_blank_one_is_left_out():
    made = chat("a")
    made.settings = ChatSettings(system_prompt="Be brief.")
    assert turns_of(made, made.path(), VOCABULARY)[0] == Turn("system", "Be brief.")
    made.settings = ChatSettings(system_prompt=" \n")
    assert turns_of(made, made.path(), VOCABULARY)[0].role == "user"


def test_the_job_for_a_reply_leaves_the_reply_itself_out_unless_it_goes_on():
    made = chat("question", "answer")
    reply = made.path()[1]
    job = job_for_reply(made, reply, stream=3, vocabulary=VOCABULARY, fresh_seed=False, resume=False)
    assert (job.id, job.chat, job.label, job.resume) == (3, "c", "question", False)
    assert [turn.role for turn in job.turns] == ["user"]
    job = job_for_reply(made, reply, stream=4, vocabulary=VOCABULARY, fresh_seed=False, resume=True)
    assert job.resume and job.turns[-1] == Turn("assistant", "answer", (10, 11))


def test_a_draft_is_forecast_as_the_next_turn():
    made = chat("a", "b")
    job = job_for_draft(made, made.path(), "draft", vocabulary=VOCABULARY)
    assert [turn.text for turn in job.turns] == ["a", "b", "draft"]


def test_the_oldest_turns_are_dropped_until_the_rest_fits():
    made = chat("a", "b", "c", "d", "e")
    path = made.path()
    spans = tuple(Span(100 * number, 100 * (number + 1), number) for number in range(5))
    kept = first_kept(made, path, Forecast(500, 0, spans), 300)
    assert kept == path[2].id
    made.first_kept = kept
    assert n_dropped(made, path) == 2
    assert [turn.text for turn in turns_of(made, path, VOCABULARY)] == ["c", "d", "e"]
    assert first_kept(made, path, Forecast(300, 0, spans), 10) == path[4].id


def test_presets_are_recognized_without_the_seed():
    assert preset_of(DEFAULT_SAMPLING) is PRESETS[0]
    assert preset_of(ChatSettings().sampling) is not None
    from dataclasses import replace

    assert preset_of(replace(DEFAULT_SAMPLING, seed=5)) is PRESETS[0]
    assert preset_of(replace(DEFAULT_SAMPLING, temperature=0.123)) is None


@pytest.mark.parametrize(("text", "line"), [("a\n b", "a b"), ("x" * 60, "x" * 47 + "…"), ("", "")])
def test_one_line(text, line):
    assert one_line(text) == line


def test_the_memory_store_keeps_copies():
    store = MemoryStore()
    made = chat("a")
    made.title = "Title"
    store.save_chat(made)
    message = made.path()[0]
    store.save_message("c", message)
    store.choose("c", message.id)
    reply = made.add("assistant", parent=message.id)
    store.save_message("c", reply)
    store.choose("c", reply.id)
    store.append_reply("c", reply.id, "some ", [1])
    store.append_reply("c", reply.id, "text", [2])
    loaded = store.load("c")
    assert [m.text for m in loaded.path()] == ["a", "some text"] and loaded.path()[1].ids == [1, 2]
    loaded.path()[0].text = "changed"
    assert store.load("c").path()[0].text == "a"
    assert reply.text == ""


def test_the_memory_store_searches_titles_and_texts():
    store = MemoryStore()
    for number, (title, text) in enumerate([("Porto", "a trip"), ("Invoice", "to Porto by train"), ("Other", "x")]):
        made = Conversation(str(number), title=title, updated=float(number))
        store.save_chat(made)
        store.save_message(made.id, Message(f"m{number}", "user", text))
    assert [(hit.chat, hit.excerpt) for hit in store.search("porto")] == [("1", "to Porto by train"), ("0", "")]
    assert store.search("nothing like it") == []


def test_the_memory_store_keeps_views_and_tabs_and_undoes_deletion():
    store = MemoryStore()
    store.save_chat(Conversation("c", title="T"))
    store.save_view("c", ChatView("draft", 40))
    workspace = Workspace((TabGroup(("c",), "c"),))
    store.save_workspace(workspace)
    store.delete_chat("c")
    assert store.heads() == []
    store.restore_chat("c")
    assert [head.title for head in store.heads()] == ["T"]
    assert store.view("c") == ChatView("draft", 40) and store.workspace() == workspace


def test_export_as_markdown_and_json():
    made = chat("What is $5?", "It is **five** dollars.")
    made.title = "Money"
    made.settings = ChatSettings(system_prompt="Be brief.")
    text = to_markdown(made)
    assert text.startswith("# Money\n") and "It is **five** dollars." in text and "Be brief." in text
    data = json.loads(to_json(made))
    assert data["title"] == "Money" and len(data["messages"]) == 2
    assert next(m for m in data["messages"].values() if m["role"] == "assistant")["ids"] == [10, 11]


def test_the_catalogue_of_words():
    assert tr("{n:,} tokens", n=1200) == "1,200 tokens"
    assert trn("{n} page", "{n} pages", 1) == "1 page" and trn("{n} page", "{n} pages", 3) == "3 pages"
    use({"Send": "Enviar"})
    try:
        assert tr("Send") == "Enviar" and tr("Stop") == "Stop"
    finally:
        use({})
