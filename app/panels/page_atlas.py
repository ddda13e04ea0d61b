"""The cells of the page map as one strip of small pictures, and the map put together from them.

Each state has a shape of its own besides its colour: free is a hollow dot, active a full square, shared has a hole,
cached a cut corner, partly filled pages are filled from below, pinned ones have a frame.
"""

from __future__ import annotations

import numpy as np
from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QImage, QPainter, QPainterPath, QPen

from app.theme import Theme
from engine.port import PAGE_ACTIVE, PAGE_CACHED, PAGE_FREE, PAGE_SHARED, Snapshot

FREE, ACTIVE, SHARED, CACHED, PART = PAGE_FREE, PAGE_ACTIVE, PAGE_SHARED, PAGE_CACHED, 4
"""Kinds of cell; ``PART`` + 0..3 is an active page that is filled to none, 1/4, 1/2 or 3/4."""
PINNED, DIMMED, BLANK = 8, 16, 32
"""``PINNED`` and ``DIMMED`` are added to a kind; ``BLANK`` is the cell after the last page."""


def build(pitch: int, theme: Theme) -> np.ndarray:
    """Draw all cells; uint32[33, pitch, pitch] premultiplied ARGB, ``pitch`` in device pixels, gap included."""
    strip = QImage(pitch, pitch * (BLANK + 1), QImage.Format.Format_ARGB32_Premultiplied)
    strip.fill(0)
    painter = QPainter(strip)
    painter.setRenderHint(QPainter.RenderHint.Antialiasing, pitch >= 6)
    gap = max(1, round(pitch * 0.16))
    for code in range(BLANK):
        painter.setOpacity(0.38 if code & DIMMED and code & 7 != FREE else 1.0)
        draw_cell(painter, QRectF(0, code * pitch, pitch - gap, pitch - gap), code & ~DIMMED, theme)
    painter.end()
    raw = np.frombuffer(strip.constBits(), np.uint32).reshape(BLANK + 1, pitch, pitch)
    return raw.copy()


def draw_cell(painter: QPainter, box: QRectF, code: int, theme: Theme) -> None:
    """One cell, as in the map and its legend."""
    kind, pinned = code & 7, bool(code & PINNED)
    painter.setPen(Qt.PenStyle.NoPen)
    side = box.width()
    radius = side * 0.22 if side >= 5 else 0
    if kind == FREE:
        painter.setBrush(theme.color("free"))
        painter.drawRoundedRect(box, radius, radius)
    elif kind >= PART:
        _draw_part(painter, box, kind - PART, radius, theme)
    else:
        color = theme.color({ACTIVE: "active", SHARED: "shared", CACHED: "cached"}[kind])
        painter.setBrush(color)
        painter.drawPath(_body(box, kind, radius))
        if kind == SHARED and side >= 4:
            hole = max(1.0, side * 0.30)
            painter.setBrush(theme.color("panel"))
            corner = QPointF(box.center().x() - hole / 2, box.center().y() - hole / 2)
            painter.drawRoundedRect(QRectF(corner.x(), corner.y(), hole, hole), hole / 2, hole / 2)
    if pinned:
        _draw_frame(painter, box, radius, theme.color("pinned"))


def _body(box: QRectF, kind: int, radius: float) -> QPainterPath:
    """A rounded square; for cached pages with the upper right corner cut."""
    path = QPainterPath()
    path.addRoundedRect(box, radius, radius)
    cut = box.width() * 0.36
    if kind == CACHED and box.width() >= 4:
        corner = QPainterPath(QPointF(box.right() - cut, box.top() - 1))
        corner.lineTo(box.right() + 1, box.top() - 1)
        corner.lineTo(box.right() + 1, box.top() + cut)
        corner.closeSubpath()
        return path.subtracted(corner)
    return path


def _draw_part(painter: QPainter, box: QRectF, quarters: int, radius: float, theme: Theme) -> None:
    painter.setBrush(theme.color("active", 0.38))
    painter.drawRoundedRect(box, radius, radius)
    if quarters:
        painter.save()
        filled = box.height() * quarters / 4
        painter.setClipRect(
            QRectF(box.left(), box.bottom() - filled, box.width(), filled), Qt.ClipOperation.IntersectClip
        )
        painter.setBrush(theme.color("active"))
        painter.drawRoundedRect(box, radius, radius)
        painter.restore()


def _draw_frame(painter: QPainter, box: QRectF, radius: float, color: QColor) -> None:
    width = max(1.0, box.width() * 0.17)
    painter.setBrush(Qt.BrushStyle.NoBrush)
    painter.setPen(QPen(color, width))
    inset = width / 2
    painter.drawRoundedRect(box.adjusted(inset, inset, -inset, -inset), radius, radius)
    painter.setPen(Qt.PenStyle.NoPen)


def codes(snapshot: Snapshot) -> np.ndarray:
    """Each page's cell without dimming, uint8[capacity]: state, fill of a stream's last page, pinned."""
    found = snapshot.page_states.astype(np.uint8, copy=True)
    rows = snapshot.page_rows
    written = {s.stream: s.n_read + max(0, s.n_gen - 1) for s in snapshot.streams}
    for stream, pages in snapshot.stream_pages.items():
        n = written.get(stream)
        if n is None:
            continue
        for number in range(n // rows, len(pages)):
            if found[pages[number]] == ACTIVE:
                share = n - number * rows
                found[pages[number]] = PART + (min(3, max(1, round(4 * share / rows))) if share > 0 else 0)
    pinned = [p for c in snapshot.chains if c.pinned for p in c.pages]
    if pinned:
        found[pinned] |= PINNED
    return found


class MapImage:
    """The map's pixels; only rows of cells that changed are put together again."""

    def __init__(self) -> None:
        self._atlas: np.ndarray | None = None
        self._key: tuple[int, int, int] | None = None
        self._cells: np.ndarray = np.zeros((0, 0), np.uint8)
        self._pixels = np.zeros((0, 0), np.uint32)
        self.rows_drawn = 0

    def invalidate(self) -> None:
        """The palette changed: draw all cells anew."""
        self._atlas = None

    def compose(self, cells: np.ndarray, columns: int, pitch: int, theme: Theme) -> QImage:
        """The picture for ``cells`` uint8[n] in ``columns``, ``pitch`` device pixels each."""
        n_rows = -(-len(cells) // columns)
        padded = np.full(n_rows * columns, BLANK, np.uint8)
        padded[: len(cells)] = cells
        grid = padded.reshape(n_rows, columns)
        key = (n_rows, columns, pitch)
        if self._atlas is None or key != self._key:
            self._atlas = build(pitch, theme)
            self._key = key
            self._pixels = np.zeros((n_rows * pitch, columns * pitch), np.uint32)
            changed = np.arange(n_rows)
        else:
            changed = np.flatnonzero((grid != self._cells).any(axis=1))
        if len(changed):
            tiles = self._atlas[grid[changed]].transpose(0, 2, 1, 3)
            self._pixels.reshape(n_rows, pitch, columns * pitch)[changed] = tiles.reshape(len(changed), pitch, -1)
        self._cells, self.rows_drawn = grid, len(changed)
        height, width = self._pixels.shape
        return QImage(self._pixels.data, width, height, width * 4, QImage.Format.Format_ARGB32_Premultiplied)
