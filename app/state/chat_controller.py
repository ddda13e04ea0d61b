"""What a person does in a chat, turned into changes of the document and jobs for the engine.

No widgets here: views call these methods and show what the signals say.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from PySide6.QtCore import QObject, Signal

from app.engine_thread import EngineBridge
from app.state.document import Conversation, Message, new_id
from app.state.frame_clock import FrameClock
from app.state.jobs import first_kept, job_for_draft, job_for_reply, n_dropped, one_line, vocabulary_of
from app.state.reply_tracker import Evidence, LiveReply, ReplyTracker
from app.state.sampling import ChatSettings
from app.state.store import ChatHead, ChatStore, SearchHit
from app.text import tr
from engine.port import ChatJob, Forecast
from engine.scheduling.events import Finished
from engine.serving import API_CHAT

KEEP_SHARE = 0.7
"""When the oldest turns are dropped, this share of the context is kept."""

TITLE_CHARS = 200
"""A title that a person gives is cut here."""

Activity = Literal["idle", "waiting", "reading", "writing", "failed"]


class ChatController(QObject):
    """All chats of the window.

    Signals:
        chats_changed: the list of chats, a title or an order changed.
        activity_changed: (chat) its dot or its progress changed.
        path_changed: (chat) another branch is shown.
        message_added: (chat, message) at the end of the shown branch.
        reply_grew: (chat, message, text) text was added.
        reply_changed: (chat, message) status, figures or progress changed.
        settings_changed: (chat) system prompt or sampling changed.
        nothing_to_drop: (chat) the oldest turns should be left out, but the last one is all there is.
    """

    chats_changed = Signal()
    activity_changed = Signal(str)
    path_changed = Signal(str)
    message_added = Signal(str, str)
    reply_grew = Signal(str, str, str)
    reply_changed = Signal(str, str)
    settings_changed = Signal(str)
    nothing_to_drop = Signal(str)

    def __init__(
        self, bridge: EngineBridge, store: ChatStore, clock: FrameClock, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self.store = store
        self.clock = clock
        self._bridge = bridge
        self._heads = {head.id: head for head in store.heads()}
        self._open: dict[str, Conversation] = {}
        self._deleted: list[ChatHead] = []
        self._defaults = ChatSettings()
        self._streams = itertools.count(1)
        self.tracker = ReplyTracker(bridge, store, clock, self)
        self.tracker.grew.connect(self.reply_grew)
        self._told: dict[str, object] = {}
        """What was last said of each chat's activity."""
        self.tracker.progressed.connect(self._on_progressed)
        self.tracker.ended.connect(self._on_ended)

    def heads(self) -> list[ChatHead]:
        """All chats, last changed first."""
        return sorted(self._heads.values(), key=lambda head: head.updated, reverse=True)

    def title(self, chat: str) -> str:
        """The title of a chat, "New chat" before it has one; the name of streams that other programs asked for."""
        if chat == API_CHAT:
            return tr("API")
        head = self._heads.get(chat)
        return (head.title if head else "") or tr("New chat")

    def conversation(self, chat: str) -> Conversation:
        """The document of a chat; read it, change it only through this controller."""
        if chat not in self._open:
            self._open[chat] = self.store.load(chat)
        return self._open[chat]

    def live(self, chat: str) -> LiveReply | None:
        """The reply that is being written in this chat."""
        return self.tracker.live(chat)

    def activity(self, chat: str) -> Activity:
        """What the chat is doing, for its dot."""
        live = self.live(chat)
        if live is not None:
            phases: dict[str, Activity] = {"prefilling": "reading", "decoding": "writing"}
            return phases.get(live.phase, "waiting")
        last = self._open[chat].last() if chat in self._open else None
        return "failed" if last is not None and last.status == "failed" else "idle"

    def new_chat(self) -> str:
        """Start an empty chat; an empty one that nobody wrote in is used again."""
        for chat, conversation in self._open.items():
            if chat in self._heads and not conversation.messages and not conversation.title:
                return chat
        now = time.time()
        conversation = Conversation(new_id(), created=now, updated=now, settings=self._defaults)
        self._open[conversation.id] = conversation
        self._save_head(conversation)
        return conversation.id

    def send(self, chat: str, text: str) -> bool:
        """Send a user's message at the end of the shown branch; False when it is blank or a reply is being written."""
        if not text.strip() or self.live(chat) is not None:
            return False
        conversation = self.conversation(chat)
        last = conversation.last()
        self._ask(conversation, text, parent=last.id if last else None)
        return True

    def edit(self, chat: str, message: str, text: str) -> bool:
        """Send another version of an earlier message; the old branch stays reachable."""
        if not text.strip():
            return False
        self.tracker.abandon(chat)
        conversation = self.conversation(chat)
        self._ask(conversation, text, parent=conversation.messages[message].parent, rebuild=True)
        return True

    def regenerate(self, chat: str, message: str) -> None:
        """Write another reply to the same message, with a fresh seed; the old one stays reachable."""
        self.tracker.abandon(chat)
        conversation = self.conversation(chat)
        reply = conversation.messages[message]
        self._reply(conversation, parent=reply.parent, fresh_seed=True, rebuild=True)

    def retry(self, chat: str, message: str, *, plain_template: bool = False) -> None:
        """Ask again after a failure, in place: an empty failed reply is replaced, a partial one goes on.

        ``plain_template``: from now on this chat does without the model's own template, which refused it.
        """
        conversation = self.conversation(chat)
        if plain_template:
            self.set_settings(chat, replace(conversation.settings, plain_template=True))
        reply = conversation.messages[message]
        if self.live(chat) is None:
            self._start(conversation, reply, resume=bool(reply.text))

    def resume(self, chat: str, message: str) -> None:
        """Go on with a reply that was stopped or reached its limit."""
        conversation = self.conversation(chat)
        if self.live(chat) is None:
            self._start(conversation, conversation.messages[message], resume=True)

    def drop_oldest(self, chat: str, message: str | None = None) -> None:
        """Leave the oldest turns out of the prompt until the rest fits 70 % of the context.

        With ``message``, a reply that failed because the chat was too long, ask again then.
        """
        state = self._bridge.engine_state
        conversation = self.conversation(chat)
        path = conversation.path_to(message)[:-1] if message is not None else conversation.path()
        if state.model is None or self.live(chat) is not None or not path:
            return
        room = round(state.model.n_ctx * KEEP_SHARE)
        before, draft = (path[:-1], path[-1].text) if message is not None else (path, "")
        job = job_for_draft(conversation, before, draft, vocabulary=vocabulary_of(state.model))

        def drop(forecast: Forecast) -> None:
            kept = first_kept(conversation, path, forecast, room)
            if kept == path[n_dropped(conversation, path)].id:
                self.nothing_to_drop.emit(chat)
                return
            conversation.first_kept = kept
            self.store.save_chat(conversation)
            self.path_changed.emit(chat)
            if message is not None:
                self.retry(chat, message)

        self._bridge.ask(self._bridge.port.forecast(job), drop)

    def evidence(self, chat: str, message: str) -> Evidence | None:
        """What the engine said of a finished reply; rebuilt from its figures after a restart."""
        found = self.tracker.evidence(message)
        stats = self.conversation(chat).messages[message].stats
        if found is not None or stats is None:
            return found
        finished = Finished(
            0, "stop", stats.n_prompt, stats.n_cached, stats.n_gen, 0, 0, 0, chain=stats.chain, miss=stats.miss
        )
        return Evidence(None, finished, ())

    def stop(self, chat: str) -> None:
        """Stop the reply of this chat; what is written stays."""
        self.tracker.stop(chat)

    def show_version(self, chat: str, message: str, step: int) -> None:
        """Show the next (1) or previous (-1) version of a message."""
        conversation = self.conversation(chat)
        wanted = conversation.sibling(message, step)
        if wanted != message:
            conversation.choose(wanted)
            self.store.choose(chat, wanted)
            self.path_changed.emit(chat)

    def rename(self, chat: str, title: str) -> None:
        """Give a chat a title."""
        conversation = self.conversation(chat)
        conversation.title = one_line(title, TITLE_CHARS)
        self._save_head(conversation)

    def set_settings(self, chat: str, settings: ChatSettings) -> None:
        """System prompt, sampling and reply limit of a chat, from the next reply on."""
        conversation = self.conversation(chat)
        if settings != conversation.settings:
            conversation.settings = settings
            self.store.save_chat(conversation)
            self.settings_changed.emit(chat)

    def set_defaults(self, settings: ChatSettings) -> None:
        """What new chats begin with; an open one in which nobody wrote and nothing was set follows."""
        before, self._defaults = self._defaults, settings
        for chat, conversation in self._open.items():
            if not conversation.messages and conversation.settings == before:
                self.set_settings(chat, settings)

    def delete(self, chat: str) -> None:
        """Delete a chat; ``undo_delete`` brings the last one back."""
        self.tracker.forget(chat)
        self.store.delete_chat(chat)
        self._deleted.append(self._heads.pop(chat))
        self._open.pop(chat, None)
        self.chats_changed.emit()

    def discard_if_empty(self, chat: str) -> None:
        """Nobody wrote in this chat: closing its tab leaves no trace of it."""
        conversation = self._open.get(chat)
        if conversation is None or conversation.messages or conversation.title or self.store.view(chat).draft.strip():
            return
        self.store.delete_chat(chat)
        self._heads.pop(chat, None)
        self._open.pop(chat, None)
        self.chats_changed.emit()

    def undo_delete(self) -> str | None:
        """Bring back the chat that was deleted last."""
        if not self._deleted:
            return None
        head = self._deleted.pop()
        self.store.restore_chat(head.id)
        self._heads[head.id] = head
        self.chats_changed.emit()
        return head.id

    def search(self, words: str) -> list[SearchHit]:
        """Chats that contain these words."""
        return self.store.search(words) if words.strip() else []

    def forecast(
        self, chat: str, draft: str, callback: Callable[[Forecast | None], None], *, instead_of: str | None = None
    ) -> None:
        """Tell ``callback`` what sending the draft would reuse (None: the engine cannot say now).

        ``instead_of`` names the earlier message that the draft would replace.
        """
        state = self._bridge.engine_state
        if state.model is None:
            callback(None)
            return
        conversation = self.conversation(chat)
        before = conversation.path()
        if instead_of is not None:
            before = conversation.path_to(instead_of)[:-1]
        job = job_for_draft(conversation, before, draft, vocabulary=vocabulary_of(state.model))
        self._bridge.ask(self._bridge.port.forecast(job), callback, lambda error: callback(None))

    def tokens_held(self, chat: str) -> int | None:
        """How many tokens the shown branch holds by the engine's count; None before its first reply."""
        last = self.conversation(chat).last()
        stats = last.stats if last is not None else None
        return stats.n_prompt + stats.n_gen if stats is not None else None

    def save(self) -> None:
        """Give the store everything that is pending."""
        self.tracker.save()

    def begin_close(self) -> None:
        """The program is about to end: save, and take what the engine ends from now on as ended by that."""
        self.tracker.begin_close()

    def close(self) -> None:
        """The program ends: settle and save what is open."""
        self.tracker.close()

    def _ask(self, conversation: Conversation, text: str, *, parent: str | None, rebuild: bool = False) -> None:
        message = conversation.add("user", text, parent=parent)
        if not conversation.title:
            conversation.title = one_line(text, 40)
        conversation.updated = time.time()
        self._save_head(conversation)
        self.store.save_message(conversation.id, message)
        self.store.choose(conversation.id, message.id)
        if not rebuild:
            self.message_added.emit(conversation.id, message.id)
        self._reply(conversation, parent=message.id, rebuild=rebuild)

    def _reply(
        self, conversation: Conversation, *, parent: str | None, fresh_seed: bool = False, rebuild: bool = False
    ) -> None:
        reply = conversation.add("assistant", parent=parent)
        reply.status = "waiting"
        self.store.save_message(conversation.id, reply)
        self.store.choose(conversation.id, reply.id)
        if rebuild:
            self.path_changed.emit(conversation.id)
        else:
            self.message_added.emit(conversation.id, reply.id)
        self._start(conversation, reply, fresh_seed=fresh_seed)

    def _start(
        self, conversation: Conversation, reply: Message, *, fresh_seed: bool = False, resume: bool = False
    ) -> None:
        stream = next(self._streams)

        def make_job() -> ChatJob:
            return job_for_reply(
                conversation,
                reply,
                stream=stream,
                vocabulary=vocabulary_of(self._bridge.engine_state.model),
                fresh_seed=fresh_seed,
                resume=resume,
            )

        reply.status, reply.error, reply.error_code, reply.stats = "waiting", "", "", None
        self.tracker.start(stream, conversation.id, reply, make_job)
        self.reply_changed.emit(conversation.id, reply.id)
        self.activity_changed.emit(conversation.id)

    def _save_head(self, conversation: Conversation) -> None:
        self.store.save_chat(conversation)
        self._heads[conversation.id] = ChatHead(
            conversation.id, conversation.title, conversation.created, conversation.updated
        )
        self.chats_changed.emit()

    def _on_progressed(self, chat: str, message: str) -> None:
        self.reply_changed.emit(chat, message)
        live = self.live(chat)
        told = live and (live.phase, live.place, live.n_read)
        if self._told.get(chat) != told:  # at every token only the reply itself changes
            self._told[chat] = told
            self.activity_changed.emit(chat)

    def _on_ended(self, chat: str, message: str) -> None:
        conversation = self._open.get(chat)
        if conversation is not None and conversation.settings.overflow == "drop_oldest":
            reply = conversation.messages[message]
            if reply.error_code == "prompt_too_long" and self.live(chat) is None:
                self.drop_oldest(chat, message)
        self.reply_changed.emit(chat, message)
        self.activity_changed.emit(chat)
