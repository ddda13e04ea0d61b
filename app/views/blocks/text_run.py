"""One piece of styled text, broken into lines: what paragraphs and table cells are made of."""

from __future__ import annotations

import math
import re

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QFont, QPainter, QTextCharFormat, QTextLayout, QTextOption

from app.markdown.leaves import Rich, Span, Style, cut_units, units
from app.views.blocks.style import LINE_FACTOR, BlockStyle

Selection = tuple[int, int]
_WORD_END, _WORD_START = re.compile(r"[\w'’]+$"), re.compile(r"[\w'’]+")


class TextRun:
    """Rich text in one width. Offsets are UTF-16 units."""

    def __init__(self, rich: Rich, font: QFont, style: BlockStyle, *, align: str = "") -> None:
        self.rich = rich
        self._style = style
        self._left = align not in ("right", "center")
        self._layout = QTextLayout(rich.text, font)
        option = QTextOption()
        option.setWrapMode(QTextOption.WrapMode.WrapAtWordBoundaryOrAnywhere)
        option.setAlignment(
            {"right": Qt.AlignmentFlag.AlignRight, "center": Qt.AlignmentFlag.AlignHCenter}.get(
                align, Qt.AlignmentFlag.AlignLeft
            )
        )
        self._layout.setTextOption(option)
        self._layout.setFormats(
            [format_range(span.start, span.end, style.format(span.style, font)) for span in rich.spans]
        )
        self._layout.setCacheEnabled(True)
        self.width = -1.0
        self.height = 0.0
        self.natural = 0.0

    @property
    def length(self) -> int:
        """Units of text."""
        return units(self.rich.text)

    def lay_out(self, width: float) -> float:
        """Break into lines for ``width``; returns the height."""
        fits = self._left and self._layout.lineCount() == 1 and self.natural <= width and self.width > 0
        if width == self.width or fits:
            return self.height
        self.width = width
        layout = self._layout
        layout.beginLayout()
        y = natural = 0.0
        while (line := layout.createLine()).isValid():
            line.setLineWidth(width)
            extra = line.height() * (LINE_FACTOR - 1)
            line.setPosition(QPointF(0, y + extra / 2))
            y += line.height() + extra
            natural = max(natural, line.naturalTextWidth())
        layout.endLayout()
        self.height, self.natural = math.ceil(y), natural
        return self.height

    def paint(self, painter: QPainter, at: QPointF, selection: Selection | None) -> None:
        """Draw at ``at``; the painter's pen is the colour of plain text."""
        self._paint_code(painter, at)
        marked = []
        if selection is not None and selection[0] < selection[1]:
            background = QTextCharFormat()
            background.setBackground(self._style.selection)
            marked.append(format_range(*selection, background))
        self._layout.draw(painter, at, marked)

    def hit(self, point: QPointF) -> int:
        """The offset nearest to a point."""
        best = 0
        for index in range(self._layout.lineCount()):
            line = self._layout.lineAt(index)
            best = line.xToCursor(point.x())
            if point.y() < line.y() + line.height():
                break
        return best

    def link_at(self, point: QPointF) -> str:
        """The address of the link under a point, or "" without one."""
        for span in self.rich.spans:
            if span.href and any(rect.contains(point) for rect in self._rects(span)):
                return span.href
        return ""

    def cursor(self) -> QRectF:
        """Where the next character would stand."""
        count = self._layout.lineCount()
        if not count:
            return QRectF(0, 0, 0, self._layout.font().pointSizeF() * 1.6)
        line = self._layout.lineAt(count - 1)
        return QRectF(_x(line.cursorToX(line.textStart() + line.textLength())), line.y(), 0, line.height())

    def word_at(self, offset: int) -> Selection:
        """The word around an offset."""
        before = cut_units(self.rich.text, 0, offset)
        after = cut_units(self.rich.text, offset, self.length)
        head, tail = _WORD_END.search(before), _WORD_START.match(after)
        return offset - units(head.group() if head else ""), offset + units(tail.group() if tail else "")

    def _paint_code(self, painter: QPainter, at: QPointF) -> None:
        spans = [span for span in self.rich.spans if span.style & Style.CODE]
        if not spans:
            return
        painter.save()
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(self._style.line)
        painter.setOpacity(0.75)
        for span in spans:
            for rect in self._rects(span):
                painter.drawRoundedRect(rect.translated(at).adjusted(-2, 0, 2, 0), 3, 3)
        painter.restore()

    def _rects(self, span: Span) -> list[QRectF]:
        found = []
        for index in range(self._layout.lineCount()):
            line = self._layout.lineAt(index)
            start, end = max(span.start, line.textStart()), min(span.end, line.textStart() + line.textLength())
            if start < end:
                left, right = _x(line.cursorToX(start)), _x(line.cursorToX(end))
                found.append(QRectF(min(left, right), line.y(), abs(right - left), line.height()))
        return found


def _x(value: object) -> float:
    return float(value[0] if isinstance(value, tuple) else value)  # type: ignore[arg-type]


def format_range(start: int, end: int, made: QTextCharFormat) -> QTextLayout.FormatRange:
    """A format for units [start, end)."""
    entry = QTextLayout.FormatRange()
    entry.start, entry.length, entry.format = start, end - start, made
    return entry
