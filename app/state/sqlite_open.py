"""Opening the chats of a person, whatever the disk and the file are like: there is always a store to work with."""

from __future__ import annotations

import logging
import shutil
import sqlite3
import tempfile
from pathlib import Path

from app.state.sqlite_connect import Trouble, reason_words, trouble_of
from app.state.sqlite_repair import finish_repair, repair, repaired_words
from app.state.sqlite_schema import NewerFormatError
from app.state.sqlite_store import SqliteStore
from app.state.sqlite_writer import Tell
from app.state.store import ChatStore, MemoryStore
from app.text import tr

log = logging.getLogger(__name__)

FILE_NAME = "chats.db"


def open_store(folder: Path, tell: Tell) -> tuple[ChatStore, str]:
    """The chats in ``folder``, and a sentence about what is wrong with them ("" when nothing is).

    A damaged file is moved aside and its readable part is taken over. Where nothing can be written, the chats are
    shown from memory and changes last until the program ends. A file of a newer version is left alone.
    """
    path = folder / FILE_NAME
    try:
        folder.mkdir(parents=True, exist_ok=True)
        finish_repair(path)
        return _open(path, tell)
    except NewerFormatError as error:
        unsaved = tr("What is written now is lost when KVScope ends.")
        return MemoryStore(), f"{error} {unsaved}"
    except (OSError, sqlite3.Error) as error:
        log.warning("The chats in %s cannot be opened for writing: %s", folder, error)
        return _in_memory(path), _unsaved_words(_trouble(error, path), folder)


def _open(path: Path, tell: Tell) -> tuple[ChatStore, str]:
    try:
        return SqliteStore(path, tell), ""
    except sqlite3.Error as error:
        if trouble_of(error) != "damaged":
            raise
        log.warning("%s is damaged: %s", path, error)
    repaired = repair(path)
    return SqliteStore(path, tell), repaired_words(repaired)


def _trouble(error: Exception, path: Path) -> Trouble:
    """SQLite says only "unable to open" for several causes; the disk and the folder know better."""
    trouble = trouble_of(error)
    if trouble in ("unreachable", "read_only"):
        try:
            if shutil.disk_usage(path.parent).free < 1 << 20:
                return "full"
            with tempfile.TemporaryFile(dir=path.parent):
                return trouble
        except PermissionError:
            return "read_only"
        except OSError as problem:
            return "read_only" if problem.errno == 30 else "unreachable"  # 30: a read-only file system
    return trouble


def _unsaved_words(trouble: Trouble, folder: Path) -> str:
    reason = reason_words(trouble, folder)
    return tr(
        "{reason}: chats are not being saved. What is written now is lost when KVScope ends; "
        "start it again when this is put right.",
        reason=reason,
    )


def _in_memory(path: Path) -> MemoryStore:
    """All chats that can be read, in memory."""
    memory = MemoryStore()
    if not path.is_file():
        return memory
    with tempfile.TemporaryDirectory(prefix="kvscope-", ignore_cleanup_errors=True) as scratch:
        copy = Path(scratch) / FILE_NAME
        try:
            for suffix in ("", "-wal"):
                if (source := Path(f"{path}{suffix}")).is_file():
                    shutil.copyfile(source, f"{copy}{suffix}")
            store, _ = _open(copy, log.warning)
        except (OSError, sqlite3.Error, NewerFormatError) as error:
            log.warning("The chats cannot be read either: %s", error)
            return memory
        _take_over(store, memory)
        store.close()
    return memory


def _take_over(store: ChatStore, memory: MemoryStore) -> None:
    for head in store.heads():
        conversation = store.load(head.id)
        memory.save_chat(conversation)
        for message in conversation.messages.values():
            memory.save_message(head.id, message)
        shown = [conversation.chosen_root, *(message.chosen for message in conversation.messages.values())]
        for version in shown:
            if version is not None:
                memory.choose(head.id, version)
        memory.save_view(head.id, store.view(head.id))
    memory.save_workspace(store.workspace())
