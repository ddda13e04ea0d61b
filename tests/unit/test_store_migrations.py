"""Databases of every earlier format open in today's, and half a migration is none."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.state.sqlite_open import FILE_NAME, open_store
from app.state.sqlite_schema import FORMAT, MIGRATIONS, NewerFormatError, format_of, migrate
from app.state.store import ChatView

# What format 1 looked like when it was released. Never changed: it stands for the files that people have.
FORMAT_1 = """
CREATE TABLE chats (
    id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT '', created REAL NOT NULL, updated REAL NOT NULL,
    settings TEXT NOT NULL DEFAULT '{}', chosen_root TEXT, first_kept TEXT, deleted REAL
);
CREATE TABLE messages (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, chat TEXT NOT NULL, parent TEXT,
    role TEXT NOT NULL, text TEXT NOT NULL DEFAULT '', created REAL NOT NULL DEFAULT 0,
    status TEXT NOT NULL DEFAULT 'done', ids BLOB NOT NULL DEFAULT x'', model TEXT NOT NULL DEFAULT '',
    seed INTEGER, stats TEXT, error TEXT NOT NULL DEFAULT '', error_code TEXT NOT NULL DEFAULT '', chosen TEXT
);
CREATE INDEX messages_of_chat ON messages (chat, seq);
CREATE TABLE pieces (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT NOT NULL, text TEXT NOT NULL, ids BLOB NOT NULL
);
CREATE INDEX pieces_of_message ON pieces (message, seq);
CREATE TABLE views (chat TEXT PRIMARY KEY, draft TEXT NOT NULL, scroll INTEGER);
CREATE TABLE keep (key TEXT PRIMARY KEY, value BLOB NOT NULL);
PRAGMA user_version = 1;
INSERT INTO chats VALUES ('c', 'Invoice', 1.5, 2.5, '{"system_prompt":"Be brief.","max_new":64}', 'q', NULL, NULL);
INSERT INTO messages (id, chat, parent, role, text, chosen) VALUES ('q', 'c', NULL, 'user', 'Pay me', 'r');
INSERT INTO messages (id, chat, parent, role, text, status, ids, model, stats)
    VALUES ('r', 'c', 'q', 'assistant', 'Dear ', 'writing', x'010000020100', 'llama/x/1', '{"n_prompt":20,"n_gen":2}');
INSERT INTO pieces (message, text, ids) VALUES ('r', 'customer', x'000004');
INSERT INTO views VALUES ('c', 'half a', 12);
"""


@pytest.fixture
def connection() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as made:
        yield made


def test_a_database_of_format_1_opens_with_everything_in_it(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as old:
        old.executescript(FORMAT_1)
    store, notice = open_store(tmp_path, lambda sentence: pytest.fail(sentence))
    loaded = store.load("c")
    reply = loaded.messages["r"]
    assert notice == ""
    assert (loaded.title, loaded.settings.system_prompt, loaded.settings.max_new) == ("Invoice", "Be brief.", 64)
    assert [message.text for message in loaded.path()] == ["Pay me", "Dear customer"]
    assert (reply.status, reply.ids, reply.model) == ("stopped", [1, 258, 262_144], "llama/x/1")
    assert reply.stats is not None
    assert (reply.stats.n_prompt, reply.stats.n_gen) == (20, 2)
    assert store.view("c") == ChatView("half a", 12)
    assert [hit.chat for hit in store.search("customer")] == ["c"]
    store.close()
    with closing(sqlite3.connect(tmp_path / FILE_NAME)) as now:
        assert format_of(now) == FORMAT


def test_a_new_database_has_todays_format(connection: sqlite3.Connection) -> None:
    migrate(connection)
    assert format_of(connection) == FORMAT == len(MIGRATIONS)
    migrate(connection)
    assert format_of(connection) == FORMAT


def test_migrations_are_applied_in_their_order_and_only_once(connection: sqlite3.Connection) -> None:
    migrations = [("CREATE TABLE a (x)",), ("INSERT INTO a VALUES (1)", "INSERT INTO a VALUES (2)")]
    migrate(connection, migrations[:1])
    assert format_of(connection) == 1
    migrate(connection, migrations)
    migrate(connection, migrations)
    assert (format_of(connection), connection.execute("SELECT x FROM a").fetchall()) == (2, [(1,), (2,)])


def test_a_migration_that_fails_leaves_the_format_before_it(connection: sqlite3.Connection) -> None:
    migrations = [("CREATE TABLE a (x)",), ("INSERT INTO a VALUES (1)", "INSERT INTO nowhere VALUES (2)")]
    with pytest.raises(sqlite3.OperationalError, match="nowhere"):
        migrate(connection, migrations)
    assert (format_of(connection), connection.execute("SELECT x FROM a").fetchall()) == (1, [])


def test_a_newer_format_is_refused(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA user_version = 9")
    with pytest.raises(NewerFormatError, match="format 9, this one knows 2"):
        migrate(connection, [(), ()])
    assert format_of(connection) == 9
