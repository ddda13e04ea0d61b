"""Rows of the chat database to documents and back; a damaged row costs only what cannot be read in it."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterable
from typing import Any, Literal, cast, get_args

import numpy as np

from app.state.document import OPEN_STATUSES, UNANSWERED, Conversation, Message, ReplyStats, Status
from app.state.plain import UnfitError, from_text, to_text
from app.state.sampling import ChatSettings
from app.state.store import ChatHead, ChatView, SearchHit, TabGroup, Workspace, text_around

Op = tuple[str, tuple[Any, ...]]
"""One statement and its values."""

MESSAGE_COLUMNS = (
    "id, parent, role, text, created, status, ids, model, seed, stats, error, error_code, reasoning_open, chosen"
)
_ID_BYTES = 3

_SAVE_MESSAGE = f"""
    INSERT INTO messages (chat, {MESSAGE_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)
    ON CONFLICT (id) DO UPDATE SET text = excluded.text, status = excluded.status, ids = excluded.ids,
        model = excluded.model, seed = excluded.seed, stats = excluded.stats, error = excluded.error,
        error_code = excluded.error_code, reasoning_open = excluded.reasoning_open"""
_SAVE_CHAT = """
    INSERT INTO chats (id, title, created, updated, settings, first_kept) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET title = excluded.title, updated = excluded.updated, settings = excluded.settings,
        first_kept = excluded.first_kept"""


def pack_ids(ids: Iterable[int]) -> bytes:
    """Token ids as three bytes each, lowest first; blobs can be joined end to end."""
    wide = np.asarray(list(ids), dtype="<u4")
    return wide.view(np.uint8).reshape(-1, 4)[:, :_ID_BYTES].tobytes()


def unpack_ids(blob: Any) -> list[int]:
    """The ids of a blob; none when it is damaged."""
    if not isinstance(blob, bytes) or len(blob) % _ID_BYTES:
        return []
    wide = np.zeros((len(blob) // _ID_BYTES, 4), np.uint8)
    wide[:, :_ID_BYTES] = np.frombuffer(blob, np.uint8).reshape(-1, _ID_BYTES)
    return cast(list[int], wide.view("<u4")[:, 0].tolist())


def storable(text: str) -> str:
    """Text that SQLite takes: half of a surrogate pair becomes a replacement character."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def forgiving_text(raw: bytes) -> str:
    """A connection's ``text_factory``: bytes that are no UTF-8 do not cost the whole row."""
    return raw.decode("utf-8", "replace")


def join_pieces(row: sqlite3.Row, gained: Iterable[sqlite3.Row]) -> tuple[str, bytes]:
    """Text and ids of a message with what it gained since its row was written."""
    rows = [row, *gained]
    ids = [part["ids"] for part in rows]
    whole = all(isinstance(blob, bytes) for blob in ids)
    return "".join(_text(part["text"]) for part in rows), b"".join(ids) if whole else b""


def save_chat_ops(conversation: Conversation) -> list[Op]:
    """Title, settings and times of a chat."""
    c = conversation
    values = (c.id, storable(c.title), c.created, c.updated, storable(to_text(c.settings)), c.first_kept)
    return [(_SAVE_CHAT, values)]


def save_message_ops(chat: str, message: Message) -> list[Op]:
    """The whole message; what was saved of it while it streamed is in it and goes."""
    m = message
    stats = None if m.stats is None else storable(to_text(m.stats))
    seed = None if m.seed is None else struct.unpack("<q", struct.pack("<Q", m.seed % 2**64))[0]
    values = (chat, m.id, m.parent, m.role, storable(m.text), m.created, m.status, pack_ids(m.ids), m.model)
    rest = (seed, stats, storable(m.error), m.error_code, m.reasoning_open)
    return [(_SAVE_MESSAGE, values + rest), ("DELETE FROM pieces WHERE message = ?", (m.id,))]


def append_ops(message: str, text: str, ids: Iterable[int]) -> list[Op]:
    """What a streaming reply gained."""
    return [("INSERT INTO pieces (message, text, ids) VALUES (?, ?, ?)", (message, storable(text), pack_ids(ids)))]


def choose_ops(chat: str, message: str) -> list[Op]:
    """Show this version."""
    return [
        ("UPDATE messages SET chosen = ?1 WHERE id = (SELECT parent FROM messages WHERE id = ?1)", (message,)),
        (
            "UPDATE chats SET chosen_root = ?2 WHERE id = ?1 AND EXISTS"
            " (SELECT 1 FROM messages WHERE id = ?2 AND parent IS NULL)",
            (chat, message),
        ),
    ]


def head_of(row: sqlite3.Row) -> ChatHead:
    """A chat as the list needs it."""
    return ChatHead(_text(row["id"]), _text(row["title"]), _number(row["created"]), _number(row["updated"]))


def conversation_of(row: sqlite3.Row) -> tuple[Conversation, bool]:
    """A chat without its messages, and whether all of its row could be read."""
    head = head_of(row)
    sound = True
    try:
        settings = from_text(ChatSettings, row["settings"])
    except UnfitError:
        settings, sound = ChatSettings(), False
    first_kept, chosen_root = _known(row["first_kept"]), _known(row["chosen_root"])
    made = Conversation(head.id, head.title, head.created, head.updated, settings)
    made.first_kept, made.chosen_root = first_kept, chosen_root
    return made, sound and isinstance(row["title"], str)


def message_of(row: sqlite3.Row) -> tuple[Message, bool]:
    """A message, and whether all of its row could be read.

    A reply that was being written counts as stopped; one without a word yet as a question that was not answered.
    """
    sound = isinstance(row["text"], str) and row["role"] in ("user", "assistant")
    role: Literal["user", "assistant"] = "assistant" if row["role"] == "assistant" else "user"
    status: Status = row["status"] if row["status"] in get_args(Status) else "done"
    text, error_code = _text(row["text"]), _text(row["error_code"])
    if status in OPEN_STATUSES:
        status, error_code = ("stopped", "closed_early") if text else ("failed", UNANSWERED)
    stats = None
    if row["stats"] is not None:
        try:
            stats = from_text(ReplyStats, row["stats"])
        except UnfitError:
            sound = False
    ids = unpack_ids(row["ids"])
    seed = row["seed"] % 2**64 if isinstance(row["seed"], int) else None
    message = Message(
        id=_text(row["id"]),
        role=role,
        text=text,
        parent=_known(row["parent"]),
        created=_number(row["created"]),
        status=status,
        ids=ids,
        model=_text(row["model"]),
        seed=seed,
        stats=stats,
        error=_text(row["error"]),
        error_code=error_code,
        reasoning_open=bool(row["reasoning_open"]),
        chosen=_known(row["chosen"]),
    )
    return message, sound and (bool(ids) or row["ids"] == b"")


def grow(conversation: Conversation, messages: list[Message]) -> bool:
    """Hang the messages into their tree in their order; False when some had lost their place.

    A message whose parent is gone, or that would be its own ancestor, becomes a version of the first message. Where
    the shown version is gone, the last one is shown.
    """
    sound = True
    by_id = {message.id: message for message in messages}
    rooted: set[str] = set()
    for message in messages:
        trail: set[str] = set()
        at = message
        while at.id not in rooted:
            trail.add(at.id)
            if at.parent is None:
                break
            parent = by_id.get(at.parent)
            if parent is None or parent.id in trail:
                at.parent, sound = None, False
                break
            at = parent
        rooted |= trail
    conversation.messages = by_id
    for message in messages:
        siblings = conversation.roots if message.parent is None else by_id[message.parent].children
        siblings.append(message.id)
    for message in messages:
        message.chosen = _among(message.chosen, message.children)
    conversation.chosen_root = _among(conversation.chosen_root, conversation.roots)
    return sound


def view_of(row: sqlite3.Row | None) -> ChatView:
    """Draft and scroll position."""
    if row is None:
        return ChatView()
    return ChatView(_text(row["draft"]), row["scroll"] if isinstance(row["scroll"], int) else None)


def workspace_text(workspace: Workspace) -> bytes:
    """The open tabs as they are kept."""
    return to_text(workspace).encode()


def workspace_of(kept: Any) -> Workspace:
    """The open tabs; none when they cannot be read."""
    try:
        found = from_text(Workspace, kept)
    except UnfitError:
        return Workspace()
    return Workspace(tuple(group for group in found.groups if isinstance(group, TabGroup)), max(found.active, 0))


def hit(chat: str, text: str, needle: str) -> SearchHit:
    """A chat that was found by this text of a message."""
    at = max(text.casefold().find(needle), 0)
    return SearchHit(chat, text_around(text, at))


def _among(chosen: str | None, versions: list[str]) -> str | None:
    return chosen if chosen in versions else versions[-1] if versions else None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return forgiving_text(value)
    return value if isinstance(value, str) else ""


def _known(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else 0.0
