"""The thread that writes to the chat database, so that the window never waits for a disk.

Operations are committed in their order, as many at a time as wait. What the disk refuses stays in line and is tried
again; what the database can never take is left out and logged, so that it does not hold up the rest.
"""

from __future__ import annotations

import itertools
import logging
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path

from app.state.sqlite_connect import Trouble, open_writer, reason_words, trouble_of
from app.state.sqlite_repair import repair, repaired_words
from app.state.sqlite_rows import Op
from app.state.sqlite_schema import drop_search_index
from app.text import tr

log = logging.getLogger(__name__)

RETRY_S = 2.0
BATCH = 500
Tell = Callable[[str], None]
"""Gets a sentence about what is wrong with saving, "" when all is well again. Called on any thread."""


class Writer:
    """Commits operations on a thread of its own. ``generation`` changes when the file was replaced by a repair."""

    def __init__(self, path: Path, tell: Tell) -> None:
        """Opens the database at once, so that what is wrong with it is raised here (see ``open_writer``)."""
        self.path = path
        self.generation = 0
        self._tell = tell
        self._connection: sqlite3.Connection | None
        self._connection, self.indexed = open_writer(path)
        self._changed = threading.Condition()
        self._waiting: deque[Op] = deque()
        self._given = 0
        self._done = 0
        self._trouble = False
        self._damaged = False
        self._unsound = False
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="kvscope-chats", daemon=True)
        self._thread.start()

    def put(self, ops: Iterable[Op]) -> None:
        """Add operations to the line."""
        with self._changed:
            before = len(self._waiting)
            self._waiting.extend(ops)
            self._given += len(self._waiting) - before
            self._changed.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait until all that was put so far is committed; False when it takes longer or the disk refuses."""
        with self._changed:
            wanted = self._given
            self._changed.wait_for(lambda: self._done >= wanted or self._trouble, timeout)
            return self._done >= wanted

    def mend(self, timeout: float) -> bool:
        """A read met damage: replace the file by a sound one. The caller has closed its connection."""
        with self._changed:
            self._damaged = True
            before = self.generation
            self._changed.notify_all()
            return self._changed.wait_for(lambda: not self._damaged, timeout) and self.generation != before

    def close(self, timeout: float) -> bool:
        """Commit what waits, tidy up and end; False when something could not be committed (then it is lost).

        Tidying up may go on for a moment; whatever ends it does no harm.
        """
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        self._thread.join(timeout)
        with self._changed:
            return not self._waiting

    def _run(self) -> None:
        while True:
            with self._changed:
                if not self._closing:
                    self._changed.wait_for(self._has_to_act, RETRY_S if self._trouble else None)
                batch = list(itertools.islice(self._waiting, BATCH))
                closing, damaged = self._closing, self._damaged
            if damaged:
                self._repair()
            elif batch and self._commit(batch):
                self._forget(len(batch))
            elif closing:
                break
        self._finish()

    def _has_to_act(self) -> bool:
        return self._closing or self._damaged or bool(self._waiting) and not self._trouble

    def _forget(self, number: int) -> None:
        """These are committed."""
        with self._changed:
            for _ in range(number):
                self._waiting.popleft()
            self._done += number
            was_bad, self._trouble = self._trouble, False
            self._changed.notify_all()
        if was_bad:
            self._tell("")

    def _commit(self, batch: list[Op]) -> bool:
        """Whether the batch is done with."""
        try:
            self._apply(batch)
            return True
        except Exception as error:
            trouble = trouble_of(error)
            if trouble == "defect":
                return all(self._commit_one(op) for op in batch)
            if trouble == "damaged" and self._mend():
                return self._commit(batch)
            self._complain(trouble, error)
            return False

    def _commit_one(self, op: Op) -> bool:
        try:
            self._apply([op])
        except Exception as error:
            if trouble_of(error) != "defect":
                self._complain(trouble_of(error), error)
                return False
            log.exception("The chat database does not take: %s", op[0])
        return True

    def _apply(self, batch: list[Op]) -> None:
        """All of these, or none."""
        connection = self._open()
        connection.execute("BEGIN IMMEDIATE")
        try:
            for statement, values in batch:
                connection.execute(statement, values)
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection, self.indexed = open_writer(self.path, check=False)
        return self._connection

    def _mend(self) -> bool:
        """The file is damaged: the search index can be dropped, anything else is copied into a new file."""
        try:
            if self.indexed:
                self.indexed = False
                drop_search_index(self._open())
                return True
        except sqlite3.Error as error:
            log.warning("The search index could not be dropped: %s", error)
        return self._repair()

    def _repair(self) -> bool:
        """Copy what can be read into a new file and go on with that one."""
        repaired = None
        try:
            if self._connection is not None:
                self._connection.close()
            self._connection = None
            repaired = repair(self.path)
            self._open()
        except (OSError, sqlite3.Error) as error:
            log.warning("The chat database could not be repaired: %s", error)
            self._unsound = True
        with self._changed:
            self.generation += repaired is not None
            self._damaged = False
            self._changed.notify_all()
        if repaired is not None:
            self._tell(repaired_words(repaired))
        return repaired is not None

    def _complain(self, trouble: Trouble, error: Exception) -> None:
        with self._changed:
            known, self._trouble = self._trouble, True
            self._changed.notify_all()
        if not known:
            log.warning("Saving chats failed: %s", error)
            reason = reason_words(trouble, self.path.parent)
            self._tell(tr("{reason}: chats are not being saved. Saving is tried again by itself.", reason=reason))

    def _finish(self) -> None:
        """Leave a single, tidy file behind."""
        if self._connection is None:
            return
        try:
            for statement in PURGE:
                self._connection.execute(statement)
            if not self._unsound:
                self._connection.execute("DELETE FROM keep WHERE key = 'running'")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            log.warning("The chat database was not tidied up: %s", error)
        finally:
            self._connection.close()


PURGE = (
    "DELETE FROM messages WHERE chat IN (SELECT id FROM chats WHERE deleted IS NOT NULL)",
    "DELETE FROM views WHERE chat IN (SELECT id FROM chats WHERE deleted IS NOT NULL)",
    "DELETE FROM chats WHERE deleted IS NOT NULL",
    "DELETE FROM pieces WHERE message NOT IN (SELECT id FROM messages)",
)
"""Takes deleted chats away for good, when nobody can undo it any more."""
