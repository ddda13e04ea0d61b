"""The body of a message as a person handles it: selecting across blocks, copying, following links."""

from __future__ import annotations

from bisect import bisect_right

from PySide6.QtCore import QPoint, QPointF, Qt, Signal
from PySide6.QtGui import QContextMenuEvent, QKeyEvent, QKeySequence, QMouseEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from app.text import tr
from app.theme import icon
from app.views.blocks.block import Block
from app.views.blocks.code_block import CodeBlock
from app.views.blocks.column import BlockColumn
from app.views.blocks.text_run import Selection

Place = tuple[int, int]
"""(number of a block, offset in it)."""


class Canvas(BlockColumn):
    """A column of blocks with a selection.

    Signals:
        link_clicked: (address) the person wants to follow a link.
        selecting: a selection began here.
    """

    link_clicked = Signal(str)
    selecting = Signal()

    def __init__(self, parent: QWidget | None = None, *, plain_text: bool = False, surface: str = "background") -> None:
        super().__init__(parent, plain_text=plain_text, surface=surface)
        self._anchor: Place | None = None
        self._head: Place | None = None
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.ClickFocus)
        self.setCursor(Qt.CursorShape.IBeamCursor)

    def selected_text(self) -> str:
        """What is selected: whole blocks as they were written, parts of blocks as they are shown."""
        span = self._span()
        if span is None:
            return ""
        (first, begin), (last, end) = span
        parts = []
        for number in range(first, last + 1):
            block = self.blocks[number]
            start = begin if number == first else 0
            stop = end if number == last else block.length
            whole = start == 0 and stop >= block.length and first != last and not self._plain
            leaf = block.leaf
            parts.append(
                self._stream.source[leaf.start : leaf.end].rstrip("\n") if whole else block.selected((start, stop))
            )
        return ("\n" if self._plain else "\n\n").join(parts)

    def clear_selection(self) -> None:
        """Select nothing."""
        self._select(None, None)

    def select_all(self) -> None:
        """Select everything."""
        if self.blocks:
            self._select((0, 0), (len(self.blocks) - 1, self.blocks[-1].length))

    def copy(self) -> None:
        """Put the selection, or everything as it was written, on the clipboard."""
        QApplication.clipboard().setText(self.selected_text() or self.source)

    def selection_in(self, number: int) -> Selection | None:
        """The selected part of a block."""
        span = self._span()
        if span is None or not span[0][0] <= number <= span[1][0]:
            return None
        (first, begin), (last, end) = span
        return (begin if number == first else 0, end if number == last else self.blocks[number].length)

    def _block_at(self, point: QPointF) -> tuple[int, Block, QPointF] | None:
        """(number, block, the point inside it) of the block at or above a point."""
        if not self.blocks:
            return None
        number = max(bisect_right(self._tops, point.y()) - 1, 0)
        block = self.blocks[number]
        return number, block, point - QPointF(0, block.top)

    def _place_at(self, point: QPointF) -> Place | None:
        found = self._block_at(point)
        return (found[0], found[1].hit(found[2])) if found else None

    def _link_at(self, point: QPointF) -> str:
        found = self._block_at(point)
        return found[1].link_at(found[2]) if found else ""

    def _span(self) -> tuple[Place, Place] | None:
        if self._anchor is None or self._head is None or self._anchor == self._head:
            return None
        if max(self._anchor[0], self._head[0]) >= len(self.blocks):
            return None
        return min(self._anchor, self._head), max(self._anchor, self._head)

    def _select(self, anchor: Place | None, head: Place | None) -> None:
        if (anchor, head) != (self._anchor, self._head):
            self._anchor, self._head = anchor, head
            if head is not None:
                self.selecting.emit()
            self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            place = self._place_at(event.position())
            extend = event.modifiers() & Qt.KeyboardModifier.ShiftModifier and self._anchor is not None
            self._select(self._anchor if extend else place, place)
            event.accept()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        if event.buttons() & Qt.MouseButton.LeftButton and self._anchor is not None:
            self._select(self._anchor, self._place_at(event.position()))
        else:
            link = self._link_at(event.position())
            self.setCursor(Qt.CursorShape.PointingHandCursor if link else Qt.CursorShape.IBeamCursor)
            self.setToolTip(link)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        plain_click = event.button() == Qt.MouseButton.LeftButton and self._span() is None
        if plain_click and (link := self._link_at(event.position())):
            self.link_clicked.emit(link)
        event.accept()

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        place = self._place_at(event.position())
        if place is not None:
            begin, end = self.blocks[place[0]].word_at(place[1])
            self._select((place[0], begin), (place[0], end))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        elif event.matches(QKeySequence.StandardKey.SelectAll):
            self.select_all()
        else:
            super().keyPressEvent(event)

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        copy = menu.addAction(icon("copy"), tr("Copy the selection"), self.copy)
        copy.setEnabled(bool(self.selected_text()))
        menu.addAction(tr("Copy all of it"), lambda: QApplication.clipboard().setText(self.source))
        menu.addAction(tr("Select all"), self.select_all)
        if link := self._link_at(QPointF(event.pos())):
            menu.addAction(icon("link"), tr("Copy the link"), lambda: QApplication.clipboard().setText(link))
        menu.popup(event.globalPos())

    def wheelEvent(self, event: QWheelEvent) -> None:
        delta: QPoint = event.pixelDelta() if not event.pixelDelta().isNull() else event.angleDelta() / 2
        sideways = delta.x()
        if event.modifiers() & Qt.KeyboardModifier.ShiftModifier and not sideways:
            sideways = delta.y()
        found = self._block_at(event.position()) if sideways else None
        if found and isinstance(found[1], CodeBlock) and found[1].scroll_by(-sideways):
            event.accept()
        else:
            event.ignore()
