"""From the engine's events to the document: text, exact ids and figures of the replies that are being written."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from PySide6.QtCore import QObject, QTimer, Signal

from app.engine_thread import EngineBridge
from app.state.document import UNANSWERED, Message, ReplyStats, Status
from app.state.frame_clock import FrameClock
from app.state.jobs import vocabulary_of
from app.state.store import ChatStore
from app.text import tr
from engine.port import ChatJob, EngineState, Failed, Prepared, Turn
from engine.scheduling.events import Finished, FinishReason, Piece, StepReport

SAVE_MS = 400
"""How long reply text may be unsaved, in milliseconds."""

Phase = Literal["waiting_for_model", "preparing", "queued", "prefilling", "decoding"]

_STATUS: dict[FinishReason, Status] = {
    "stop": "done",
    "length": "length",
    "cancelled": "stopped",
    "evicted": "evicted",
    "error": "failed",
}


@dataclass(slots=True)
class LiveReply:
    """A reply that the engine works on. ``n_read`` of ``n_prompt`` tokens are in KV; ``exact``: its ids are whole.

    ``place`` counts from 1 while it is queued (0: not told yet); ``unwanted``: the person stopped it.
    """

    stream: int
    chat: str
    message: Message
    make_job: Callable[[], ChatJob]
    turns: tuple[Turn, ...] = ()
    prepared: Prepared | None = None
    phase: Phase = "preparing"
    place: int = 0
    unwanted: bool = False
    n_prompt: int = 0
    n_cached: int = 0
    n_read: int = 0
    n_gen: int = 0
    width: int = 0
    first_piece: float = 0.0
    started: float = field(default_factory=time.monotonic)
    ttft_s: float = 0.0
    exact: bool = True
    pending: list[str] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)
    unsaved_text: list[str] = field(default_factory=list)
    n_saved: int = 0
    widths: int = 0
    samples: int = 0

    @property
    def tokens_per_s(self) -> float:
        """The speed so far, in tokens per second (0 before the second token)."""
        spent = time.monotonic() - self.first_piece
        return (len(self.ids) - 1) / spent if self.first_piece and spent > 0 and len(self.ids) > 1 else 0.0


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the engine said of a finished reply: its prompt by turns, its figures, and the turns that were sent."""

    prepared: Prepared | None
    finished: Finished
    turns: tuple[Turn, ...]


class ReplyTracker(QObject):
    """Follows every reply that is being written; text is handed on at the pace of the frame clock.

    Signals:
        grew: (chat, message, text) was added to a reply.
        progressed: (chat, message) its phase or its counts changed.
        ended: (chat, message) it is complete, stopped or failed.
    """

    grew = Signal(str, str, str)
    progressed = Signal(str, str)
    ended = Signal(str, str)

    def __init__(
        self, bridge: EngineBridge, store: ChatStore, clock: FrameClock, parent: QObject | None = None
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._store = store
        self._clock = clock
        self._live: dict[int, LiveReply] = {}
        self._by_chat: dict[str, LiveReply] = {}
        self._report: StepReport | None = None
        self._evidence: dict[str, Evidence] = {}
        self.prefill_rate = 0.0
        self._closing = False
        self._save_timer = QTimer(self)
        self._save_timer.setSingleShot(True)
        self._save_timer.setInterval(SAVE_MS)
        self._save_timer.timeout.connect(self.save)
        clock.tick.connect(self.flush)
        bridge.piece.connect(self._on_piece)
        bridge.finished.connect(self._on_finished)
        bridge.prepared.connect(self._on_prepared)
        bridge.failed.connect(self._on_failed)
        bridge.step.connect(self._on_step)
        bridge.state.connect(self._on_state)

    def live(self, chat: str) -> LiveReply | None:
        """The reply that is being written in this chat."""
        return self._by_chat.get(chat)

    def evidence(self, message: str) -> Evidence | None:
        """What the engine said of a reply that finished since the start."""
        return self._evidence.get(message)

    def all_live(self) -> list[LiveReply]:
        """Every reply that is being written."""
        return list(self._live.values())

    def start(self, stream: int, chat: str, message: Message, make_job: Callable[[], ChatJob]) -> None:
        """Ask the engine for this reply; before a model is ready the question waits. While another model is loaded,
        the one that runs answers.

        ``make_job`` is called when the question is put: only then is the vocabulary known.
        """
        live = LiveReply(stream, chat, message, make_job)
        self._live[stream] = live
        self._by_chat[chat] = live
        live.phase = "waiting_for_model"
        self._follow_state(live, self._bridge.engine_state)

    def stop(self, chat: str) -> None:
        """Stop the reply of this chat; what is written stays."""
        live = self._by_chat.get(chat)
        if live is None:
            return
        live.unwanted = True
        if live.phase == "waiting_for_model":
            self._settle(live, "stopped")
        else:
            self._bridge.port.cancel(live.stream)

    def abandon(self, chat: str) -> None:
        """Stop, and let the chat go on at once; the reply is settled when the engine's word arrives."""
        self.stop(chat)
        self._by_chat.pop(chat, None)

    def forget(self, chat: str) -> None:
        """Stop, keep what is written, and want to hear no more of it (the chat is deleted, perhaps not for long)."""
        for live in [live for live in self._live.values() if live.chat == chat]:
            self._bridge.port.cancel(live.stream)
            self._settle(live, "stopped")

    def flush(self) -> None:
        """Hand on all text and progress that came since the last frame."""
        self._take_progress()
        for live in list(self._live.values()):
            self._flush_text(live)

    def save(self) -> None:
        """Give the store everything that it has not seen."""
        for live in self._live.values():
            self._flush_text(live)
            if live.unsaved_text or live.n_saved < len(live.ids):
                fresh = live.ids[live.n_saved :] if live.exact else []
                self._store.append_reply(live.chat, live.message.id, "".join(live.unsaved_text), fresh)
                live.unsaved_text.clear()
                live.n_saved = len(live.ids)

    def begin_close(self) -> None:
        """The program is about to end: whatever the engine cuts short from now on, it cuts short for that."""
        self.save()
        self._closing = True

    def close(self) -> None:
        """The program ends: what is still open was stopped here."""
        self._closing = True
        for live in list(self._live.values()):
            self._cut_short(live)

    def _put(self, live: LiveReply) -> None:
        live.phase, live.place = "preparing", 0
        self._take_vocabulary(live)
        job = live.make_job()
        live.turns = job.turns
        self._bridge.port.chat(job)
        self.progressed.emit(live.chat, live.message.id)

    def _take_vocabulary(self, live: LiveReply) -> None:
        """The ids that follow, and those of a reply that goes on, belong to the vocabulary of the model of now."""
        message, vocabulary = live.message, vocabulary_of(self._bridge.engine_state.model)
        if message.model != vocabulary:
            message.ids.clear()
            message.model = vocabulary
        live.exact = not message.text or bool(message.ids)
        self._store.save_message(live.chat, message)

    def _on_piece(self, piece: Piece) -> None:
        live = self._live.get(piece.stream)
        if live is None:
            return
        if piece.token is not None:
            if not live.ids:
                live.first_piece = time.monotonic()
                live.ttft_s = live.first_piece - live.started
            live.ids.append(piece.token)
        if piece.text:
            live.pending.append(piece.text)
        self._clock.request()
        if not self._save_timer.isActive():
            self._save_timer.start()

    def _on_step(self, report: StepReport) -> None:
        if report.prefill_us > 0 and report.prefilled:
            rate = sum(n for _, n in report.prefilled) * 1e6 / report.prefill_us
            self.prefill_rate = rate if self.prefill_rate == 0 else 0.8 * self.prefill_rate + 0.2 * rate
        if self._live:
            self._report = report
            self._clock.request()

    def _take_progress(self) -> None:
        report, self._report = self._report, None
        if report is None:
            return
        width = len(report.decoded)
        queued = 0
        for state in report.streams:  # the queue comes last, in its order
            queued += state.phase == "queued"
            live = self._live.get(state.stream)
            if live is None:
                continue
            live.phase, live.place = state.phase, queued if state.phase == "queued" else 0
            live.n_prompt, live.n_cached, live.n_read = state.n_prompt, state.n_cached, state.n_read
            live.n_gen = state.n_gen
            if state.phase == "decoding" and width:
                live.width = width
                live.widths += width
                live.samples += 1
            self.progressed.emit(live.chat, live.message.id)

    def _flush_text(self, live: LiveReply) -> None:
        if not live.pending:
            return
        text = "".join(live.pending)
        live.pending.clear()
        live.unsaved_text.append(text)
        live.message.text += text
        live.message.status = "writing"
        self.grew.emit(live.chat, live.message.id, text)

    def _on_prepared(self, prepared: Prepared) -> None:
        live = self._live.get(prepared.stream)
        if live is None:
            return
        live.prepared = prepared
        if live.message.model != vocabulary_of(self._bridge.engine_state.model):  # the model changed meanwhile
            self._take_vocabulary(live)
        if not live.message.text and live.message.reasoning_open != prepared.reasoning_open:
            live.message.reasoning_open = prepared.reasoning_open
            self._store.save_message(live.chat, live.message)
        if live.phase == "preparing":
            live.phase = "queued"
            live.n_prompt = len(prepared.prompt)
            self.progressed.emit(live.chat, live.message.id)

    def _on_finished(self, event: Finished) -> None:
        live = self._live.get(event.stream)
        if live is None:
            return
        self._flush_text(live)
        if event.reason == "cancelled" and not live.unwanted:
            self._cut_short(live, event)
            return
        self._take_figures(live, event)
        self._settle(live, _STATUS[event.reason])

    def _take_figures(self, live: LiveReply, event: Finished) -> None:
        info = self._bridge.engine_state.model
        self._evidence[live.message.id] = Evidence(live.prepared, event, live.turns)
        live.message.stats = ReplyStats(
            n_prompt=event.n_prompt,
            n_cached=event.n_cached,
            n_gen=event.n_gen,
            ttft_s=event.ttft_us / 1e6,
            gen_s=event.gen_us / 1e6,
            width=live.widths / live.samples if live.samples else 1.0,
            page_rows=info.page_rows if info else 16,
            chain=event.chain,
            miss=event.miss,
        )
        live.message.seed = event.seed
        live.message.error, live.message.error_code = event.error, event.error_code
        del live.ids[event.n_kept :]

    def _cut_short(self, live: LiveReply, event: Finished | None = None) -> None:
        """The engine ended this reply unasked: the program ends, or another model takes the place of its own.

        What is written stays; a question without a word of an answer is put again, now or when the person says so.
        """
        self._flush_text(live)
        if live.message.text:
            if event is not None:
                self._take_figures(live, event)
            live.message.error_code = "closed_early" if self._closing else "model_changed"
            self._settle(live, "stopped")
        elif self._closing:
            self._fail(live, UNANSWERED, "")
        else:
            live.ids.clear()
            live.n_saved, live.first_piece = 0, 0.0
            live.phase, live.place = "waiting_for_model", 0  # the engine says at once what is loaded now

    def _on_failed(self, failed: Failed) -> None:
        live = self._live.get(failed.stream)
        if live is None:
            return
        if failed.error_code != "cancelled":
            self._fail(live, failed.error_code, failed.error)
        elif live.unwanted:
            self._settle(live, "stopped")
        else:
            self._cut_short(live)

    def _on_state(self, state: EngineState) -> None:
        for live in [live for live in self._live.values() if live.phase == "waiting_for_model"]:
            self._follow_state(live, state)

    def _follow_state(self, live: LiveReply, state: EngineState) -> None:
        """What becomes of a question that no model has yet."""
        if state.stage == "closed":
            self._fail(live, UNANSWERED, "")
        elif state.model is not None:
            self._put(live)
        elif state.stage in ("failed", "empty"):
            self._fail(live, state.error_code or "not_loaded", state.error or tr("Choose one, then ask again."))
        else:
            self.progressed.emit(live.chat, live.message.id)

    def _fail(self, live: LiveReply, code: str, sentence: str) -> None:
        live.message.error, live.message.error_code = sentence, code
        self._settle(live, "failed")

    def _settle(self, live: LiveReply, status: Status) -> None:
        """The one end of every reply: the whole message is saved and the stream forgotten."""
        self._flush_text(live)
        message = live.message
        message.status = status
        if live.exact:
            message.ids.extend(live.ids)
        else:
            message.ids.clear()
        self._live.pop(live.stream, None)
        if self._by_chat.get(live.chat) is live:
            del self._by_chat[live.chat]
        self._store.save_message(live.chat, message)
        self.ended.emit(live.chat, message.id)
