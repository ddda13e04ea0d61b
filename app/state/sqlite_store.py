"""Chats in an SQLite file: a ``ChatStore`` that survives crashes, full disks and damaged records."""

from __future__ import annotations

import logging
import sqlite3
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from app.state import sqlite_rows as rows
from app.state.document import Conversation, Message
from app.state.sqlite_connect import open_reader, trouble_of
from app.state.sqlite_rows import MESSAGE_COLUMNS
from app.state.sqlite_writer import Tell, Writer
from app.state.store import ChatHead, ChatView, SearchHit, Workspace
from app.text import tr, trn

log = logging.getLogger(__name__)

PROMPT_S = 0.5
"""How long ``save_message`` waits at most until a person's message is on disk."""
READ_S = 1.0
"""How long a read waits at most for writes that were asked for before it."""
MEND_S = 10.0
"""How long the person may have to wait while a damaged file is mended."""
CLOSE_S = 1.0
"""How long the end waits for the disk, in seconds."""
MAX_HITS = 200
SHORTEST_INDEXED = 3
"""Characters; the index knows text by three in a row."""


class SqliteStore:
    """Implements ``ChatStore``. Reads happen at once, writes on a thread of their own.

    A person's message is committed before ``save_message`` returns; everything else a moment later. When the disk
    refuses, ``tell`` gets a sentence, and what was not saved is kept and tried again.
    """

    def __init__(self, path: Path, tell: Tell) -> None:
        """Raises ``sqlite3.Error`` or ``NewerFormatError``; ``open_store`` deals with these."""
        self.path = path
        self._tell = tell
        self._writer = Writer(path, tell)
        self._reader = open_reader(path)
        self._generation = 0
        self._told_damaged: set[str] = set()

    def heads(self) -> list[ChatHead]:
        """All chats, last changed first."""
        found = self._read("SELECT id, title, created, updated FROM chats WHERE deleted IS NULL ORDER BY updated DESC")
        return [rows.head_of(row) for row in found]

    def load(self, chat: str) -> Conversation:
        """One chat with all its branches; what is damaged in it is left out, and told once."""
        found = self._read("SELECT * FROM chats WHERE id = ? AND deleted IS NULL", chat)
        if not found:
            raise KeyError(chat)
        conversation, sound = rows.conversation_of(found[0])
        lost = 0 if sound else 1
        messages: list[Message] = []
        for row in self._read(f"SELECT {MESSAGE_COLUMNS} FROM messages WHERE chat = ? ORDER BY seq", chat):
            message, sound = rows.message_of(row)
            messages.append(message)
            lost += not sound
        self._add_pieces(chat, {message.id: message for message in messages})
        lost += not rows.grow(conversation, messages)
        if lost and chat not in self._told_damaged:
            self._told_damaged.add(chat)
            self._tell(_damaged_words(conversation.title, lost))
        return conversation

    def save_chat(self, conversation: Conversation) -> None:
        """Title, settings and times."""
        self._writer.put(rows.save_chat_ops(conversation))

    def delete_chat(self, chat: str) -> None:
        """Take a chat away; it is gone for good when the program ends."""
        self._writer.put([("UPDATE chats SET deleted = ? WHERE id = ?", (time.time(), chat))])

    def restore_chat(self, chat: str) -> None:
        """Bring a deleted chat back."""
        self._writer.put([("UPDATE chats SET deleted = NULL WHERE id = ?", (chat,))])

    def save_message(self, chat: str, message: Message) -> None:
        """One message as it stands; a person's is on disk when this returns, unless the disk refuses."""
        self._writer.put(rows.save_message_ops(chat, message))
        if message.role == "user":
            self._writer.wait(PROMPT_S)

    def append_reply(self, chat: str, message: str, text: str, ids: Iterable[int]) -> None:
        """Text and ids that were added to a reply."""
        self._writer.put(rows.append_ops(message, text, ids))

    def choose(self, chat: str, message: str) -> None:
        """Show this version."""
        self._writer.put(rows.choose_ops(chat, message))

    def view(self, chat: str) -> ChatView:
        """Draft and scroll position."""
        found = self._read("SELECT draft, scroll FROM views WHERE chat = ?", chat)
        return rows.view_of(found[0] if found else None)

    def save_view(self, chat: str, view: ChatView) -> None:
        """Draft and scroll position."""
        values = (chat, rows.storable(view.draft), view.scroll)
        self._writer.put([("INSERT OR REPLACE INTO views (chat, draft, scroll) VALUES (?, ?, ?)", values)])

    def workspace(self) -> Workspace:
        """The open tabs."""
        return rows.workspace_of(self._kept("workspace"))

    def save_workspace(self, workspace: Workspace) -> None:
        """The open tabs."""
        self._keep("workspace", rows.workspace_text(workspace))

    def layout(self, part: str) -> bytes:
        """How a part of the window was arranged."""
        kept = self._kept(f"layout {part}")
        return kept if isinstance(kept, bytes) else b""

    def save_layout(self, part: str, arranged: bytes) -> None:
        """How a part of the window is arranged."""
        self._keep(f"layout {part}", arranged)

    def search(self, words: str) -> list[SearchHit]:
        """Chats whose title or messages contain ``words``, ignoring case, last changed first."""
        needle = words.strip()
        folded = needle.casefold()
        if not folded:
            return []
        found = {row["chat"]: row["text"] for row in self._messages_with(needle)}
        hits = []
        for head in self.heads():
            if folded in head.title.casefold():
                hits.append(SearchHit(head.id, ""))
            elif head.id in found:
                hits.append(rows.hit(head.id, str(found[head.id]), folded))
        return hits[:MAX_HITS]

    def close(self) -> None:
        """Write what waits and end the thread."""
        self._reader.close()
        if not self._writer.close(CLOSE_S):
            log.warning("Some changes could not be saved to %s before the end.", self.path)

    def _messages_with(self, needle: str) -> list[sqlite3.Row]:
        """The first message of each chat that contains the needle."""
        select = "SELECT chat, text, min(seq) FROM messages WHERE {which} GROUP BY chat"
        if self._writer.indexed and len(needle) >= SHORTEST_INDEXED:
            quoted = '"' + rows.storable(needle).replace('"', '""') + '"'
            try:
                which = "seq IN (SELECT rowid FROM search WHERE search MATCH ?)"
                return self._read_as_it_is(select.format(which=which), quoted)
            except sqlite3.DatabaseError as error:
                log.warning("The search index cannot be used, reading the messages instead: %s", error)
        # LIKE ignores the case of ASCII letters only.
        spellings = {needle} if needle.isascii() else {needle, needle.lower(), needle.upper(), needle.capitalize()}
        which = " OR ".join(["text LIKE ? ESCAPE '\\'"] * len(spellings))
        return self._read(select.format(which=which), *(_like(spelling) for spelling in spellings))

    def _add_pieces(self, chat: str, messages: dict[str, Message]) -> None:
        """What replies gained that have not ended yet."""
        select = (
            "SELECT p.message, p.text, p.ids FROM pieces p JOIN messages m ON m.id = p.message WHERE m.chat = ?"
            " ORDER BY p.seq"
        )
        for row in self._read(select, chat):
            message = messages.get(row["message"])
            if message is not None:
                message.text += row["text"]
                message.ids += rows.unpack_ids(row["ids"])

    def _kept(self, key: str) -> Any:
        found = self._read("SELECT value FROM keep WHERE key = ?", key)
        return found[0][0] if found else None

    def _keep(self, key: str, value: bytes) -> None:
        self._writer.put([("INSERT OR REPLACE INTO keep (key, value) VALUES (?, ?)", (key, value))])

    def _read(self, select: str, *values: Any) -> list[sqlite3.Row]:
        """Rows, with everything in them that was written before. A file that turns out damaged is mended first."""
        try:
            return self._read_as_it_is(select, *values)
        except sqlite3.DatabaseError as error:
            if trouble_of(error) != "damaged":
                raise
            log.warning("%s is damaged: %s", self.path, error)
        self._reader.close()
        self._writer.mend(MEND_S)
        self._reader = open_reader(self.path)
        return self._read_as_it_is(select, *values)

    def _read_as_it_is(self, select: str, *values: Any) -> list[sqlite3.Row]:
        self._writer.wait(READ_S)
        if self._generation != self._writer.generation:
            self._generation = self._writer.generation
            self._reader.close()
            self._reader = open_reader(self.path)
        return self._reader.execute(select, values).fetchall()


def _like(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
    return f"%{rows.storable(escaped)}%"


def _damaged_words(title: str, lost: int) -> str:
    parts = trn("{n} part of it could not be read", "{n} parts of it could not be read", lost)
    return tr("“{title}” is damaged: {parts}. The rest is shown.", title=title or tr("New chat"), parts=parts)
