"""Where the person types: Enter sends, Shift+Enter breaks the line, Esc stops the reply."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, QTimer, Signal
from PySide6.QtGui import QFocusEvent, QKeyEvent, QResizeEvent
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPlainTextEdit, QPushButton, QVBoxLayout, QWidget

from app.panels.parts import QuietText
from app.text import tr
from app.theme import Theme, icon
from app.views.figures import duration
from app.views.parts import link_button, tool_button
from app.views.progress import ContextMeter
from engine.port import Forecast

MAX_LINES = 9
NEARLY_FULL = 0.85
FORECAST_MS = 180
"""How long typing must pause before a forecast is asked for."""


class _Input(QPlainTextEdit):
    """A text field as high as its text.

    Signals:
        submitted: Enter. escaped: Esc.
        focus_changed: (on).
        recall: Up in an empty field.
    """

    submitted = Signal()
    escaped = Signal()
    focus_changed = Signal(bool)
    recall = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("flat", True)
        self.setTabChangesFocus(True)
        self.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setPlaceholderText(tr("Write a message"))
        self.setAccessibleName(tr("Message"))
        self.document().setDocumentMargin(2)
        self.document().documentLayout().documentSizeChanged.connect(lambda: self._fit())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        modifiers = event.modifiers() & ~Qt.KeyboardModifier.KeypadModifier
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not modifiers:
            self.submitted.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.escaped.emit()
        elif event.key() in (Qt.Key.Key_PageUp, Qt.Key.Key_PageDown) and not modifiers:
            event.ignore()
        elif event.key() == Qt.Key.Key_Up and not modifiers and not self.toPlainText():
            self.recall.emit()
        else:
            super().keyPressEvent(event)

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focus_changed.emit(True)

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.focus_changed.emit(False)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit()

    def _fit(self) -> None:
        lines = self.document().documentLayout().documentSize().height()
        shown = min(max(round(lines), 1), MAX_LINES)
        height = self.fontMetrics().lineSpacing() * shown + 8
        policy = Qt.ScrollBarPolicy.ScrollBarAsNeeded if lines > MAX_LINES else Qt.ScrollBarPolicy.ScrollBarAlwaysOff
        if self.verticalScrollBarPolicy() != policy:
            self.setVerticalScrollBarPolicy(policy)
        if self.height() != height:
            self.setFixedHeight(height)


class Composer(QFrame):
    """The input of one chat.

    Signals:
        sent: (text) the person wants to send this now.
        stopped: the person wants the reply to stop.
        draft_changed: (text) after a short pause in typing.
        settings_asked: the person wants this chat's settings.
        recall: edit the last message (Up in an empty field).
        drop_asked: leave out the oldest turns now (offered when the context is nearly full).
    """

    drop_asked = Signal()
    sent = Signal(str)
    stopped = Signal()
    draft_changed = Signal(str)
    settings_asked = Signal()
    recall = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._streaming = False
        self._waiting = False
        self._context_known = self._context_full = False
        self._context_size = 0
        self.setProperty("surface", "composer")
        self.input = _Input()
        self.input.submitted.connect(self._on_send)
        self.input.escaped.connect(self._on_escape)
        self.input.recall.connect(self.recall)
        self.input.focus_changed.connect(self._on_focus)
        self.input.textChanged.connect(self._on_text)
        self.hint = QuietText()
        self._stretch = QWidget()
        self.context = QuietText(align=Qt.AlignmentFlag.AlignRight)
        self.meter = ContextMeter()
        self.drop = link_button(tr("leave out oldest turns"), self.drop_asked.emit)
        self.drop.setFont(Theme.current().font("caption"))
        self.options = tool_button("settings", tr("System prompt and sampling of this chat"), self.settings_asked.emit)
        self.stop = QPushButton(tr("Stop  Esc"))
        self.stop.setAccessibleName(tr("Stop the reply"))
        self.stop.clicked.connect(self.stopped)
        self.send = QPushButton(tr("Send"))
        self.send.setProperty("variant", "primary")
        self.send.setIcon(icon("send", "on_accent", "on_accent"))
        self.send.setIconSize(QSize(14, 14))
        self.send.setLayoutDirection(Qt.LayoutDirection.RightToLeft)
        self.send.clicked.connect(self._on_send)
        self._lay_out()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(FORECAST_MS)
        self._timer.timeout.connect(lambda: self.draft_changed.emit(self.text))
        self.setFocusProxy(self.input)
        self.stop.hide()
        self._label_send()

    @property
    def text(self) -> str:
        """What is typed."""
        return self.input.toPlainText()

    @property
    def waiting(self) -> bool:
        """Whether the text is sent when the running reply ends."""
        return self._waiting

    def set_text(self, text: str) -> None:
        """Put a draft back."""
        self.input.setPlainText(text)
        self.input.moveCursor(self.input.textCursor().MoveOperation.End)

    def set_streaming(self, on: bool) -> None:
        """A reply is being written; when it ends, text that waits is sent."""
        if on == self._streaming:
            return
        self._streaming = on
        self.stop.setVisible(on)
        if not on and self._waiting:
            self._set_waiting(False)
            self._on_send()
        self._label_send()

    def show_forecast(self, forecast: Forecast | None, tokens_per_s: float) -> None:
        """What sending the draft would reuse."""
        if self._waiting:
            return
        if forecast is None or not self.text.strip():
            self.hint.setText("")
            return
        words = tr("reuses {cached:,} of {total:,} tokens", cached=forecast.n_cached, total=forecast.n_prompt)
        rest = forecast.n_prompt - forecast.n_cached
        if tokens_per_s > 0:
            words += " · " + tr("about {time}", time=duration(rest / tokens_per_s))
        self.hint.setText(words)

    def show_context(self, used: int | None, size: int) -> None:
        """How full the context is; None: not known. Called for every frame of a reply: nothing is laid out for it."""
        known = used is not None and size > 0
        full = used is not None and size > 0 and used >= NEARLY_FULL * size
        if (known, full, size) != (self._context_known, self._context_full, self._context_size):
            self._context_known, self._context_full, self._context_size = known, full, size
            widest = self.fontMetrics().horizontalAdvance(_context_words(size, size))
            self.context.setFixedWidth(widest)
            self._fit_row()
        if used is not None and size > 0:
            words = _context_words(used, size)
            self.context.setText(words)
            self.meter.setAccessibleName(words)
            self.meter.set_share(used / size)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_row()

    def minimumSizeHint(self) -> QSize:
        return QSize(160, super().minimumSizeHint().height())

    def _fit_row(self) -> None:
        """In a narrow pane the figures go, the buttons stay."""
        width = self.width()
        self.hint.setVisible(width >= 380)
        self._stretch.setVisible(width < 380)
        self.context.setVisible(self._context_known and width >= 560)
        self.meter.setVisible(self._context_known and width >= 460)
        self.drop.setVisible(self._context_full and width >= 560)

    def _lay_out(self) -> None:
        box = QVBoxLayout(self)
        box.setContentsMargins(12, 10, 12, 10)
        box.setSpacing(6)
        box.addWidget(self.input)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self.options)
        row.addWidget(self.hint, 1)
        row.addWidget(self._stretch, 1)
        row.addWidget(self.context)
        row.addWidget(self.meter)
        row.addWidget(self.drop)
        row.addSpacing(8)
        row.addWidget(self.stop)
        row.addWidget(self.send)
        box.addLayout(row)

    def _on_send(self) -> None:
        if not self.text.strip():
            return
        if self._streaming:
            self._set_waiting(not self._waiting)
            return
        text = self.text
        self.input.clear()
        self._timer.stop()
        self.hint.setText("")
        self.sent.emit(text)

    def _on_escape(self) -> None:
        if self._waiting:
            self._set_waiting(False)
        elif self._streaming:
            self.stopped.emit()

    def _set_waiting(self, on: bool) -> None:
        self._waiting = on
        self.hint.setText(tr("sends when this reply ends · Esc takes it back") if on else "")
        self._label_send()

    def _label_send(self) -> None:
        self.send.setText(tr("Send next") if self._streaming and not self._waiting else tr("Send"))
        self.send.setEnabled(bool(self.text.strip()) and not self._waiting)

    def _on_text(self) -> None:
        if self._waiting and not self.text.strip():
            self._set_waiting(False)
        self._label_send()
        self._timer.start()

    def _on_focus(self, on: bool) -> None:
        self.setProperty("focused", on)
        self.style().unpolish(self)
        self.style().polish(self)


def _context_words(used: int, size: int) -> str:
    return tr("context {used:,} / {size:,}", used=used, size=size)
