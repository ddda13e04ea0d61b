"""Sentences above the chats that stay until they are dealt with."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QFrame, QHBoxLayout, QVBoxLayout, QWidget

from app.text import tr
from app.views.parts import label, link_button, tool_button


class Notice(QFrame):
    """One sentence with at most one thing to do, and a way to put it away."""

    def __init__(
        self, words: str, close: Callable[[], object], action: str = "", run: Callable[[], object] | None = None
    ) -> None:
        super().__init__()
        self.setProperty("surface", "warning")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setAccessibleName(words)
        self.words = label(words, wrap=True)
        self.words.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.action = None if run is None else link_button(action, run)
        self.close_button = tool_button("close", tr("Put this message away"), close)
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 6, 6, 6)
        row.setSpacing(12)
        row.addWidget(self.words, 1)
        if self.action is not None:
            row.addWidget(self.action)
        row.addWidget(self.close_button)


class NoticeBar(QWidget):
    """The notices, one per key; takes no room without any."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.shown: dict[str, Notice] = {}
        self.setProperty("surface", "background")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._box = QVBoxLayout(self)
        self._box.setContentsMargins(12, 8, 12, 4)
        self._box.setSpacing(6)
        self.hide()

    def say(self, key: str, words: str, action: str = "", run: Callable[[], object] | None = None) -> None:
        """Show ``words`` in place of what was said under ``key``; "" takes it away."""
        self.clear(key)
        if words:
            notice = Notice(words, lambda: self.clear(key), action, run)
            self.shown[key] = notice
            self._box.addWidget(notice)
            self.show()

    def clear(self, key: str) -> None:
        """Take a notice away."""
        notice = self.shown.pop(key, None)
        if notice is not None:
            notice.hide()
            self._box.removeWidget(notice)
            notice.deleteLater()
        self.setVisible(bool(self.shown))
