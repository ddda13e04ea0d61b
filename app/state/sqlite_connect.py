"""Connections to the chat database, and what SQLite's errors mean for a person."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Literal

from app.state.sqlite_rows import forgiving_text, join_pieces
from app.state.sqlite_schema import make_search_index, migrate
from app.text import tr

BUSY_MS = 2000
"""How long to wait for another process that writes to the same file."""
CHECK_S = 1.0
"""How long checking the file after a crash may take; a larger file is checked as far as that goes."""

Trouble = Literal["damaged", "full", "read_only", "busy", "unreachable", "defect"]

_TROUBLES: dict[int, Trouble] = {
    sqlite3.SQLITE_CORRUPT: "damaged",
    sqlite3.SQLITE_NOTADB: "damaged",
    sqlite3.SQLITE_FULL: "full",
    sqlite3.SQLITE_READONLY: "read_only",
    sqlite3.SQLITE_PERM: "read_only",
    sqlite3.SQLITE_BUSY: "busy",
    sqlite3.SQLITE_LOCKED: "busy",
    sqlite3.SQLITE_PROTOCOL: "busy",
    sqlite3.SQLITE_NOMEM: "unreachable",
    sqlite3.SQLITE_CANTOPEN: "unreachable",
    sqlite3.SQLITE_IOERR: "unreachable",
    sqlite3.SQLITE_AUTH: "read_only",
}


def trouble_of(error: Exception) -> Trouble:
    """What kind of trouble an error of SQLite or of the file system is."""
    if isinstance(error, sqlite3.Error):
        return _TROUBLES.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF, "defect")
    if isinstance(error, OSError):
        return "unreachable"
    return "defect"


def reason_words(trouble: Trouble, folder: Path) -> str:
    """Why nothing can be saved, as the beginning of a sentence."""
    return {
        "damaged": tr("The chat database in {folder} is damaged", folder=folder),
        "full": tr("The disk is full"),
        "read_only": tr("The folder {folder} cannot be written to", folder=folder),
        "busy": tr("Another program is using the chat database in {folder}", folder=folder),
        "unreachable": tr("The folder {folder} cannot be used", folder=folder),
        "defect": tr("The chat database refused to take something"),
    }[trouble]


def open_writer(path: Path, *, check: bool = True) -> tuple[sqlite3.Connection, bool]:
    """The connection that writes: today's format, WAL, checked if the last run did not end well; and whether the
    messages are indexed for searching. Raises ``sqlite3.Error``, ``NewerFormatError``."""
    connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
    try:
        connection.row_factory = sqlite3.Row
        connection.text_factory = forgiving_text
        _use_wal(connection)
        # A commit survives the end of the process at once, and that of the power after the next checkpoint.
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")
        migrate(connection)
        running = connection.execute("SELECT 1 FROM keep WHERE key = 'running'").fetchone()
        if check and running is not None:
            quick_check(connection)
        connection.execute("INSERT OR REPLACE INTO keep VALUES ('running', x'')")
        indexed = make_search_index(connection)
        fold_pieces(connection)
        return connection, indexed
    except BaseException:
        connection.close()
        raise


def _use_wal(connection: sqlite3.Connection) -> None:
    """Write-ahead logging. Where several programs make the file at once, SQLite refuses the change at once instead of
    waiting as it does for everything else."""
    deadline = time.monotonic() + BUSY_MS / 1000
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            return
        except sqlite3.OperationalError as error:
            if trouble_of(error) != "busy" or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def fold_pieces(connection: sqlite3.Connection) -> None:
    """What replies gained before the program ended unexpectedly becomes part of their messages."""
    grown = [row[0] for row in connection.execute("SELECT DISTINCT message FROM pieces")]
    if not grown:
        return
    connection.execute("BEGIN IMMEDIATE")
    for message in grown:
        row = connection.execute("SELECT text, ids FROM messages WHERE id = ?", (message,)).fetchone()
        gained = connection.execute(
            "SELECT text, ids FROM pieces WHERE message = ? ORDER BY seq", (message,)
        ).fetchall()
        if row is not None:
            text, ids = join_pieces(row, gained)
            connection.execute("UPDATE messages SET text = ?, ids = ? WHERE id = ?", (text, ids, message))
    connection.execute("DELETE FROM pieces")
    connection.execute("COMMIT")


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that only reads, and never waits for one that writes."""
    connection = sqlite3.connect(path, timeout=BUSY_MS / 1000, isolation_level=None, check_same_thread=False)
    connection.row_factory = sqlite3.Row
    connection.text_factory = forgiving_text
    connection.execute("PRAGMA query_only = 1")
    return connection


def quick_check(connection: sqlite3.Connection) -> None:
    """Raise ``sqlite3.DatabaseError`` (damaged) when SQLite finds the file unsound; gives up after ``CHECK_S``."""
    deadline = time.monotonic() + CHECK_S
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 20_000)
    try:
        found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    except sqlite3.OperationalError as error:
        if getattr(error, "sqlite_errorcode", 0) == sqlite3.SQLITE_INTERRUPT:
            return
        raise
    finally:
        connection.set_progress_handler(None, 0)
    if found != "ok":
        damaged = sqlite3.DatabaseError(found)
        damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
        raise damaged
