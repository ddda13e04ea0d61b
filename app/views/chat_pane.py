"""One chat in a tab: its messages and its composer."""

from __future__ import annotations

import shiboken6
from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QKeyEvent, QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QScrollBar, QVBoxLayout, QWidget

from app.engine_thread import EngineBridge
from app.state.chat_controller import ChatController
from app.state.store import ChatView as SavedView
from app.views.chat_view import SIDE, WIDEST, ChatView
from app.views.composer import Composer
from engine.port import EngineState, Forecast

SAVE_VIEW_MS = 500
_SCROLLS = {
    Qt.Key.Key_PageUp: QScrollBar.SliderAction.SliderPageStepSub,
    Qt.Key.Key_PageDown: QScrollBar.SliderAction.SliderPageStepAdd,
    Qt.Key.Key_Home: QScrollBar.SliderAction.SliderToMinimum,
    Qt.Key.Key_End: QScrollBar.SliderAction.SliderToMaximum,
}


class ChatPane(QWidget):
    """Wires a chat's view and composer to the controller.

    Signals:
        settings_asked: (chat) the person wants this chat's settings.
    """

    settings_asked = Signal(str)

    def __init__(
        self, chat: str, controller: ChatController, bridge: EngineBridge, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.chat = chat
        self._controller = controller
        self._bridge = bridge
        self._edited = ""
        self.setProperty("surface", "background")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.view = ChatView(chat, controller, bridge)
        self.composer = Composer()
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 14)
        box.setSpacing(8)
        box.addWidget(self.view, 1)
        row = QHBoxLayout()
        row.setContentsMargins(SIDE, 0, SIDE, 0)
        row.addStretch(1)
        row.addWidget(self.composer, 1000)
        row.addStretch(1)
        self.composer.setMaximumWidth(WIDEST)
        box.addLayout(row)
        self._save_timer = QTimer(self)
        self._save_timer.setSingleShot(True)
        self._save_timer.setInterval(SAVE_VIEW_MS)
        self._save_timer.timeout.connect(self.save_view)
        self._connect()
        saved = controller.store.view(chat)
        self.composer.set_text(saved.draft)
        if saved.scroll is not None:
            self.view.scroll_to(saved.scroll)
        self.setFocusProxy(self.composer)
        self._follow_reply()
        self._show_context(None)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._follow_reply()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Keys that no part of the chat took: Esc stops, a page key scrolls, and typing goes to the composer."""
        match event.key():
            case Qt.Key.Key_Escape:
                self._controller.stop(self.chat)
            case key if key in _SCROLLS:
                self.view.verticalScrollBar().triggerAction(_SCROLLS[Qt.Key(key)])
            case _ if event.text().isprintable() and event.text() and not self.composer.input.hasFocus():
                self.composer.input.setFocus()
                self.composer.input.insertPlainText(event.text())
            case _:
                super().keyPressEvent(event)

    def save_view(self) -> None:
        """Keep the draft and the place."""
        self._save_timer.stop()
        self._controller.store.save_view(self.chat, SavedView(self.composer.text, self.view.scroll_place()))

    def _connect(self) -> None:
        composer, controller = self.composer, self._controller
        composer.sent.connect(self._on_sent)
        composer.stopped.connect(lambda: controller.stop(self.chat))
        composer.draft_changed.connect(self._ask_forecast)
        composer.input.textChanged.connect(self._save_timer.start)
        composer.settings_asked.connect(lambda: self.settings_asked.emit(self.chat))
        composer.drop_asked.connect(lambda: controller.drop_oldest(self.chat))
        composer.recall.connect(self.view.edit_last)
        self.view.scrolled.connect(self._save_timer.start)
        self.view.edit_draft.connect(self._on_edit_draft)
        controller.activity_changed.connect(self._on_activity)
        controller.path_changed.connect(self._on_activity)
        controller.reply_changed.connect(self._on_reply_changed)
        self._bridge.state.connect(self._on_engine_state)

    def _on_sent(self, text: str) -> None:
        if self._controller.send(self.chat, text):
            self.save_view()
        else:
            self.composer.set_text(text)

    def _on_reply_changed(self, chat: str, _message: str) -> None:
        if chat == self.chat and self.isVisible():
            self._show_context(None)

    def _on_activity(self, chat: str) -> None:
        if chat == self.chat:
            self._follow_reply()

    def _follow_reply(self) -> None:
        live = self._controller.live(self.chat)
        self.composer.set_streaming(live is not None)
        if live is not None and not self.isVisible():
            return
        self._show_context(None)
        if live is None and self.composer.text.strip():
            self._ask_forecast(self.composer.text)

    def _ask_forecast(self, draft: str) -> None:
        if not draft.strip() or not self.isVisible():
            self.composer.show_forecast(None, 0)
            self._show_context(None)
            return
        self._controller.forecast(self.chat, draft, self._on_forecast)

    def _on_engine_state(self, state: EngineState) -> None:
        self._show_context(None)

    def _on_forecast(self, forecast: Forecast | None) -> None:
        if not shiboken6.isValid(self):  # the tab was closed before the answer came
            return
        self.composer.show_forecast(forecast, self._controller.tracker.prefill_rate)
        self._show_context(forecast)

    def _on_edit_draft(self, chat: str, message: str, text: str) -> None:
        if text:
            self._edited = message
            self._controller.forecast(self.chat, text, self._on_edit_forecast, instead_of=message)

    def _on_edit_forecast(self, forecast: Forecast | None) -> None:
        if shiboken6.isValid(self):
            self.view.show_edit_hint(self._edited, forecast)

    def _show_context(self, forecast: Forecast | None) -> None:
        """The engine's own count: of the draft if there is one, else of what the chat holds now."""
        model = self._bridge.engine_state.model
        live = self._controller.live(self.chat)
        used: int | None = None
        if live is not None and live.n_prompt:
            used = live.n_prompt + live.n_gen
        elif forecast is not None:
            used = forecast.n_prompt
        else:
            used = self._controller.tokens_held(self.chat)
        self.composer.show_context(used, model.n_ctx if model else 0)
