"""The page map: one painted cell per page of the pool."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
from PySide6.QtCore import QEvent, QPoint, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleEvent,
    QColor,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QWheelEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.panels import page_atlas
from app.panels.page_atlas import MapImage
from app.panels.parts import paint_focus
from app.text import tr
from app.theme import Theme
from engine.port import Snapshot

_MIN_PITCH, _MAX_PITCH, _FIT_HEIGHT = 3, 12, 320
_FEW = 288
"""A pool of this many pages is drawn whole, used or not."""
_STATE_WORDS = ("free", "active", "shared", "cached")


class PageMap(QWidget):
    """Every page as a cell, as large as fits; Ctrl+wheel, + and - zoom, arrow keys move, Enter selects.

    Signals:
        hovered(page): the cursor or the keyboard reached another page; -1 when it left.
        clicked(page): a page was chosen; -1 when the choice was given up with Escape.
    """

    hovered = Signal(int)
    clicked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cells = np.zeros(0, np.uint8)
        self._lit: np.ndarray | None = None
        self._current = -1
        self._under = -1
        self._zoom = 1.0
        self._shown = 0
        self._folds = True
        self._image = MapImage()
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.setAccessibleName(tr("Page map"))
        self.setAccessibleDescription(tr("One cell per page of KV memory; arrow keys move, Enter selects"))
        Theme.current().changed.connect(self._on_theme)

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Show a new state of the pool."""
        cells = page_atlas.codes(snapshot)
        if len(cells) != len(self._cells):
            self._current, self._lit, self._shown = -1, None, 0
        elif np.array_equal(cells, self._cells):
            return
        self._cells = cells
        self._fit_shown()
        self.update()

    @property
    def n_folded(self) -> int:
        """Free pages at the end of the pool that no one has used yet and that are not drawn."""
        return len(self._cells) - self._shown

    def set_folding(self, folds: bool) -> None:
        """Leave out the unused end of the pool, or draw every page."""
        self._folds = folds
        self._shown = 0
        self._fit_shown()
        self.update()

    def _fit_shown(self) -> None:
        """Draw up to the last page in use, with room to grow; what was drawn once stays drawn."""
        used = np.flatnonzero(self._cells != page_atlas.FREE)
        wanted = _FEW
        while self._folds and len(used) and wanted <= used[-1]:
            wanted = wanted * 3 // 2
        n = len(self._cells)
        shown = max(self._shown, n if not self._folds or wanted * 5 // 4 >= n else wanted)
        if shown != self._shown:
            self._shown = shown
            self.updateGeometry()

    def light(self, pages: Collection[int] | None) -> None:
        """Dim all pages but these; None: show all alike."""
        self._lit = None
        if pages is not None:
            self._lit = np.full(len(self._cells), page_atlas.DIMMED, np.uint8)
            self._lit[[p for p in pages if p < len(self._cells)]] = 0
        self.update()

    @property
    def current(self) -> int:
        """The page that the frame is on, -1 without one."""
        return self._current

    def set_current(self, page: int) -> None:
        """Put the frame on a page; -1 takes it away."""
        self._current = page
        self._announce()
        self.update()

    def state_of(self, page: int) -> str:
        """A page's state in words."""
        kind = int(self._cells[page]) & 7
        words = tr(_STATE_WORDS[kind] if kind < page_atlas.PART else "active, partly filled")
        return tr("{state}, pinned", state=words) if self._cells[page] & page_atlas.PINNED else words

    def page_at(self, position: QPointF) -> int:
        """The page under a point of the widget, -1 without one."""
        columns, pitch = self._layout(self.width())
        column, row = int(position.x() // pitch), int(position.y() // pitch)
        page = row * columns + column
        inside = 0 <= column < columns and row >= 0 and page < self._shown
        return page if inside else -1

    def cell_rect(self, page: int) -> QRect:
        """Where a page is painted, in logical pixels."""
        columns, pitch = self._layout(self.width())
        row, column = divmod(page, columns)
        left, top = round(column * pitch), round(row * pitch)
        return QRect(left, top, max(2, round(pitch * 0.84)), max(2, round(pitch * 0.84)))

    def _layout(self, width: int) -> tuple[int, float]:
        """Columns and pitch in logical pixels (a whole number of device pixels)."""
        n, ratio = max(1, self._shown), self.devicePixelRatioF()
        pitch = _MAX_PITCH
        while pitch > _MIN_PITCH and math.ceil(n / max(1, width // pitch)) * pitch > _FIT_HEIGHT:
            pitch -= 1
        exact = max(2, round(pitch * self._zoom * ratio)) / ratio
        return max(1, int((width + 1) // exact)), exact

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        columns, pitch = self._layout(width)
        return math.ceil(math.ceil(max(1, self._shown) / columns) * pitch)

    def sizeHint(self) -> QSize:
        return QSize(288, self.heightForWidth(max(288, self.width())))

    def minimumSizeHint(self) -> QSize:
        return QSize(120, 24)

    def paintEvent(self, event: QPaintEvent) -> None:
        if not len(self._cells):
            return
        theme, ratio = Theme.current(), self.devicePixelRatioF()
        columns, pitch = self._layout(self.width())
        cells = self._cells if self._lit is None else self._cells | self._lit
        image = self._image.compose(cells[: self._shown], columns, round(pitch * ratio), theme)
        image.setDevicePixelRatio(ratio)
        painter = QPainter(self)
        painter.drawImage(0, 0, image)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if self._under >= 0 and self._under != self._current:
            self._frame(painter, self._under, theme.color("muted"), 1.2)
        if self._current >= 0:
            self._frame(painter, self._current, theme.color("text"), 1.8)
        paint_focus(painter, self)
        painter.end()

    def _frame(self, painter: QPainter, page: int, color: QColor, width: float) -> None:
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(color, width))
        grow = 1.2
        painter.drawRoundedRect(QRectF(self.cell_rect(page)).adjusted(-grow, -grow, grow, grow), 3, 3)

    def _on_theme(self) -> None:
        self._image.invalidate()
        self.update()

    def _announce(self) -> None:
        if self._current < 0 or self._current >= len(self._cells):
            return
        self.setAccessibleDescription(tr("Page {n:,}: {state}", n=self._current, state=self.state_of(self._current)))
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.DescriptionChanged))

    def _hover(self, page: int) -> None:
        if page != self._under:
            self._under = page
            self.hovered.emit(page)
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hover(self.page_at(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(-1)

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton:
            page = self.page_at(event.position())
            self.set_current(page)
            self.clicked.emit(page)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.zoom(1.25 if event.angleDelta().y() > 0 else 0.8)
            event.accept()
        else:
            event.ignore()

    def zoom(self, factor: float) -> None:
        """Make the cells larger or smaller, from fitting up to sixteen times that."""
        self._zoom = min(16.0, max(1.0, self._zoom * factor))
        self.updateGeometry()
        self.update()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        if self._move(key):
            return
        if key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and self._current >= 0:
            self.clicked.emit(self._current)
        elif key == Qt.Key.Key_Escape and self._current >= 0:
            self.set_current(-1)
            self.clicked.emit(-1)
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal):
            self.zoom(1.25)
        elif key == Qt.Key.Key_Minus:
            self.zoom(0.8)
        else:
            super().keyPressEvent(event)

    def _move(self, key: Qt.Key) -> bool:
        """Move the frame for an arrow or paging key; False when the key is none of these."""
        columns, n, here = self._layout(self.width())[0], self._shown, max(0, self._current)
        targets = {
            Qt.Key.Key_Left: here - 1,
            Qt.Key.Key_Right: here + 1,
            Qt.Key.Key_Up: here - columns,
            Qt.Key.Key_Down: here + columns,
            Qt.Key.Key_PageUp: max(0, here - 8 * columns),
            Qt.Key.Key_PageDown: min(n - 1, here + 8 * columns),
            Qt.Key.Key_Home: 0,
            Qt.Key.Key_End: n - 1,
        }
        if not n or key not in targets:
            return False
        wanted = 0 if self._current < 0 and key != Qt.Key.Key_End else targets[key]
        if 0 <= wanted < n:
            self.set_current(wanted)
            self.hovered.emit(wanted)
        return True

    def tip_position(self, page: int) -> QPoint:
        """Where a page's tooltip belongs, in screen coordinates."""
        return self.mapToGlobal(self.cell_rect(page).bottomRight() + QPoint(6, 6))
