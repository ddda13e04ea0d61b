"""A whole window over the real engine loop and a real model, and what a person does in it."""

from __future__ import annotations

import html
import os
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

import pytest
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtTest import QTest

from app.application import Application
from app.settings.keeper import SettingsKeeper
from app.settings.values import EngineSettings
from app.state.document import Message
from app.state.reply_tracker import LiveReply
from app.state.sqlite_open import open_store
from app.views.chat_pane import ChatPane
from app.views.reply import ReplyView
from engine.hosting.bundle import Loader, LoadProgress
from engine.loop import EngineLoop
from engine.model.language_model import LanguageModel
from engine.model.loading import ModelBundle
from engine.port import EngineSink, LoadOptions, Prepared, Snapshot
from engine.scheduling.events import StepReport
from engine.scheduling.request import SamplingParams

PATIENCE_S = 30.0
"""How long anything may take: far more than it needs on a busy machine."""

NEVER = -100.0
"""A logit bias with which a token is never chosen."""


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Handle events until ``condition()`` is true."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {PATIENCE_S:g} s"
        QTest.qWait(5)


class SharedBundle(ModelBundle):
    """A bundle over a model that outlives it."""

    def close(self) -> None:
        """The model goes on to the next window."""


def shared_loader(model: LanguageModel) -> Loader:
    """A loader that hands out ``model``, whatever file is asked for."""

    def load(options: LoadOptions, progress: LoadProgress) -> SharedBundle:
        progress.report("loading", 1.0)
        return SharedBundle(model, options)

    return load


class RealWindow:
    """Runs the application's own objects. ``steps`` and ``prepared`` collect what the engine reports."""

    def __init__(self, app: Application) -> None:
        self.app = app
        self.window = app.window
        self.bridge = app.bridge
        self.controller = app.controller
        self.steps: list[StepReport] = []
        self.prepared: dict[int, Prepared] = {}
        self.closed = False
        self.bridge.step.connect(self.steps.append)
        self.bridge.prepared.connect(lambda told: self.prepared.update({told.stream: told}))

    def wait_for_model(self) -> None:
        """Until a model is ready to chat."""
        wait_until(lambda: self.bridge.engine_state.stage == "ready", "the model is ready")

    @property
    def chat(self) -> str:
        """The chat in front."""
        chat = self.window.tabs.current_chat()
        assert chat is not None
        return chat

    def new_chat(self, **settings: Any) -> str:
        """A fresh chat in front; greedy and short unless ``settings`` say otherwise."""
        self.window.new_chat()
        self.set_chat(self.chat, **{"sampling": SamplingParams(), "max_new": 12, **settings})
        return self.chat

    def set_chat(self, chat: str, **settings: Any) -> None:
        """Change some settings of a chat."""
        known = self.controller.conversation(chat).settings
        self.controller.set_settings(chat, replace(known, **settings))

    def pane(self, chat: str | None = None) -> ChatPane:
        """The pane of a chat."""
        pane = self.window.tabs.pane(chat or self.chat)
        assert pane is not None
        return pane

    def send(self, text: str, chat: str | None = None) -> Message:
        """Bring a chat forward, type and press Enter; returns the reply that was asked for."""
        self.window.show_chat(chat or self.chat)
        field = self.pane().composer.input
        field.setPlainText(text)
        QTest.keyClick(field, Qt.Key.Key_Return)
        reply = self.controller.conversation(self.chat).last()
        assert reply is not None and reply.role == "assistant", "the message was not sent"
        return reply

    def ask(self, text: str, chat: str | None = None) -> Message:
        """One whole exchange; returns the reply."""
        reply = self.send(text, chat)
        self.wait_for(reply)
        return reply

    def wait_for(self, *replies: Message) -> None:
        """Until these replies have ended."""
        wait_until(lambda: not any(reply.is_open for reply in replies), "the replies end")

    def press_escape(self) -> None:
        """Stop the reply in front, as a person does."""
        QTest.keyClick(self.pane().composer.input, Qt.Key.Key_Escape)

    def live(self, chat: str | None = None) -> LiveReply:
        """The reply that a chat is waiting for."""
        live = self.controller.live(chat or self.chat)
        assert live is not None, "no reply is being written"
        return live

    def wait_for_phase(self, phase: str, chat: str | None = None) -> None:
        """Until the reply of a chat is being read, or written."""
        wait_until(lambda: self.live(chat).phase == phase, phase)

    def reply_view(self, reply: Message) -> ReplyView:
        """How a reply of the chat in front is shown."""
        view = self.pane().view.views[reply.id]
        assert isinstance(view, ReplyView)
        return view

    def snapshot(self) -> Snapshot:
        """The instrument, from the engine itself."""
        return self.bridge.port.snapshot().result(PATIENCE_S)

    def rest(self) -> Snapshot:
        """Until nothing runs; then every page must be free or cached."""
        wait_until(lambda: not self.controller.tracker.all_live(), "all replies have ended")
        wait_until(lambda: self.snapshot().pool.referenced == 0, "no page is in use")
        snapshot = self.snapshot()
        pool = snapshot.pool
        assert pool.free + pool.cached == pool.capacity
        assert snapshot.integrity == "" and snapshot.streams == () and snapshot.stream_pages == {}
        return snapshot

    def close(self) -> float:
        """Close as a person does; seconds that it took. The engine must have ended."""
        if self.closed:
            return 0.0
        self.closed = True
        start = time.monotonic()
        self.window.close()
        ended = self.app.close()
        spent = time.monotonic() - start
        app = self.app
        for thing in (self.window, app.opener, app.controller, app.clock, app.bridge, app.settings):
            thing.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        assert ended, "the engine's thread did not end in time"
        return spent


def words(text: str) -> str:
    """Rich text as a person reads it."""
    return " ".join(html.unescape(re.sub("<[^>]*>", "", text)).split())


def never_ends(model: LanguageModel) -> SamplingParams:
    """Greedy, but the reply is never ended by the model."""
    return SamplingParams(logit_bias=tuple((token, NEVER) for token in sorted(model.renderer().stop_ids)))


@contextmanager
def real_window(
    folder: Path, loader: Loader, model: str, *, engine: EngineSettings | None = None, wait: bool = True
) -> Iterator[RealWindow]:
    """A window whose chats and settings are kept in ``folder``, opened on the file ``model``; closed at the end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVSCOPE_DATA_DIR", str(folder))
        settings = SettingsKeeper(folder)
        if engine is not None:
            settings.change(engine=engine)
        problems: list[str] = []
        store, notice = open_store(folder, problems.append)

        def make_engine(sink: EngineSink) -> EngineLoop:
            return EngineLoop(sink, loader)

        window = RealWindow(Application(make_engine, store, settings))
        try:
            window.app.show(model)
            if wait:
                window.wait_for_model()
            yield window
        finally:
            window.close()
        assert not notice and not problems, f"the chats could not be kept: {notice} {problems}"
