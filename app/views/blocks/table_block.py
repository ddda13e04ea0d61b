"""A table whose rows are laid out once: a new row costs only itself, unless a column must become wider."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF
from PySide6.QtGui import QFont, QPainter

from app.markdown.leaves import Rich, TableLeaf
from app.views.blocks.block import Block
from app.views.blocks.host import BlockHost
from app.views.blocks.style import CELL_PAD_X, CELL_PAD_Y, BlockStyle
from app.views.blocks.text_run import Selection, TextRun

WIDE = 100_000.0
MIN_COLUMN = 48.0


class _Row:
    """One row: its cells, how wide each would like to be, and its place."""

    def __init__(self, cells: tuple[Rich, ...], header: bool, leaf: TableLeaf, style: BlockStyle) -> None:
        font = QFont(style.body)
        if header:
            font.setWeight(QFont.Weight.DemiBold)
        self.cells = cells
        self.runs = [TextRun(cell, font, style, align=align) for cell, align in zip(cells, leaf.aligns, strict=False)]
        self.wishes = []
        for run in self.runs:
            run.lay_out(WIDE)
            self.wishes.append(run.natural + 1)
        self.top = 0.0
        self.height = 0.0

    def lay_out(self, widths: list[float]) -> None:
        """Break the cells into lines; a cell that fits and is left-aligned keeps its one line."""
        tallest = 0.0
        for run, width in zip(self.runs, widths, strict=False):
            tallest = max(tallest, run.lay_out(width))
        self.height = tallest + 2 * CELL_PAD_Y


class TableBlock(Block[TableLeaf]):
    """A table with a header; columns share the width by what they hold."""

    def __init__(self, leaf: TableLeaf, style: BlockStyle, host: BlockHost) -> None:
        super().__init__(leaf, style, host)
        self._rows = [_Row(leaf.header, True, leaf, style)]
        self._rows += [_Row(cells, False, leaf, style) for cells in leaf.rows]
        self._widths: list[float] = []
        self._canvas_width = 0.0
        self._dirty_from = 0

    @property
    def text(self) -> str:
        return "\n".join("\t".join(cell.text for cell in row.cells) for row in self._rows)

    @property
    def length(self) -> int:
        return len(self._rows)

    @property
    def natural_width(self) -> float:
        return self.left + sum(self._widths) + 2 * CELL_PAD_X * len(self._widths)

    def update(self, leaf: TableLeaf) -> bool:
        old = self.leaf
        if (leaf.header, leaf.aligns, leaf.indent, leaf.quote) != (old.header, old.aligns, old.indent, old.quote):
            return False
        same = 0
        for mine, theirs in zip(old.rows, leaf.rows, strict=False):
            if mine is not theirs and mine != theirs:
                break
            same += 1
        self.leaf = leaf
        if same < max(len(leaf.rows), len(old.rows)):
            self._rows[1 + same :] = [_Row(cells, False, leaf, self.style) for cells in leaf.rows[same:]]
            self._dirty_from = min(self._dirty_from, 1 + same)
            self.height = 0.0
        return True

    def lay_out(self, width: float) -> None:
        widths = self._share(max(width - self.left, 80.0))
        if widths != self._widths or width != self._canvas_width:
            self._widths, self._canvas_width, self._dirty_from = widths, width, 0
        rows = self._rows
        y = rows[self._dirty_from - 1].top + rows[self._dirty_from - 1].height if self._dirty_from else 1.0
        for row in rows[self._dirty_from :]:
            row.lay_out(widths)
            row.top = y
            y += row.height
        self._dirty_from = len(rows)
        self.height = y + 1
        self.layouts += 1

    def paint(self, painter: QPainter, clip: QRectF, selection: Selection | None) -> None:
        self.paint_frame(painter)
        style = self.style
        width = sum(self._widths) + 2 * CELL_PAD_X * len(self._widths)
        for number, row in enumerate(self._rows):
            if row.top + row.height < clip.top() or row.top > clip.bottom():
                continue
            if number == 0:
                painter.fillRect(QRectF(self.left, row.top, width, row.height), style.raised)
            if selection is not None and selection[0] <= number < selection[1]:
                painter.fillRect(QRectF(self.left, row.top, width, row.height), style.selection)
            painter.fillRect(QRectF(self.left, row.top + row.height - 1, width, 1), style.line)
            painter.setPen(style.text)
            x = self.left
            for run, column in zip(row.runs, self._widths, strict=False):
                run.paint(painter, QPointF(x + CELL_PAD_X, row.top + CELL_PAD_Y), None)
                x += column + 2 * CELL_PAD_X

    def hit(self, point: QPointF) -> int:
        """Tables are selected by whole rows: the offset is a row number."""
        return sum(row.top + row.height / 2 < point.y() for row in self._rows)

    def word_at(self, offset: int) -> Selection:
        row = min(offset, len(self._rows) - 1)
        return row, row + 1

    def link_at(self, point: QPointF) -> str:
        for row in self._rows:
            if not row.top <= point.y() < row.top + row.height:
                continue
            x = self.left + CELL_PAD_X
            for run, column in zip(row.runs, self._widths, strict=False):
                if href := run.link_at(point - QPointF(x, row.top + CELL_PAD_Y)):
                    return href
                x += column + 2 * CELL_PAD_X
        return ""

    def selected(self, selection: Selection) -> str:
        rows = self._rows[selection[0] : selection[1]]
        return "\n".join("\t".join(cell.text.replace("\u2028", " ") for cell in row.cells) for row in rows)

    def _share(self, width: float) -> list[float]:
        """Column widths: what each wishes if all fit, else the wide ones give way first."""
        columns = len(self.leaf.header)
        wishes = [max(row.wishes[c] for row in self._rows if c < len(row.wishes)) for c in range(columns)]
        room = width - 2 * CELL_PAD_X * columns
        if sum(wishes) <= room:
            return wishes
        limit, small, left = room / columns, 0.0, columns
        for wish in sorted(wishes):
            if wish > (room - small) / left:
                limit = (room - small) / left
                break
            small += wish
            left -= 1
        return [max(min(wish, limit), MIN_COLUMN) for wish in wishes]
