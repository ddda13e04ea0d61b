"""What keeps chats: a small interface, and one implementation that keeps them in memory only.

Calls are fine-grained so that a lasting store can write exactly what changed: a message before it is sent, reply text
while it streams (at most half a second is pending), the exact token ids with it.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Protocol

from app.state.document import Conversation, Message

EXCERPT_BEFORE, EXCERPT_AFTER = 20, 60
"""How much of a text is shown around what was searched for, in characters."""


@dataclass(frozen=True, slots=True)
class ChatHead:
    """A chat as the list on the left needs it. Times are Unix seconds."""

    id: str
    title: str
    created: float
    updated: float


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A chat that holds the words searched for; ``excerpt`` is the text around the first place ("" for the title)."""

    chat: str
    excerpt: str


@dataclass(frozen=True, slots=True)
class TabGroup:
    """Chats that are open side by side in one group of tabs, and the one in front."""

    chats: tuple[str, ...]
    current: str | None = None


@dataclass(frozen=True, slots=True)
class Workspace:
    """Which chats are open where."""

    groups: tuple[TabGroup, ...] = ()
    active: int = 0


@dataclass(frozen=True, slots=True)
class ChatView:
    """Where the person was in a chat: what they had typed, and how far the view was scrolled (None: at the end)."""

    draft: str = ""
    scroll: int | None = None


class ChatStore(Protocol):
    """Where chats live. Called on the UI thread; a call returns when the change is as safe as the store makes it."""

    def heads(self) -> list[ChatHead]:
        """All chats, last changed first."""
        ...

    def load(self, chat: str) -> Conversation:
        """One chat with all its branches; ``KeyError`` when there is none."""
        ...

    def save_chat(self, conversation: Conversation) -> None:
        """Title, settings and times of a chat (not its messages); creates it when it is new."""
        ...

    def delete_chat(self, chat: str) -> None:
        """Take a chat away; ``restore_chat`` brings it back."""
        ...

    def restore_chat(self, chat: str) -> None:
        """Undo ``delete_chat``."""
        ...

    def save_message(self, chat: str, message: Message) -> None:
        """One message as it stands, new or known."""
        ...

    def append_reply(self, chat: str, message: str, text: str, ids: Iterable[int]) -> None:
        """Text and exact ids that were added to a reply since the last call."""
        ...

    def choose(self, chat: str, message: str) -> None:
        """This message is now the one that is shown among its versions."""
        ...

    def view(self, chat: str) -> ChatView:
        """Draft and scroll position of a chat."""
        ...

    def save_view(self, chat: str, view: ChatView) -> None:
        """Draft and scroll position of a chat."""
        ...

    def workspace(self) -> Workspace:
        """The open tabs as they were saved last."""
        ...

    def save_workspace(self, workspace: Workspace) -> None:
        """The open tabs."""
        ...

    def layout(self, part: str) -> bytes:
        """How a part of the window was arranged when it was saved last; empty: never."""
        ...

    def save_layout(self, part: str, arranged: bytes) -> None:
        """How a part of the window is arranged (what Qt makes of it)."""
        ...

    def search(self, words: str) -> list[SearchHit]:
        """Chats whose title or messages contain ``words``, ignoring case, last changed first."""
        ...

    def close(self) -> None:
        """Finish writing. No call follows."""
        ...


@dataclass(slots=True)
class MemoryStore:
    """A store that forgets everything when the program ends."""

    _chats: dict[str, Conversation] = field(default_factory=dict)
    _deleted: dict[str, Conversation] = field(default_factory=dict)
    _views: dict[str, ChatView] = field(default_factory=dict)
    _workspace: Workspace = field(default_factory=Workspace)
    _layout: dict[str, bytes] = field(default_factory=dict)

    def heads(self) -> list[ChatHead]:
        """All chats, last changed first."""
        found = [ChatHead(c.id, c.title, c.created, c.updated) for c in self._chats.values()]
        return sorted(found, key=lambda head: head.updated, reverse=True)

    def load(self, chat: str) -> Conversation:
        """A copy of one chat."""
        return deepcopy(self._chats[chat])

    def save_chat(self, conversation: Conversation) -> None:
        """Title, settings and times."""
        known = self._chats.setdefault(conversation.id, Conversation(conversation.id, created=conversation.created))
        known.title, known.settings, known.updated = conversation.title, conversation.settings, conversation.updated
        known.first_kept = conversation.first_kept

    def delete_chat(self, chat: str) -> None:
        """Take a chat away."""
        self._deleted[chat] = self._chats.pop(chat)

    def restore_chat(self, chat: str) -> None:
        """Bring a deleted chat back."""
        self._chats[chat] = self._deleted.pop(chat)

    def save_message(self, chat: str, message: Message) -> None:
        """One message as it stands."""
        conversation = self._chats[chat]
        copy = deepcopy(message)
        known = conversation.messages.get(message.id)
        if known is None:
            copy.children, copy.chosen = [], None
            conversation.insert(copy)
        else:
            copy.children, copy.chosen = known.children, known.chosen
            conversation.messages[message.id] = copy

    def append_reply(self, chat: str, message: str, text: str, ids: Iterable[int]) -> None:
        """Text and ids that were added to a reply."""
        known = self._chats[chat].messages[message]
        known.text += text
        known.ids.extend(ids)

    def choose(self, chat: str, message: str) -> None:
        """Show this version."""
        self._chats[chat].choose(message)

    def view(self, chat: str) -> ChatView:
        """Draft and scroll position."""
        return self._views.get(chat, ChatView())

    def save_view(self, chat: str, view: ChatView) -> None:
        """Draft and scroll position."""
        self._views[chat] = view

    def workspace(self) -> Workspace:
        """The open tabs."""
        return self._workspace

    def save_workspace(self, workspace: Workspace) -> None:
        """The open tabs."""
        self._workspace = workspace

    def layout(self, part: str) -> bytes:
        """How a part of the window was arranged."""
        return self._layout.get(part, b"")

    def save_layout(self, part: str, arranged: bytes) -> None:
        """How a part of the window is arranged."""
        self._layout[part] = arranged

    def search(self, words: str) -> list[SearchHit]:
        """Chats that contain ``words``."""
        needle = words.casefold()
        hits = []
        for head in self.heads():
            if needle in head.title.casefold():
                hits.append(SearchHit(head.id, ""))
            elif (excerpt := self._excerpt(self._chats[head.id], needle)) is not None:
                hits.append(SearchHit(head.id, excerpt))
        return hits

    def close(self) -> None:
        """Nothing to finish."""

    @staticmethod
    def _excerpt(conversation: Conversation, needle: str) -> str | None:
        for message in conversation.messages.values():
            at = message.text.casefold().find(needle)
            if at >= 0:
                return text_around(message.text, at)
        return None


def text_around(text: str, at: int) -> str:
    """Some words on one line around a place in a text; an ellipsis where it begins within it."""
    start = max(at - EXCERPT_BEFORE, 0)
    if start > 0:
        gap = next((place for place in range(start, at) if text[place].isspace()), start)
        words = " ".join(text[gap : at + EXCERPT_AFTER].split())
        return f"…{words}" if gap == start else f"… {words}"
    return " ".join(text[: at + EXCERPT_AFTER].split())
