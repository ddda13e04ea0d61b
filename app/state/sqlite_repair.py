"""A damaged chat database is moved aside, and all that can still be read in it goes into a new one."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.state.sqlite_rows import forgiving_text
from app.state.sqlite_schema import TABLES, migrate
from app.text import tr, trn

log = logging.getLogger(__name__)

_SIDE_FILES = ("-wal", "-shm")
_LAST_ROW = 1 << 24
"""Where to stop looking for rows when even the number of the last one cannot be read."""
_TABLE_S = 3.0
"""How long to look for readable rows of one table, in seconds."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """Where the damaged file lies now, and how much of it is in the new one."""

    aside: Path
    chats: int
    messages: int


def repair(path: Path) -> Repaired:
    """Replace the database at ``path`` by a sound one with what can be read of it.

    The new file is complete before the old one is moved, so that an end at any moment leaves one of the two in place.
    Raises ``OSError`` or ``sqlite3.Error`` when that fails; then the old file is where it was, or beside it.
    """
    fresh = _beside(path, "new")
    _remove(fresh)
    chats, messages = _copy(path, fresh)
    aside = _beside(path, time.strftime("damaged-%Y%m%d-%H%M%S"))
    for suffix in ("", *_SIDE_FILES):
        source = Path(f"{path}{suffix}")
        if source.exists():
            source.replace(f"{aside}{suffix}")
    fresh.replace(path)
    log.warning("%s was damaged; %d chats and %d messages were copied out of it.", aside, chats, messages)
    return Repaired(aside, chats, messages)


def finish_repair(path: Path) -> None:
    """A repair that was cut off between its two renames is completed."""
    fresh = _beside(path, "new")
    if fresh.exists() and not path.exists():
        fresh.replace(path)


def repaired_words(repaired: Repaired) -> str:
    """What happened, for a person."""
    saved = trn("{n:,} chat could be read", "{n:,} chats could be read", repaired.chats)
    return tr(
        "The chat database was damaged. {saved}; the damaged file was kept as {aside}.",
        saved=saved,
        aside=repaired.aside,
    )


def _beside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.stem}-{word}{path.suffix}")


def _remove(path: Path) -> None:
    for suffix in ("", *_SIDE_FILES):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def _copy(path: Path, fresh: Path) -> tuple[int, int]:
    with closing(sqlite3.connect(fresh, isolation_level=None)) as new:
        migrate(new)
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as old:
                old.text_factory = forgiving_text
                for table in TABLES:
                    _copy_table(old, new, table)
        except sqlite3.DatabaseError as error:
            log.warning("Nothing more can be read in %s: %s", path, error)
        # Messages whose chat is lost get one, so that they can be found.
        new.execute(
            "INSERT OR IGNORE INTO chats (id, title, created, updated) SELECT chat, ?, min(created), max(created)"
            " FROM messages WHERE chat NOT IN (SELECT id FROM chats) GROUP BY chat",
            (tr("Recovered chat"),),
        )
        new.execute("DELETE FROM keep WHERE key = 'running'")
        counts = [new.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("chats", "messages")]
        new.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return counts[0], counts[1]


def _copy_table(old: sqlite3.Connection, new: sqlite3.Connection, table: str) -> None:
    """Every readable row; columns that only one side has are left out. Raises when not even the columns are known."""
    known = {row[1] for row in new.execute(f"PRAGMA table_info({table})")}
    names = [row[1] for row in old.execute(f"PRAGMA table_info({table})") if row[1] in known]
    if not names:
        return
    try:
        last = old.execute(f"SELECT max(rowid) FROM {table}").fetchone()[0] or 0
    except sqlite3.DatabaseError:
        last = _LAST_ROW
    columns, marks = ", ".join(names), ", ".join("?" * len(names))
    select = f"SELECT {columns} FROM {table} WHERE rowid BETWEEN ? AND ?"
    new.execute("BEGIN")
    for row in _rows(old, select, 1, last, time.monotonic() + _TABLE_S):
        new.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)
    new.execute("COMMIT")


def _rows(old: sqlite3.Connection, select: str, first: int, last: int, deadline: float) -> Iterator[tuple]:
    """The rows in this range; where reading fails the range is halved until the unreadable ones are left out."""
    try:
        found = old.execute(select, (first, last)).fetchall()
    except sqlite3.DatabaseError:
        if first < last and time.monotonic() < deadline:
            middle = (first + last) // 2
            yield from _rows(old, select, first, middle, deadline)
            yield from _rows(old, select, middle + 1, last, deadline)
        return
    yield from found
