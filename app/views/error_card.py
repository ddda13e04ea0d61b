"""What a chat shows when a reply failed: what happened, and what to do next."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QFrame, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from app.views.error_words import step_words, words_for
from app.views.parts import flow, label


class _Row(QWidget):
    """Buttons beside each other, on more lines where there is no room."""

    def __init__(self, buttons: Sequence[QWidget]) -> None:
        super().__init__()
        self._buttons = buttons
        for button in buttons:
            button.setParent(self)
        policy = QSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def sizeHint(self) -> QSize:
        return QSize(0, self.heightForWidth(max(self.width(), 1)))

    def heightForWidth(self, width: int) -> int:
        return flow(self._buttons, width, gap=8, row_gap=8)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        flow(self._buttons, self.width(), gap=8, row_gap=8)


class ErrorCard(QFrame):
    """A readable card inside the chat that failed.

    Signals:
        step_chosen: (NextStep) the person chose what to do.
    """

    step_chosen = Signal(str)

    def __init__(self, code: str, sentence: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        words = words_for(code)
        sentence = sentence or words.body
        self.setProperty("surface", "why")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(f"{words.title}. {sentence}")
        box = QVBoxLayout(self)
        box.setContentsMargins(14, 10, 12, 10)
        box.setSpacing(6)
        box.addWidget(label(words.title, "heading"))
        body = label(sentence, wrap=True)
        body.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        box.addWidget(body)
        self.buttons: dict[str, QPushButton] = {}
        for number, step in enumerate(words.steps):
            button = QPushButton(step_words(step))
            if number == 0:
                button.setProperty("variant", "primary")
            button.clicked.connect(lambda _=False, chosen=step: self.step_chosen.emit(chosen))
            self.buttons[step] = button
        box.addWidget(_Row(list(self.buttons.values())))

    def height_for(self, width: int) -> int:
        """The height it needs in this width."""
        return self.heightForWidth(width)
