"""Full disks, read-only folders, other programs and newer versions: chats stay in sight and the reason is said."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.state import sqlite_writer
from app.state.document import Conversation
from app.state.sqlite_connect import open_writer
from app.state.sqlite_open import FILE_NAME, open_store
from app.state.sqlite_schema import FORMAT
from app.state.sqlite_store import SqliteStore
from app.state.store import ChatStore, MemoryStore

ROOT = Path(__file__).parents[2]


class Said:
    """Sentences as they are said on any thread."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self._changed = threading.Condition()

    def __call__(self, sentence: str) -> None:
        with self._changed:
            self.all.append(sentence)
            self._changed.notify_all()

    def wait_for(self, n: int) -> list[str]:
        """The sentences when there are ``n`` of them."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= n, 10), self.all
            return list(self.all)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bool], None]]:
    """Makes the disk of stores that are opened now full (True) or gives it room again (False)."""
    opened: list[sqlite3.Connection] = []

    def watch(path: Path, *, check: bool = True) -> tuple[sqlite3.Connection, bool]:
        connection, indexed = open_writer(path, check=check)
        opened.append(connection)
        return connection, indexed

    def fill(on: bool) -> None:
        for connection in opened:
            pages = connection.execute("PRAGMA page_count").fetchone()[0]
            connection.execute(f"PRAGMA max_page_count = {pages if on else 1_000_000}").fetchone()

    monkeypatch.setattr(sqlite_writer, "open_writer", watch)
    monkeypatch.setattr(sqlite_writer, "RETRY_S", 0.05)
    yield fill


def write(store: ChatStore, chat: str, words: str = "hello") -> None:
    made = Conversation(chat, chat, 1.0, 1.0)
    store.save_chat(made)
    message = made.add("user", words, parent=None)
    store.save_message(chat, message)
    store.choose(chat, message.id)


def test_a_full_disk_is_said_once_and_everything_is_saved_when_there_is_room(
    tmp_path: Path, disk: Callable[[bool], None]
) -> None:
    said = Said()
    store, _ = open_store(tmp_path, said)
    write(store, "before")
    disk(True)
    for number in range(5):
        write(store, f"during {number}", "long " * 4000)
    assert said.wait_for(1) == [
        "The disk is full: chats are not being saved. Saving is tried again by itself.",
    ]
    heads = {head.id for head in store.heads()}
    assert "before" in heads
    assert "during 4" not in heads
    disk(False)
    assert said.wait_for(2)[1] == ""
    write(store, "after")
    store.close()
    store, notice = open_store(tmp_path, said)
    assert notice == ""
    assert {head.id for head in store.heads()} == {"before", "after", *(f"during {n}" for n in range(5))}
    assert store.load("during 3").path()[0].text == "long " * 4000
    store.close()


def test_closing_on_a_full_disk_ends_and_keeps_what_was_saved(tmp_path: Path, disk: Callable[[bool], None]) -> None:
    store, _ = open_store(tmp_path, Said())
    write(store, "before")
    disk(True)
    write(store, "during", "long " * 4000)
    store.close()
    store, notice = open_store(tmp_path, Said())
    assert notice == ""
    assert "before" in {head.id for head in store.heads()}
    assert len(store.load("before").path()) == 1
    store.close()


def test_what_the_database_never_takes_does_not_hold_up_the_rest(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store, _ = open_store(tmp_path, Said())
    made = Conversation("odd", "odd", 1.0, 1.0)
    made.title = 7j  # type: ignore[assignment]
    with pytest.raises(Exception, match="encode"):
        store.save_chat(made)
    odd = made.add("user", "x", parent=None)
    odd.created = object()  # type: ignore[assignment]
    store.save_message("odd", odd)
    write(store, "next")
    assert [head.id for head in store.heads()] == ["next"]
    assert "does not take" in caplog.text
    store.close()


def test_a_folder_that_cannot_be_made_leaves_a_store_in_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store, notice = open_store(tmp_path / "file" / "kvscope", Said())
    write(store, "new")
    assert [head.id for head in store.heads()] == ["new"]
    assert "chats are not being saved" in notice
    assert str(tmp_path / "file" / "kvscope") in notice


READ_ONLY = """
import os, sys
from pathlib import Path
from app.state.document import Conversation
from app.state.sqlite_open import open_store
if os.getuid() == 0:  # nothing is read-only for root
    os.setgid(65534); os.setuid(65534)
store, notice = open_store(Path(sys.argv[1]), print)
made = Conversation("new", "new", 1.0, 99.0)
store.save_chat(made)
store.save_message("new", made.add("user", "x", parent=None))
print(notice)
print([(head.id, len(store.load(head.id).path())) for head in store.heads()])
store.close()
"""


@pytest.mark.skipif(os.name == "nt", reason="Windows has no folders that are read-only for their owner")
@pytest.mark.parametrize("after_a_crash", [False, True])
def test_a_read_only_folder_shows_the_chats(tmp_path: Path, after_a_crash: bool) -> None:
    folder = tmp_path / "data"
    store, _ = open_store(folder, Said())
    write(store, "old")
    if after_a_crash:
        kept = {path: path.read_bytes() for path in folder.iterdir()}
        store.close()
        for path, content in kept.items():
            path.write_bytes(content)
        (folder / f"{FILE_NAME}-shm").unlink()
    else:
        store.close()
    for path in folder.iterdir():
        path.chmod(0o444)
    for path in (folder, *(parent for parent in folder.parents if parent.is_relative_to(tmp_path.parent.parent))):
        path.chmod(0o555 if path == folder else 0o755)
    ran = subprocess.run(
        [sys.executable, "-c", READ_ONLY, str(folder)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    notice, heads = ran.stdout.splitlines()[-2:]
    folder.chmod(0o755)
    assert notice.startswith(f"The folder {folder} cannot be written to: chats are not being saved.")
    assert heads == "[('new', 0), ('old', 1)]"


def test_chats_of_a_newer_version_are_not_touched(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Said())
    write(store, "old")
    store.close()
    path = tmp_path / FILE_NAME
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {FORMAT + 1}")
    before = path.read_bytes()
    store, notice = open_store(tmp_path, Said())
    write(store, "new")
    store.close()
    assert isinstance(store, MemoryStore)
    assert f"format {FORMAT + 1}, this one knows {FORMAT}" in notice
    assert "Update KVScope" in notice
    assert path.read_bytes() == before


def test_two_programs_may_use_the_same_file(tmp_path: Path) -> None:
    first, second = (open_store(tmp_path, Said())[0] for _ in range(2))
    for number in range(10):
        write(first, f"first {number}")
        write(second, f"second {number}")
    assert len(first.heads()) == len(second.heads()) == 20
    first.close()
    second.close()


def test_programs_that_make_the_file_at_the_same_moment(tmp_path: Path) -> None:
    start = threading.Barrier(6)
    opened: list[tuple[ChatStore, str]] = []

    def make() -> None:
        start.wait()
        opened.append(open_store(tmp_path, Said()))

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [notice for _, notice in opened] == [""] * 6
    for number, (store, _) in enumerate(opened):
        write(store, f"chat {number}")
    assert len(opened[0][0].heads()) == 6
    for store, _ in opened:
        store.close()


def test_another_program_that_holds_the_file_delays_saving_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, disk: Callable[[bool], None]
) -> None:
    monkeypatch.setattr("app.state.sqlite_connect.BUSY_MS", 20)
    said = Said()
    store = SqliteStore(tmp_path / FILE_NAME, said)
    with closing(sqlite3.connect(tmp_path / FILE_NAME, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        write(store, "mine")
        assert "Another program" in said.wait_for(1)[0]
        assert store.heads() == []
        other.execute("ROLLBACK")
    assert said.wait_for(2)[1] == ""
    assert [head.id for head in store.heads()] == ["mine"]
    store.close()


def test_a_persons_message_is_on_disk_before_saving_returns(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Said())
    write(store, "mine", "on disk")
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as other:
        assert other.execute("SELECT text FROM messages").fetchall() == [("on disk",)]
    store.close()


def test_a_deleted_chat_is_gone_for_good_at_the_end(tmp_path: Path) -> None:
    store, _ = open_store(tmp_path, Said())
    write(store, "secret", "the unmistakable words")
    write(store, "kept")
    store.delete_chat("secret")
    store.close()
    assert b"unmistakable" not in (tmp_path / FILE_NAME).read_bytes()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as other:
        assert other.execute("SELECT chat FROM messages").fetchall() == [("kept",)]
