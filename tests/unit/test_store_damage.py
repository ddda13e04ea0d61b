"""A damaged record, page or file costs what is in it and nothing else, and the person is told."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from app.state.document import Conversation
from app.state.sqlite_open import FILE_NAME, open_store
from app.state.sqlite_repair import repair
from app.state.sqlite_store import SqliteStore
from app.state.store import ChatStore


def fill(folder: Path, chats: int = 12, messages: int = 10, words: int = 60) -> None:
    """A database with chats "chat 0" … whose messages are recognisable."""
    store, _ = open_store(folder, print)
    for number in range(chats):
        made = Conversation(f"c{number}", f"chat {number}", 1.0, float(number))
        store.save_chat(made)
        parent = None
        for turn in range(messages):
            text = f"chat {number} turn {turn} " + "word " * words
            message = made.add("assistant" if turn % 2 else "user", text, parent=parent)
            message.ids = list(range(turn * 100)) if turn % 2 else []
            store.save_message(made.id, message)
            store.choose(made.id, message.id)
            parent = message.id
    store.close()


def change(folder: Path, statement: str, *values: Any) -> None:
    """Change the file behind the store's back."""
    with closing(sqlite3.connect(folder / FILE_NAME)) as connection:
        connection.execute(statement, values)
        connection.commit()


def told(folder: Path, look: Callable[[ChatStore], Any]) -> tuple[Any, list[str]]:
    """What ``look`` finds in a store that is opened now, and every sentence that was said."""
    said: list[str] = []
    store, notice = open_store(folder, said.append)
    try:
        return look(store), [notice, *said] if notice else said
    finally:
        store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE messages SET role = 'ghost', status = 7, stats = '{{{' WHERE seq = 3",
        "UPDATE messages SET ids = x'0102', stats = x'ff00' WHERE seq = 2",
        "UPDATE messages SET text = CAST(x'ff41fe' AS TEXT), stats = '[]' WHERE seq = 3",
        "UPDATE messages SET created = 'yesterday', seed = 'x', parent = 'nobody' WHERE seq = 3",
        "UPDATE chats SET settings = 'nonsense', title = x'ff', created = 'x' WHERE id = 'c0'",
        "DELETE FROM messages WHERE seq = 3",
    ],
)
def test_a_damaged_record_costs_only_itself(tmp_path: Path, statement: str) -> None:
    fill(tmp_path, chats=3)
    change(tmp_path, statement)

    def look(store: ChatStore) -> tuple[int, int, int]:
        store.load("c0")
        return len(store.heads()), len(store.load("c0").messages), len(store.load("c1").path())

    (heads, in_damaged, in_other), said = told(tmp_path, look)
    assert (heads, in_other) == (3, 10)
    assert in_damaged >= 9
    assert len(said) == 1
    assert "is damaged" in said[0]


def test_messages_that_are_their_own_ancestors_are_shown(tmp_path: Path) -> None:
    fill(tmp_path, chats=2)
    change(tmp_path, "UPDATE messages SET parent = (SELECT id FROM messages WHERE seq = 10) WHERE seq = 4")
    loaded, said = told(tmp_path, lambda store: store.load("c0"))
    reachable = set()
    todo = list(loaded.roots)
    while todo:
        at = todo.pop()
        reachable.add(at)
        todo += loaded.messages[at].children
    assert len(reachable) == len(loaded.messages) == 10
    assert loaded.path()
    assert len(said) == 1


def test_a_chosen_version_that_is_gone_is_replaced_by_the_last(tmp_path: Path) -> None:
    fill(tmp_path, chats=1)
    change(tmp_path, "UPDATE messages SET chosen = 'gone'")
    change(tmp_path, "UPDATE chats SET chosen_root = 'gone'")
    loaded, said = told(tmp_path, lambda store: store.load("c0"))
    assert len(loaded.path()) == 10
    assert said == []


def test_a_file_that_is_no_database_is_moved_aside(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"this is not a database at all, and long enough to be read" * 40)

    def look(store: ChatStore) -> int:
        store.save_chat(Conversation("new", "new", 1.0, 1.0))
        return len(store.heads())

    heads, said = told(tmp_path, look)
    assert heads == 1
    assert len(said) == 1
    assert "damaged" in said[0]
    aside = list(tmp_path.glob("chats-damaged-*.db"))
    assert len(aside) == 1
    assert str(aside[0]) in said[0]
    assert told(tmp_path, lambda store: [head.id for head in store.heads()]) == (["new"], [])


def test_an_empty_file_is_a_new_database(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).touch()
    assert told(tmp_path, lambda store: store.heads()) == ([], [])


def test_what_can_be_read_of_a_damaged_file_is_taken_over(tmp_path: Path) -> None:
    fill(tmp_path, chats=40)
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("INSERT INTO keep VALUES ('running', x'')")  # as after a crash
        connection.commit()
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY pageno LIMIT 1 OFFSET 5"
        ).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)
    (heads, messages), said = told(
        tmp_path, lambda store: (len(store.heads()), sum(len(store.load(h.id).messages) for h in store.heads()))
    )
    assert heads == 40
    assert 400 - 40 <= messages < 400
    assert "damaged" in said[0]
    assert "40 chats" in said[0]


def test_damage_that_is_met_while_reading_is_mended_at_once(tmp_path: Path) -> None:
    """The last run ended well, so the file is not checked at the start: the damage is met while reading."""
    fill(tmp_path, chats=40)
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        page = connection.execute(
            "SELECT pageno FROM dbstat WHERE name = 'messages' AND pagetype = 'leaf' ORDER BY pageno LIMIT 1 OFFSET 5"
        ).fetchone()[0]
    with path.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xa5" * size)
    counts, said = told(tmp_path, lambda store: [len(store.load(head.id).messages) for head in store.heads()])
    assert len(counts) == 40
    assert min(counts) < 10
    assert counts.count(10) >= 36
    assert any("40 chats" in sentence for sentence in said)
    assert all("damaged" in sentence for sentence in said)


def test_messages_whose_chat_is_lost_get_one(tmp_path: Path) -> None:
    fill(tmp_path, chats=2)
    change(tmp_path, "DELETE FROM chats WHERE id = 'c0'")
    repaired = repair(tmp_path / FILE_NAME)
    assert (repaired.chats, repaired.messages) == (2, 20)
    (titles, texts), _ = told(
        tmp_path, lambda store: ({h.title for h in store.heads()}, [m.text[:13] for m in store.load("c0").path()])
    )
    assert titles == {"Recovered chat", "chat 1"}
    assert texts[0] == "chat 0 turn 0"


def test_a_repair_that_was_cut_off_is_finished(tmp_path: Path) -> None:
    fill(tmp_path, chats=2)
    (tmp_path / FILE_NAME).rename(tmp_path / "chats-new.db")
    heads, said = told(tmp_path, lambda store: len(store.heads()))
    assert (heads, said) == (2, [])


def test_a_damaged_search_index_does_not_stop_saving_or_searching(tmp_path: Path) -> None:
    fill(tmp_path, chats=2)
    change(tmp_path, "UPDATE search_data SET block = x'00' WHERE id > 1")
    change(tmp_path, "DELETE FROM search_data WHERE id = 10")

    def look(store: ChatStore) -> tuple[list[str], list[str]]:
        made = Conversation("new", "new", 1.0, 9.0)
        store.save_chat(made)
        store.save_message("new", made.add("user", "a sentence about lighthouses", parent=None))
        return [hit.chat for hit in store.search("lighthouses")], [hit.chat for hit in store.search("chat 1 turn 4")]

    found, _ = told(tmp_path, look)
    assert found == (["new"], ["c1"])


def test_damage_that_is_met_while_writing_is_mended_at_once(tmp_path: Path) -> None:
    fill(tmp_path, chats=30)
    said: list[str] = []
    store = SqliteStore(tmp_path / FILE_NAME, said.append)
    reply = store.load("c1").path()[1].id
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as connection:
        size = connection.execute("PRAGMA page_size").fetchone()[0]
        root = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'pieces_of_message'").fetchone()[0]
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with (tmp_path / FILE_NAME).open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xa5" * size)
    store.append_reply("c1", reply, " and more", [1])
    assert store.load("c1").messages[reply].text.endswith("word  and more")
    assert len(store.heads()) == 30
    store.close()
    assert any("damaged" in sentence for sentence in said)
