"""The window over the chat database: what a person finds again after the program ended in whatever way."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from app.state.document import Conversation, Message
from app.state.sqlite_open import FILE_NAME, open_store
from app.state.sqlite_rows import choose_ops, save_chat_ops, save_message_ops
from app.state.sqlite_store import SqliteStore
from app.state.sqlite_writer import Writer
from app.state.store import TabGroup, Workspace

CHATS = 500
MESSAGES = 12


@pytest.fixture
def store(tmp_path):
    """Opens the chats of the test's folder; a store that was not closed stands for a program that was killed."""
    opened: list[SqliteStore] = []

    def again() -> SqliteStore:
        made, notice = open_store(tmp_path / "data", lambda sentence: pytest.fail(sentence))
        assert isinstance(made, SqliteStore)
        assert notice == ""
        opened.append(made)
        return made

    yield again
    for one in opened:
        one.close()


def fill(folder: Path) -> None:
    """Many chats, the last eight of them in tabs."""
    folder.mkdir(parents=True)
    writer = Writer(folder / FILE_NAME, pytest.fail)
    for number in range(CHATS):
        made = Conversation(f"c{number}", f"Chat number {number}", 1.0, 1000.0 + number)
        ops = save_chat_ops(made)
        parent = None
        for turn in range(MESSAGES):
            role = "assistant" if turn % 2 else "user"
            message = Message(f"c{number}m{turn}", role, f"turn {turn} of {number} " + "word " * 120, parent)
            message.ids = list(range(200)) if turn % 2 else []
            ops += save_message_ops(made.id, message) + choose_ops(made.id, message.id)
            parent = message.id
        writer.put(ops)
    assert writer.close(60)
    store = SqliteStore(folder / FILE_NAME, pytest.fail)
    open_chats = tuple(f"c{number}" for number in range(CHATS - 8, CHATS))
    store.save_workspace(Workspace((TabGroup(open_chats, open_chats[-1]),), 0))
    store.close()


def test_a_reopened_chat_sends_the_exact_ids(make_window, store):
    first = make_window(store())
    reply = first.reply_to("one", "two three four")
    assert len(reply.ids) == 3
    first.close()
    second = make_window(store())
    assert second.path()[1].text == "two three four "
    stream = second.type_and_send("next")
    assert [turn.ids for turn in second.engine.jobs[stream].turns] == [None, tuple(reply.ids), None]


def test_figures_are_there_after_a_restart(make_window, store):
    first = make_window(store())
    stats = first.reply_to("one", "two", n_cached=16, n_prompt=23).stats
    first.close()
    second = make_window(store())
    assert second.path()[-1].stats == stats
    assert second.controller.tokens_held(second.chat) == 24


def test_a_program_that_was_killed_left_everything(make_window, store):
    first = make_window(store())
    first.reply_to("first chat", "x")
    chat = first.chat
    second_chat = first.new_chat()
    stream = first.type_and_send("second chat")
    first.write(stream, "half of a reply")
    first.pane().composer.input.setPlainText("a draft")
    first.qtbot.waitUntil(lambda: first.store.view(second_chat).draft == "a draft", timeout=5000)
    first.qtbot.waitUntil(lambda: "half of a reply" in first.store.load(second_chat).path()[-1].text, timeout=5000)
    after = make_window(store())
    assert after.window.tabs.open_chats() == [chat, second_chat]
    assert after.chat == second_chat
    assert after.pane().composer.text == "a draft"
    reply = after.path()[-1]
    assert (reply.text, reply.status) == ("half of a reply ", "stopped")
    assert len(reply.ids) == 4
    resumed = max(after.engine.jobs, default=0)
    after.window.commands.actions["continue"].trigger()
    after.settle()
    job = after.engine.jobs[resumed + 1]
    assert job.resume
    assert job.turns[-1].ids == tuple(reply.ids)


def test_branches_are_there_after_a_restart(make_window, store):
    first = make_window(store())
    reply = first.reply_to("one", "x")
    first.controller.edit(first.chat, first.path()[0].id, "one, better")
    first.settle()
    first.engine.finish(max(first.engine.jobs))
    first.close()
    second = make_window(store())
    assert second.path()[0].text == "one, better"
    second.controller.show_version(second.chat, second.path()[0].id, -1)
    assert second.path()[1].id == reply.id
    second.close()
    assert make_window(store()).path()[0].text == "one"


def test_the_person_is_told_when_nothing_can_be_saved(window):
    window.app.say_saving("The disk is full: chats are not being saved.")
    notice = window.window.notices.shown["store"]
    assert notice.isVisible()
    assert notice.accessibleName() == "The disk is full: chats are not being saved."
    window.app.say_saving("")
    assert window.window.notices.shown == {}
    assert not window.window.notices.isVisible()


def test_with_500_chats_the_window_is_there_at_once(make_window, store, tmp_path, monkeypatch):
    fill(tmp_path / "data")
    loaded: list[str] = []
    load = SqliteStore.load
    monkeypatch.setattr(SqliteStore, "load", lambda self, chat: loaded.append(chat) or load(self, chat))
    begin = time.process_time()
    shown = make_window(store())
    spent = time.process_time() - begin
    assert len(shown.controller.heads()) == CHATS
    assert shown.path()[0].text.startswith("turn 0 of 499")
    assert len(shown.window.tabs.open_chats()) == 8
    assert len(loaded) == len(set(loaded)) <= 8, "only chats that are open are read"
    assert spent < 1.5, f"{spent:.2f} s of processor time"
    begin = time.process_time()
    shown.window.sidebar.search.setText("of 123 word")
    assert shown.window.sidebar.model.index_of("c123").isValid()
    assert time.process_time() - begin < 0.2
