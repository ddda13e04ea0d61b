"""Paragraphs, headings and rules."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFontMetricsF, QPainter

from app.markdown.leaves import RuleLeaf, TextLeaf
from app.views.blocks.block import Block
from app.views.blocks.host import BlockHost
from app.views.blocks.style import LINE_FACTOR, BlockStyle
from app.views.blocks.text_run import Selection, TextRun


class TextBlock(Block[TextLeaf]):
    """A paragraph or a heading."""

    def __init__(self, leaf: TextLeaf, style: BlockStyle, host: BlockHost) -> None:
        super().__init__(leaf, style, host)
        self._font = style.heading(leaf.level)
        self._run = TextRun(leaf.rich, self._font, style)

    @property
    def text(self) -> str:
        return self.leaf.rich.text

    @property
    def length(self) -> int:
        return self._run.length

    @property
    def natural_width(self) -> float:
        return self.left + self._run.natural

    def lay_out(self, width: float) -> None:
        self.height = self._run.lay_out(max(width - self.left, 40.0))
        self.layouts += 1

    def paint(self, painter: QPainter, clip: QRectF, selection: Selection | None) -> None:
        self.paint_frame(painter)
        painter.setPen(self.style.muted if self.leaf.quote else self.style.text)
        self._run.paint(painter, QPointF(self.left, 0), selection)

    def hit(self, point: QPointF) -> int:
        return self._run.hit(point - QPointF(self.left, 0))

    def link_at(self, point: QPointF) -> str:
        return self._run.link_at(point - QPointF(self.left, 0))

    def word_at(self, offset: int) -> Selection:
        return self._run.word_at(offset)

    def cursor(self) -> QRectF:
        return self._run.cursor().translated(self.left, 0)

    def marker_baseline(self) -> float:
        metrics = QFontMetricsF(self._font)
        return metrics.height() * (LINE_FACTOR - 1) / 2 + metrics.ascent()


class RuleBlock(Block[RuleLeaf]):
    """A horizontal line."""

    def lay_out(self, width: float) -> None:
        self.height = 9.0
        self.layouts += 1
        self._width = width

    def paint(self, painter: QPainter, clip: QRectF, selection: Selection | None) -> None:
        self.paint_frame(painter)
        painter.fillRect(QRectF(self.left, 4, max(self._width - self.left, 0), 1), self.style.line)
