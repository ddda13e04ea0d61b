"""A short message at the foot of the window, with at most one thing to do."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QEvent, QObject, QPointF, QSize, Qt, QTimer
from PySide6.QtGui import QEnterEvent, QFont, QFontMetrics, QMouseEvent, QPainter, QPaintEvent, QTextLayout, QTextOption
from PySide6.QtWidgets import QFrame, QHBoxLayout, QSizePolicy, QWidget

from app.theme import Theme
from app.views.parts import link_button

SHOWN_MS = 7000
READ_MS = 40
"""How long a message stays: at least so long, and so long for each of its characters."""
WIDEST = 520
MOST_LINES = 4
"""A longer text ends with an ellipsis; the tooltip has all of it."""
MARGIN = 24


class _Words(QWidget):
    """A few lines of text, broken anywhere where a word (a path, say) is too long for one."""

    def __init__(self) -> None:
        super().__init__()
        self._text = ""
        self._lines: list[str] = []
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def text(self) -> str:
        """All of the text, shown or not."""
        return self._text

    def shown(self) -> list[str]:
        """The lines that are shown."""
        return self._lines

    def show_text(self, text: str, width: int) -> None:
        """Show ``text`` in lines of at most ``width``."""
        self._text = text
        self._lines = _broken(text, self.font(), width)
        metrics = QFontMetrics(self.font())
        widest = max((metrics.horizontalAdvance(line) for line in self._lines), default=0)
        self.setFixedSize(QSize(min(widest + 1, width), metrics.lineSpacing() * max(len(self._lines), 1)))
        self.setToolTip(text if self._lines and self._lines[-1].endswith("…") else "")
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setPen(Theme.current().color("text"))
        metrics = QFontMetrics(self.font())
        for number, line in enumerate(self._lines):
            painter.drawText(QPointF(0, number * metrics.lineSpacing() + metrics.ascent()), line)
        painter.end()


class Toast(QFrame):
    """Appears over its parent and goes by itself or by a click; it stays while the pointer is on it."""

    def __init__(self, parent: QWidget) -> None:
        super().__init__(parent)
        self.setProperty("surface", "card")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.words = _Words()
        self.action = link_button("", self._run)
        self._todo: Callable[[], object] | None = None
        row = QHBoxLayout(self)
        row.setContentsMargins(14, 8, 14, 8)
        row.setSpacing(12)
        row.addWidget(self.words)
        row.addWidget(self.action)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self.hide)
        parent.installEventFilter(self)
        self.hide()

    def say(self, words: str, action: str = "", run: Callable[[], object] | None = None) -> None:
        """Show ``words``, with a button ``action`` that does ``run``."""
        self.action.setText(action)
        self.action.setAccessibleName(action)
        self.action.setVisible(run is not None)
        self._todo = run
        self.setAccessibleName(words)
        self._place(words)
        self.show()
        self.raise_()
        self._timer.start(max(SHOWN_MS, READ_MS * len(words)))

    def _run(self) -> None:
        self.hide()
        if self._todo is not None:
            self._todo()

    def _place(self, words: str) -> None:
        parent = self.parentWidget()
        assert parent is not None
        beside = 2 * MARGIN + 28 + (0 if self._todo is None else self.action.sizeHint().width() + 12)
        self.words.show_text(words, max(min(WIDEST, parent.width() - beside), 80))
        self.adjustSize()
        self.move((parent.width() - self.width()) // 2, parent.height() - self.height() - MARGIN)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Resize and self.isVisible():
            self._place(self.words.text())
        return False

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self.hide()

    def enterEvent(self, event: QEnterEvent) -> None:
        self._timer.stop()

    def leaveEvent(self, event: QEvent) -> None:
        self._timer.start(SHOWN_MS // 2)


def _broken(text: str, font: QFont, width: int) -> list[str]:
    """The first lines of a text, the last one with an ellipsis where that is not all."""
    line_text = " ".join(text.split())
    layout = QTextLayout(line_text, font)
    option = QTextOption()
    option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
    layout.setTextOption(option)
    layout.beginLayout()
    lines: list[str] = []
    while (line := layout.createLine()).isValid():
        line.setLineWidth(width)
        start, length = line.textStart(), line.textLength()
        if len(lines) == MOST_LINES - 1:
            rest = line_text[start:]
            lines.append(QFontMetrics(font).elidedText(rest, Qt.TextElideMode.ElideRight, width))
            break
        lines.append(line_text[start : start + length].rstrip())
    layout.endLayout()
    return lines
