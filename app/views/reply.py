"""A reply in the chat: its text, its error if it failed, and its footer."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QApplication, QWidget

from app.state.document import Message
from app.state.reply_tracker import LiveReply
from app.views.error_card import ErrorCard
from app.views.footer import Footer, Place
from app.views.reply_text import ReplyText
from engine.port import EngineState

FOOTER_GAP = 6
WIDTH_STEP = 8
"""Text is broken for widths in steps of so many pixels: a long chat is not laid out anew for every pixel."""
TEXT_SHARE = 0.93
"""Text is a little narrower than the column, so that replies and bubbles do not share their right edge."""


class ReplyView(QWidget):
    """Shows one assistant message.

    Signals:
        height_changed: it needs another height now.
        why_asked, chain_asked, regenerate_asked, continue_asked: (message) from the footer.
        version_asked: (message, step) from the footer.
        step_chosen: (message, NextStep) from the error card.
        link_clicked: (address).
        selecting: a selection began in this message.
    """

    height_changed = Signal()
    why_asked = Signal(str)
    chain_asked = Signal(str)
    regenerate_asked = Signal(str)
    continue_asked = Signal(str)
    version_asked = Signal(str, int)
    step_chosen = Signal(str, str)
    link_clicked = Signal(str)
    selecting = Signal()

    def __init__(self, message: Message, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self.card: ErrorCard | None = None
        self.text = ReplyText(self)
        self.text.height_changed.connect(self.height_changed)
        self.canvas = self.text.canvas
        self.canvas.link_clicked.connect(self.link_clicked)
        self.canvas.selecting.connect(self.selecting)
        self.footer = Footer(self)
        actions = self.footer.actions_row
        self.footer.why_asked.connect(lambda: self.why_asked.emit(self.message.id))
        self.footer.chain_asked.connect(lambda: self.chain_asked.emit(self.message.id))
        actions.regenerate_asked.connect(lambda: self.regenerate_asked.emit(self.message.id))
        actions.continue_asked.connect(lambda: self.continue_asked.emit(self.message.id))
        actions.version_asked.connect(lambda step: self.version_asked.emit(self.message.id, step))
        actions.copy_asked.connect(lambda: QApplication.clipboard().setText(self.message.text))
        actions.raw_toggled.connect(self._on_raw)
        self.text.begins_inside = message.reasoning_open
        self.text.set_text(message.text, growing=message.is_open)

    @property
    def busy(self) -> bool:
        """Whether text waits to be shown."""
        return self.text.busy

    def append(self, text: str) -> None:
        """Text was added to the message."""
        self.text.begins_inside = self.message.reasoning_open
        self.text.append(text)

    def refresh(self) -> None:
        """Show what was added."""
        self.text.refresh()

    def show_state(self, live: LiveReply | None, state: EngineState, place: Place) -> None:
        """Follow the message's status and figures."""
        if live is not None:
            self._show_error(None)
            self.text.resume()
            self.footer.show_progress(live, state)
        else:
            self.text.finish()
            self._show_error(self.message if self.message.status == "failed" else None)
            self.footer.show_message(self.message, place)
        self.setAccessibleName(self.message.text[:200])
        self.height_changed.emit()

    def height_for(self, width: int) -> int:
        """Place the parts for this width; returns the height."""
        y = 0
        if self.message.text or self.message.is_open:
            text_width = round(width * TEXT_SHARE) // WIDTH_STEP * WIDTH_STEP
            height = self.text.height_for(text_width)
            self.text.setGeometry(0, 0, text_width, height)
            self.text.show()
            y = height + FOOTER_GAP
        else:
            self.text.hide()
        if self.card is not None:
            height = self.card.height_for(width)
            self.card.setGeometry(0, y, width, height)
            self.card.show()
            y += height + FOOTER_GAP
        height = self.footer.height_for(width)
        self.footer.setGeometry(0, y, width, height)
        return y + height

    def _show_error(self, failed: Message | None) -> None:
        if self.card is not None:
            self.card.hide()
            self.card.deleteLater()
            self.card = None
        if failed is not None:
            self.card = ErrorCard(failed.error_code, failed.error, self)
            self.card.step_chosen.connect(lambda step: self.step_chosen.emit(self.message.id, step))

    def _on_raw(self, on: bool) -> None:
        self.text.set_plain(on)
        self.height_changed.emit()
