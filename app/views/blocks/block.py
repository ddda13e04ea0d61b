"""What every block of a canvas can do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Generic, TypeVar

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QPainter

from app.markdown.leaves import Leaf, cut_units
from app.views.blocks.host import BlockHost
from app.views.blocks.style import INDENT, QUOTE, BlockStyle
from app.views.blocks.text_run import Selection

L = TypeVar("L", bound=Leaf)


class Block(ABC, Generic[L]):
    """One laid-out block. ``top`` is set by the canvas; offsets are UTF-16 units of ``text``.

    ``layouts`` counts how often it was laid out: a finished block must not be laid out again while others grow.
    """

    def __init__(self, leaf: L, style: BlockStyle, host: BlockHost) -> None:
        self.leaf = leaf
        self.style = style
        self.host = host
        self.top = 0.0
        self.height = 0.0
        self.layouts = 0

    @property
    def left(self) -> float:
        """Where its content begins, after the room for lists and quotes."""
        return self.leaf.indent * INDENT + self.leaf.quote * QUOTE

    @property
    def text(self) -> str:
        """What can be selected."""
        return ""

    @property
    def length(self) -> int:
        """Units of ``text``."""
        return 0

    @property
    def natural_width(self) -> float:
        """The width it would take without a limit, after it was laid out."""
        return 0.0

    def update(self, leaf: L) -> bool:
        """Take up a grown leaf in place; False where a new block must be made."""
        if leaf == self.leaf:
            self.leaf = leaf
            return True
        return False

    @abstractmethod
    def lay_out(self, width: float) -> None:
        """Compute ``height`` for a canvas of this width."""

    @abstractmethod
    def paint(self, painter: QPainter, clip: QRectF, selection: Selection | None) -> None:
        """Draw with the block's top left at the origin; ``clip`` in the same coordinates."""

    def hit(self, point: QPointF) -> int:
        """The offset nearest to a point."""
        return 0

    def link_at(self, point: QPointF) -> str:
        """The address under a point, or ""."""
        return ""

    def word_at(self, offset: int) -> Selection:
        """The word around an offset."""
        return (offset, offset)

    def cursor(self) -> QRectF | None:
        """Where text that is being written goes on, or None where nothing can."""
        return None

    def place(self) -> None:
        """Move the widgets that belong to the block; called when it moved or grew."""

    def drop(self) -> None:
        """Delete the widgets that belong to the block."""

    def selected(self, selection: Selection) -> str:
        """The text in a selection."""
        return cut_units(self.text, *selection).replace("\u2028", "\n")

    def paint_frame(self, painter: QPainter) -> None:
        """The marker of a list item and the bars of quotes."""
        leaf, style = self.leaf, self.style
        for depth in range(leaf.quote):
            painter.fillRect(QRectF(leaf.indent * INDENT + depth * QUOTE + 2, 0, 3, self.height), style.line)
        if leaf.marker:
            painter.setPen(style.muted)
            painter.setFont(style.body)
            baseline = self.marker_baseline()
            width = painter.fontMetrics().horizontalAdvance(leaf.marker)
            painter.drawText(QPointF(self.left - 8 - width, baseline), leaf.marker)

    def marker_baseline(self) -> float:
        """The baseline of the first line."""
        return 16.0
