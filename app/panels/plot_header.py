"""The line over a plot: its name, and on the right the values of now or under the cursor, painted in one go.

The values change several times a second; labels in a layout would lay the whole dock out anew each time.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.theme import Theme

_MARK, _GAP = 9.0, 9.0


class PlotHeader(QWidget):
    """``marks`` are colour tokens for the values' legend marks; an empty one: no mark."""

    def __init__(self, title: str, marks: Sequence[str]) -> None:
        super().__init__()
        self._title, self._marks = title, tuple(marks)
        self.when = ""
        self.values: tuple[str, ...] = ("",) * len(self._marks)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(title)
        Theme.current().changed.connect(self.update)

    def say(self, when: str, values: Sequence[str]) -> None:
        """Show values, and when they were (empty: now)."""
        if (when, tuple(values)) != (self.when, self.values):
            self.when, self.values = when, tuple(values)
            words = ", ".join(v for v in (when, *values) if v)
            self.setAccessibleDescription(words)
            self.setToolTip(words)
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(160, round(QFontMetricsF(Theme.current().font("title")).height()) + 3)

    def minimumSizeHint(self) -> QSize:
        return QSize(60, self.sizeHint().height())

    def _fitting(self, metrics: QFontMetricsF, room: float) -> list[tuple[str, str, float]]:
        """(words, mark, width) of what is shown; where room is short the marked values lose all but their number."""

        def measured(values: Sequence[str]) -> list[tuple[str, str, float]]:
            items = zip((self.when, *values), ("", *self._marks), strict=True)
            return [(w, m, metrics.horizontalAdvance(w) + (_MARK + 4 if m else 0)) for w, m in items if w]

        shown = measured(self.values)
        if sum(width + _GAP for _, _, width in shown) - _GAP > room:
            shown = measured([w.split()[0] if m and w else w for w, m in zip(self.values, self._marks, strict=True)])
        while shown and sum(width + _GAP for _, _, width in shown) - _GAP > room:
            del shown[0]
        return shown

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font("title"))
        painter.setPen(theme.color("text"))
        middle = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(QRectF(self.rect()), middle, self._title)
        left = painter.fontMetrics().horizontalAdvance(self._title) + _GAP
        painter.setFont(theme.font("caption"))
        metrics = QFontMetricsF(painter.font())
        x = float(self.width())
        for words, mark, needed in self._fitting(metrics, x - left)[::-1]:
            x -= needed
            if mark:
                painter.setPen(Qt.PenStyle.NoPen)
                painter.setBrush(theme.color(mark))
                painter.drawRoundedRect(QRectF(x, (self.height() - _MARK) / 2, _MARK, _MARK), 1.5, 1.5)
            painter.setPen(theme.color("muted"))
            start = x + (_MARK + 4 if mark else 0)
            painter.drawText(QRectF(start, 0, needed, self.height()), middle, words)
            x -= _GAP
        painter.end()
