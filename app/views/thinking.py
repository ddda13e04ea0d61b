"""The folded thinking of a reply."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QToolButton, QWidget

from app.text import tr
from app.theme import icon
from app.views.blocks.canvas import Canvas

INSET = 14


class ThinkingFold(QWidget):
    """A line that opens to show what the model thought.

    Signals:
        height_changed: it needs another height now.
    """

    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.button = QToolButton(self)
        self.button.setCheckable(True)
        self.button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.button.setIconSize(QSize(14, 14))
        self.button.setProperty("quiet", True)
        self.button.toggled.connect(self._on_toggled)
        self.canvas = Canvas(self)
        self.canvas.set_text("", growing=True)
        self.canvas.height_changed.connect(self.height_changed)
        self.canvas.hide()
        self.set_open_end(True)

    def set_open_end(self, on: bool) -> None:
        """Whether the model is still thinking."""
        self.button.setText(tr("Thinking…") if on else tr("Thought"))
        self.button.setAccessibleName(tr("Show or hide the thinking"))
        self.button.setIcon(icon("thinking"))
        if not on:
            self.canvas.finish()

    def height_for(self, width: int) -> int:
        """Place the parts for this width; returns the height."""
        size = self.button.sizeHint()
        self.button.setGeometry(0, 0, size.width(), size.height())
        if self.canvas.isHidden():
            return size.height()
        height = self.canvas.height_for(width - INSET)
        self.canvas.setGeometry(INSET, size.height() + 4, width - INSET, height)
        return size.height() + 4 + height

    def _on_toggled(self, on: bool) -> None:
        self.canvas.setVisible(on)
        self.height_changed.emit()
