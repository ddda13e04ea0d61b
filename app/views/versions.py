"""‹ 2 of 3 ›: which version of a message is shown."""

from __future__ import annotations

from PySide6.QtCore import QSize, Signal
from PySide6.QtWidgets import QHBoxLayout, QWidget

from app.text import tr
from app.views.parts import label, tool_button


class VersionSwitch(QWidget):
    """Steps through the versions of a message; hidden while there is only one.

    Signals:
        step: (1 or -1) show the next or the previous version.
    """

    step = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(0)
        self.back = tool_button("chevron-left", tr("Previous version"), lambda: self.step.emit(-1))
        self.words = label("", "caption")
        self.forth = tool_button("chevron-right", tr("Next version"), lambda: self.step.emit(1))
        for widget in (self.back, self.words, self.forth):
            row.addWidget(widget)
        for button in (self.back, self.forth):
            button.setIconSize(QSize(12, 12))

    def show_place(self, position: int, count: int) -> None:
        """``position`` counts from 0."""
        self.setVisible(count > 1)
        self.words.setText(tr("{n} of {total}", n=position + 1, total=count))
        self.back.setEnabled(position > 0)
        self.forth.setEnabled(position + 1 < count)
