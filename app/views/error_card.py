"""What a chat shows when a reply failed: what happened, and what to do next."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout, QWidget

from app.views.error_words import step_words, words_for
from app.views.parts import label


class ErrorCard(QFrame):
    """A readable card inside the chat that failed.

    Signals:
        step_chosen: (NextStep) the person chose what to do.
    """

    step_chosen = Signal(str)

    def __init__(self, code: str, sentence: str, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        words = words_for(code)
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
        row = QHBoxLayout()
        row.setSpacing(8)
        self.buttons: dict[str, QPushButton] = {}
        for number, step in enumerate(words.steps):
            button = QPushButton(step_words(step))
            if number == 0:
                button.setProperty("variant", "primary")
            button.clicked.connect(lambda _=False, chosen=step: self.step_chosen.emit(chosen))
            self.buttons[step] = button
            row.addWidget(button)
        row.addStretch(1)
        box.addLayout(row)

    def height_for(self, width: int) -> int:
        """The height it needs in this width."""
        layout = self.layout()
        return layout.heightForWidth(width) if layout is not None else 0
