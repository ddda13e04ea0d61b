"""A whole window over the fake engine, and what a person does in it."""

from __future__ import annotations

from typing import Any

import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent, Qt
from PySide6.QtWidgets import QScrollBar

from app.application import Application
from app.settings.keeper import SettingsKeeper
from app.state.document import Message
from app.state.store import ChatStore, MemoryStore
from app.views.bubble import BubbleView
from app.views.chat_pane import ChatPane
from app.views.reply import ReplyView
from engine.port import EngineState
from tests.gui.fake_engine import FakeEngine


class Harness:
    """Runs the application's own objects; ``engine`` plays the engine."""

    def __init__(self, qtbot: Any, settings: SettingsKeeper, store: ChatStore | None, *, ready: bool) -> None:
        self.qtbot = qtbot
        self.store = store or MemoryStore()
        self.settings = settings
        self.app = Application(FakeEngine, self.store, settings)
        self.window = self.app.window
        self.bridge = self.app.bridge
        self.controller = self.app.controller
        self.engine: FakeEngine = self.bridge.port  # type: ignore[assignment]
        self.closed = False
        self.bridge.start()
        self.window.resize(1200, 800)
        self.window.show()
        if ready:
            self.engine.ready()
        else:
            self.bridge.announce(EngineState("loading"))
        self.settle()

    def settle(self) -> None:
        """Let everything that was posted arrive, frames included."""
        QCoreApplication.processEvents()
        self.qtbot.waitUntil(lambda: self.app.clock.idle, timeout=20_000)
        QCoreApplication.processEvents()

    @property
    def chat(self) -> str:
        """The chat in front."""
        chat = self.window.tabs.current_chat()
        assert chat is not None
        return chat

    def pane(self, chat: str | None = None) -> ChatPane:
        """The pane of a chat."""
        pane = self.window.tabs.pane(chat or self.chat)
        assert pane is not None
        return pane

    def new_chat(self) -> str:
        """A fresh chat in front."""
        self.window.new_chat()
        return self.chat

    def type_and_send(self, text: str, chat: str | None = None) -> int:
        """Type, press Enter; returns the stream that the engine was asked for."""
        field = self.pane(chat).composer.input
        field.setFocus()
        field.setPlainText(text)
        before = len(self.engine.jobs)
        self.qtbot.keyClick(field, Qt.Key.Key_Return)
        self.settle()
        assert len(self.engine.jobs) == before + 1
        return max(self.engine.jobs)

    def scroll(self, value: int) -> None:
        """Drag the handle of the chat in front to a place."""
        bar = self.pane().view.verticalScrollBar()
        bar.setSliderPosition(value)
        bar.triggerAction(QScrollBar.SliderAction.SliderMove)
        self.settle()

    def write(self, stream: int, text: str) -> None:
        """The engine writes a text, a token per word."""
        for word in text.split(" "):
            self.engine.write((stream, word + " "))
        self.settle()

    def reply_to(self, text: str, answer: str, **figures: Any) -> Message:
        """One whole exchange; returns the reply."""
        stream = self.type_and_send(text)
        self.write(stream, answer)
        self.engine.finish(stream, **figures)
        self.settle()
        return self.path()[-1]

    def path(self, chat: str | None = None) -> list[Message]:
        """The messages on the shown branch."""
        return self.controller.conversation(chat or self.chat).path()

    def reply_view(self, chat: str | None = None) -> ReplyView:
        """The last reply that is shown."""
        view = list(self.pane(chat).view.views.values())[-1]
        assert isinstance(view, ReplyView)
        return view

    def bubble(self, number: int = 0, chat: str | None = None) -> BubbleView:
        """A user's message by its place."""
        bubbles = [view for view in self.pane(chat).view.views.values() if isinstance(view, BubbleView)]
        return bubbles[number]

    def close(self) -> bool:
        """Close as a person does; True when the engine ended in time."""
        if self.closed:
            return True
        self.closed = True
        self.window.close()
        ended = self.app.close()
        for thing in (self.window, self.app.opener, self.controller, self.app.clock, self.bridge, self.settings):
            thing.deleteLater()
        QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
        assert not shiboken6.isValid(self.window)
        return ended
