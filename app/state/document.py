"""Chats as plain data: a conversation is a tree of messages of which one path is shown.

Editing an earlier message or asking for another reply adds a sibling and leaves the old branch where it was.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from app.state.sampling import ChatSettings
from engine.scheduling.events import Miss

Status = Literal["waiting", "writing", "done", "length", "stopped", "evicted", "failed"]
"""Of a reply: asked for but nothing written yet; being written; ended by itself; by its limit; by the person; because
memory ran out; because of an error. A user's message is always ``done``."""

UNANSWERED = "unanswered"
"""The error code of a reply that has no word because the program ended before the model came to it."""

OPEN_STATUSES: frozenset[Status] = frozenset({"waiting", "writing"})


def new_id() -> str:
    """A fresh identifier for a chat or a message."""
    return uuid.uuid4().hex


@dataclass(slots=True)
class ReplyStats:
    """The figures under a reply: tokens and seconds as the engine counted them.

    ``ttft_s`` is 0 where no token came. ``width`` is the mean number of chats that were written at once.
    ``page_rows`` is the number of tokens on a page then, ``n_dropped`` how many older turns the prompt left out.
    """

    n_prompt: int = 0
    n_cached: int = 0
    n_gen: int = 0
    ttft_s: float = 0.0
    gen_s: float = 0.0
    width: float = 1.0
    page_rows: int = 16
    chain: int | None = None
    miss: Miss | None = None
    n_dropped: int = 0

    @property
    def tokens_per_s(self) -> float:
        """Generated tokens per second; 0 while there is nothing to divide."""
        return self.n_gen / self.gen_s if self.gen_s > 0 else 0.0


@dataclass(slots=True)
class Message:
    """One message. ``ids`` are the exact ids that a reply was generated with, valid for the vocabulary ``model``.

    ``reasoning_open``: the prompt opened the reasoning already, so the text begins within it.
    """

    id: str
    role: Literal["user", "assistant"]
    text: str = ""
    parent: str | None = None
    created: float = 0.0
    status: Status = "done"
    ids: list[int] = field(default_factory=list)
    model: str = ""
    seed: int | None = None
    stats: ReplyStats | None = None
    error: str = ""
    error_code: str = ""
    reasoning_open: bool = False
    children: list[str] = field(default_factory=list)
    chosen: str | None = None

    @property
    def is_open(self) -> bool:
        """Whether this is a reply that has not ended."""
        return self.status in OPEN_STATUSES


@dataclass(slots=True)
class Conversation:
    """One chat: its messages by id and, per fork, which branch is shown.

    ``first_kept`` is the first message that is still sent when the chat outgrew the context (None: all are).
    """

    id: str
    title: str = ""
    created: float = 0.0
    updated: float = 0.0
    settings: ChatSettings = field(default_factory=ChatSettings)
    messages: dict[str, Message] = field(default_factory=dict)
    roots: list[str] = field(default_factory=list)
    chosen_root: str | None = None
    first_kept: str | None = None

    def path(self) -> list[Message]:
        """The messages on the shown branch, oldest first."""
        return list(self._walk(self.chosen_root))

    def path_to(self, message_id: str) -> list[Message]:
        """The messages from the root to this one, inclusive, oldest first."""
        found: list[Message] = []
        at: str | None = message_id
        while at is not None:
            message = self.messages[at]
            found.append(message)
            at = message.parent
        return found[::-1]

    def last(self) -> Message | None:
        """The last message of the shown branch."""
        path = self.path()
        return path[-1] if path else None

    def add(self, role: Literal["user", "assistant"], text: str = "", *, parent: str | None) -> Message:
        """Add a message under ``parent`` (None: at the root) and show its branch."""
        message = Message(new_id(), role, text, parent, created=time.time())
        self.insert(message)
        self.choose(message.id)
        return message

    def insert(self, message: Message) -> None:
        """Take up a message that exists already (loading); the shown branch stays as it is."""
        self.messages[message.id] = message
        self._siblings_of(message).append(message.id)

    def siblings(self, message_id: str) -> tuple[int, int]:
        """(position from 0, number) of this message among the versions of it."""
        known = self._siblings_of(self.messages[message_id])
        return known.index(message_id), len(known)

    def sibling(self, message_id: str, step: int) -> str:
        """The version ``step`` places further, at most the last."""
        known = self._siblings_of(self.messages[message_id])
        return known[min(max(known.index(message_id) + step, 0), len(known) - 1)]

    def choose(self, message_id: str) -> None:
        """Show the branch of this version."""
        message = self.messages[message_id]
        if message.parent is None:
            self.chosen_root = message_id
        else:
            self.messages[message.parent].chosen = message_id

    def _siblings_of(self, message: Message) -> list[str]:
        return self.roots if message.parent is None else self.messages[message.parent].children

    def _walk(self, at: str | None) -> Iterator[Message]:
        while at is not None:
            message = self.messages[at]
            yield message
            at = message.chosen
