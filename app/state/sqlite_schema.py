"""The format of the chat database, and how an older one becomes today's: numbered migrations.

``PRAGMA user_version`` holds the number of migrations that were applied. A migration that was ever released is never
changed: a new format is a new entry at the end of ``MIGRATIONS``.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from app.text import tr

APPLICATION_ID = 0x4B565363
"""Marks the file as ours (``PRAGMA application_id``): "KVSc"."""

Migration = tuple[str, ...]

MIGRATIONS: tuple[Migration, ...] = (
    (
        """CREATE TABLE chats (
            id TEXT PRIMARY KEY, title TEXT NOT NULL DEFAULT '', created REAL NOT NULL, updated REAL NOT NULL,
            settings TEXT NOT NULL DEFAULT '{}', chosen_root TEXT, first_kept TEXT, deleted REAL
        )""",
        # seq gives the order of versions; ids: three bytes a token (see sqlite_rows).
        """CREATE TABLE messages (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, chat TEXT NOT NULL, parent TEXT,
            role TEXT NOT NULL, text TEXT NOT NULL DEFAULT '', created REAL NOT NULL DEFAULT 0,
            status TEXT NOT NULL DEFAULT 'done', ids BLOB NOT NULL DEFAULT x'', model TEXT NOT NULL DEFAULT '',
            seed INTEGER, stats TEXT, error TEXT NOT NULL DEFAULT '', error_code TEXT NOT NULL DEFAULT '', chosen TEXT
        )""",
        "CREATE INDEX messages_of_chat ON messages (chat, seq)",
        # What a reply gained while it streams; folded into its message when the reply ends, or at the next start.
        """CREATE TABLE pieces (
            seq INTEGER PRIMARY KEY AUTOINCREMENT, message TEXT NOT NULL, text TEXT NOT NULL, ids BLOB NOT NULL
        )""",
        "CREATE INDEX pieces_of_message ON pieces (message, seq)",
        "CREATE TABLE views (chat TEXT PRIMARY KEY, draft TEXT NOT NULL, scroll INTEGER)",
        "CREATE TABLE keep (key TEXT PRIMARY KEY, value BLOB NOT NULL)",
    ),
    ("ALTER TABLE messages ADD COLUMN reasoning_open INTEGER NOT NULL DEFAULT 0",),
)

FORMAT = len(MIGRATIONS)

TABLES = ("chats", "messages", "pieces", "views", "keep")

_SEARCH: Migration = (
    "CREATE VIRTUAL TABLE search USING fts5(text, content='messages', content_rowid='seq', tokenize='trigram')",
    "CREATE TRIGGER search_added AFTER INSERT ON messages WHEN new.text <> '' BEGIN"
    " INSERT INTO search (rowid, text) VALUES (new.seq, new.text); END",
    "CREATE TRIGGER search_removed AFTER DELETE ON messages WHEN old.text <> '' BEGIN"
    " INSERT INTO search (search, rowid, text) VALUES ('delete', old.seq, old.text); END",
    "CREATE TRIGGER search_lost AFTER UPDATE OF text ON messages WHEN old.text <> '' AND old.text IS NOT new.text BEGIN"
    " INSERT INTO search (search, rowid, text) VALUES ('delete', old.seq, old.text); END",
    "CREATE TRIGGER search_gained AFTER UPDATE OF text ON messages"
    " WHEN new.text <> '' AND old.text IS NOT new.text BEGIN"
    " INSERT INTO search (rowid, text) VALUES (new.seq, new.text); END",
    "INSERT INTO search (search) VALUES ('rebuild')",
)
_TRIGGERS = ("search_added", "search_removed", "search_lost", "search_gained")


class NewerFormatError(Exception):
    """The database was written by a newer version of the program; it was not touched."""


def migrate(connection: sqlite3.Connection, migrations: Sequence[Migration] = MIGRATIONS) -> None:
    """Bring the database to today's format, each migration in one transaction.

    The connection is in autocommit mode. Raises ``NewerFormatError`` before anything is written.
    """
    while True:
        connection.execute("BEGIN IMMEDIATE")
        try:
            # Read inside the transaction: another process may be migrating the same file.
            version = format_of(connection)
            if version > len(migrations):
                raise NewerFormatError(
                    tr(
                        "The chats were written by a newer KVScope (format {there}, this one knows {here}). "
                        "Update KVScope to see them; they were not touched.",
                        there=version,
                        here=len(migrations),
                    )
                )
            if version == len(migrations):
                connection.execute("ROLLBACK")
                return
            for statement in migrations[version]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {version + 1}")
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise


def format_of(connection: sqlite3.Connection) -> int:
    """How many migrations this database has seen."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def has_search_index(connection: sqlite3.Connection) -> bool:
    """Whether messages are indexed by the text in them."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'search'").fetchone() is not None


def make_search_index(connection: sqlite3.Connection) -> bool:
    """Index the messages if they are not yet; False where this SQLite has no FTS5 with trigrams."""
    try:
        connection.execute("BEGIN IMMEDIATE")  # another process may be making it
        if has_search_index(connection):
            connection.execute("SELECT 1 FROM search LIMIT 0")
        else:
            for statement in _SEARCH:
                connection.execute(statement)
        connection.execute("COMMIT")
    except sqlite3.OperationalError as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if "no such module" not in str(error) and "no such tokenizer" not in str(error):
            raise
        _drop_triggers(connection)
        return False
    return True


def drop_search_index(connection: sqlite3.Connection) -> None:
    """Forget the index (it is damaged): searching reads the messages instead, and the next start builds it anew."""
    _drop_triggers(connection)
    connection.execute("DROP TABLE IF EXISTS search")


def _drop_triggers(connection: sqlite3.Connection) -> None:
    for name in _TRIGGERS:
        connection.execute(f"DROP TRIGGER IF EXISTS {name}")
