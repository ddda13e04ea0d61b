"""A short message at the foot of the window, with at most one thing to do."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, Qt, QTimer
from PySide6.QtWidgets import QFrame, QHBoxLayout, QWidget

from app.views.parts import label, link_button

SHOWN_MS = 7000


class Toast(QFrame):
    """Appears over its parent and goes by itself."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setProperty("surface", "card")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.words = label()
        self.action = link_button("", self._run)
        self._todo: Callable[[], object] | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 8, 14, 8)
        row.setSpacing(12)
        row.addWidget(self.words)
        row.addWidget(self.action)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SHOWN_MS)
        self._timer.timeout.connect(self.hide)
        parent.installEventFilter(self)
        self.hide()

    def say(self, words: str, action: str = "", run: Callable[[], object] | None = None) -> None:
        """Show ``words``, with a button ``action`` that does ``run``."""
        self.words.setText(words)
        self.action.setText(action)
        self.action.setAccessibleName(action)
        self.action.setVisible(run is not None)
        self._todo = run
        self.setAccessibleName(words)
        self.show()
        self._place()
        self.raise_()
        self._timer.start()

    def _run(self) -> None:
        self.hide()
        if self._todo is not None:
            self._todo()

    def _place(self) -> None:
        parent = self.parentWidget()
        if parent is not None:
            self.adjustSize()
            self.move((parent.width() - self.width()) // 2, parent.height() - self.height() - 24)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._place()
        return False
