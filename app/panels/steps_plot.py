"""The step plot: a column per engine step, or per stretch of time.

In a column the blocks below are the streams of the batched decode (as many blocks as the batch is wide, each in its
stream's colour), the orange block above is prompt tokens read. The height is milliseconds, or rows of the batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QBrush, QColor, QFontMetricsF, QMouseEvent, QPainter, QPaintEvent, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.panels.history import Recent, Series
from app.panels.plots import AXIS, ago, nice_top
from app.panels.words import milliseconds, shorten
from app.text import tr
from app.theme import Theme
from app.theme.tokens import Palette, mix

COLUMN = 6
_HEADROOM = 1.15
"""Room above the tallest column for the words that stand there."""
_TOP = 6
_PREFILL_ROWS = 0.32
"""In the batch view a full prompt chunk takes this share of the height: its tokens have a scale of their own."""


@dataclass(frozen=True, slots=True)
class Stall:
    """A run of steps in which prompts were read while others waited to decode."""

    first: int
    last: int
    prefill_us: float
    reader: int


class StepsPlot(QWidget):
    """Columns of steps.

    Signals:
        resized: another number of columns fits now.
        inspected(index): the cursor is over this column of what is shown; -1 when it left.
    """

    inspected = Signal(int)
    resized = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.recent: Recent | None = None
        self.series: Series | None = None
        self._names: dict[int, str] = {}
        self._by_time = True
        self._under = -1
        self.setMouseTracking(True)
        self.setMinimumSize(120, 60)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName(tr("Steps: batch width and prompt chunks"))
        Theme.current().changed.connect(self.update)

    def sizeHint(self) -> QSize:
        return QSize(320, 140)

    @property
    def n_columns(self) -> int:
        """How many steps fit."""
        return max(8, self.width() // COLUMN)

    def show_recent(self, recent: Recent, names: dict[int, str], *, by_time: bool) -> None:
        """Show single steps; ``by_time``: height is milliseconds, else rows of the batch."""
        self.recent, self.series, self._names, self._by_time = recent, None, names, by_time
        self.update()

    def show_series(self, series: Series) -> None:
        """Show stretches of time: the widest batch of each and the share of time spent on prompts."""
        self.recent, self.series = None, series
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        area = QRectF(0, _TOP, self.width(), self.height() - AXIS - _TOP)
        theme = Theme.current()
        painter.setPen(QPen(theme.color("line"), 1))
        for number in range(4):
            y = round(area.top() + area.height() * number / 3) + 0.5
            painter.drawLine(QPointF(0, y), QPointF(self.width(), y))
        painter.setFont(theme.font("caption"))
        if self.recent is not None and len(self.recent.step):
            self._paint_recent(painter, area, self.recent)
        elif self.series is not None:
            self._paint_series(painter, area, self.series)
        painter.end()

    def _paint_recent(self, painter: QPainter, area: QRectF, recent: Recent) -> None:
        decode, prefill, top = heights(recent, by_time=self._by_time)
        left = area.right() - len(decode) * COLUMN
        colors = slot_colors()
        blocks: list[list[QRectF]] = [[] for _ in colors]
        prompts = []
        for number in range(len(decode)):
            x = left + number * COLUMN
            y = _stack(blocks, area, x, decode[number] / top, recent.slots[number])
            tall = prefill[number] / top * area.height()
            if tall > 0:
                prompts.append(QRectF(x, y - max(1.5, tall), COLUMN - 1, max(1.5, tall)))
        # One call for each colour: a call for each of some hundred blocks takes several times as long.
        painter.setPen(Qt.PenStyle.NoPen)
        for brush, rects in ((Theme.current().color("prefill"), prompts), *zip(colors, blocks, strict=True)):
            if rects:
                painter.setBrush(brush)
                painter.drawRects(rects)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        self._paint_cursor(painter, area, left, COLUMN)
        first, last = (tr("step {n:,}", n=int(recent.step[i])) for i in (0, -1))
        self._paint_words(painter, area, first, last)
        unit = milliseconds(top) if self._by_time else tr("{n:,.0f} rows", n=top)
        self._paint_stall(painter, area, recent, prefill, left, unit)

    def _paint_series(self, painter: QPainter, area: QRectF, series: Series) -> None:
        theme = Theme.current()
        n = len(series.at)
        pitch = area.width() / n
        top = rows_top(float(series.width.max(initial=0.0)))
        painter.setPen(Qt.PenStyle.NoPen)
        active, prefill = theme.color("active"), theme.color("prefill")
        wide = max(1.0, pitch - (1 if pitch > 3 else 0))
        for number in np.flatnonzero((series.width > 0) | (series.prefill_share > 0)):
            x = area.left() + number * pitch
            tall = series.width[number] / top * area.height()
            orange = series.prefill_share[number] * _PREFILL_ROWS * area.height()
            painter.fillRect(QRectF(x, area.bottom() - tall, wide, tall), active)
            if orange > 0:
                painter.fillRect(QRectF(x, area.bottom() - tall - max(1.5, orange), wide, max(1.5, orange)), prefill)
        self._paint_cursor(painter, area, area.left(), pitch)
        self._paint_words(painter, area, ago(n * series.width_s), tr("now"))
        painter.drawText(
            QRectF(0, area.top() + 1, area.width(), 16), Qt.AlignmentFlag.AlignLeft, tr("{n:.0f} rows", n=top)
        )

    def _paint_cursor(self, painter: QPainter, area: QRectF, left: float, pitch: float) -> None:
        if self._under >= 0:
            color = QColor(Theme.current().color("text"))
            color.setAlphaF(0.12)
            painter.fillRect(
                QRectF(left + self._under * pitch - 0.5, area.top(), max(2.0, pitch), area.height()), color
            )

    def _paint_words(self, painter: QPainter, area: QRectF, left: str, right: str) -> None:
        painter.setPen(Theme.current().color("muted"))
        below = QRectF(0, area.bottom() + 3, area.width(), AXIS - 3)
        painter.drawText(below, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, left)
        painter.drawText(below, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, right)

    def _paint_stall(
        self, painter: QPainter, area: QRectF, recent: Recent, prefill: np.ndarray, left: float, unit: str
    ) -> None:
        """Name whose prompt made the others wait, above its columns; the scale stands in the corner."""
        painter.setPen(Theme.current().color("muted"))
        metrics = QFontMetricsF(painter.font())
        painter.drawText(QRectF(0, area.top() + 1, area.width(), 16), Qt.AlignmentFlag.AlignLeft, unit)
        stall = last_stall(recent)
        if stall is None:
            return
        name = shorten(self._names.get(stall.reader) or tr("a prompt"), 24)
        words = tr("prefill of “{chat}” +{time}", chat=name, time=milliseconds(stall.prefill_us))
        width = metrics.horizontalAdvance(words)
        x = min(area.right() - width - 4, max(metrics.horizontalAdvance(unit) + 12, left + stall.first * COLUMN))
        if x > metrics.horizontalAdvance(unit) + 8:
            painter.drawText(QPointF(x, area.top() + metrics.ascent() + 1), words)

    def column_at(self, x: float) -> int:
        """The column under an x position, -1 without one."""
        if self.recent is not None:
            n = len(self.recent.step)
            index = int((x - (self.width() - n * COLUMN)) // COLUMN)
        elif self.series is not None:
            n = len(self.series.at)
            index = int(x / max(1, self.width()) * n)
        else:
            return -1
        return index if 0 <= index < n else -1

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.resized.emit()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._inspect(self.column_at(event.position().x()))

    def leaveEvent(self, event: QEvent) -> None:
        self._inspect(-1)

    def _inspect(self, index: int) -> None:
        if index != self._under:
            self._under = index
            self.inspected.emit(index)
            self.update()


def heights(recent: Recent, *, by_time: bool) -> tuple[np.ndarray, np.ndarray, float]:
    """Decode and prefill height of each step and the axis end, in microseconds or in rows of the batch."""
    if by_time:
        decode = np.maximum(recent.decode_us, 0.0)
        prefill = np.where(recent.prefill_tokens > 0, np.maximum(recent.prefill_us, 0.0), 0.0)
        return decode, prefill, nice_top(float((decode + prefill).max(initial=0.0)) * _HEADROOM)
    width = recent.width.astype(float)
    top = rows_top(float(width.max(initial=0.0)))
    chunk = max(128.0, float(recent.prefill_tokens.max(initial=0)))
    return width, recent.prefill_tokens / chunk * top * _PREFILL_ROWS, top


def rows_top(width: float) -> float:
    """The axis end of the batch view: the widest batch with room for a prompt chunk above it, in threes."""
    return 3.0 * np.ceil(max(3.0, width) / (1 - _PREFILL_ROWS) / 3.0)


def last_stall(recent: Recent, max_gap: int = 2) -> Stall | None:
    """The latest run of steps that read a prompt while streams were decoding."""
    waiting = np.flatnonzero((recent.prefill_tokens > 0) & (recent.width > 0))
    if not len(waiting):
        return None
    breaks = np.flatnonzero(np.diff(waiting) > max_gap)
    run = waiting[breaks[-1] + 1 :] if len(breaks) else waiting
    reader = recent.readers[int(run[-1])]
    longest = float(recent.prefill_us[run].max())
    return Stall(int(run[0]), int(run[-1]), longest, reader[0] if reader else 0)


def slot_colors() -> tuple[QBrush, ...]:
    """Eight colours for streams that can be told apart and never look like a prompt chunk."""
    return _slot_colors(Theme.current().palette)


@lru_cache(maxsize=2)
def _slot_colors(tokens: Palette) -> tuple[QBrush, ...]:
    base = (tokens.active, tokens.shared, tokens.cached)
    lighter = [mix(c, tokens.panel, 0.62) for c in base]
    order = (base[0], lighter[0], base[1], lighter[1], base[2], lighter[2], mix(base[0], base[1], 0.5))
    return tuple(QBrush(QColor(c)) for c in (*order, mix(base[0], base[2], 0.5)))


def _stack(blocks: list[list[QRectF]], area: QRectF, x: float, share: float, slots: bytes) -> float:
    """Add one column's decode blocks, from the bottom up, to those of their colours; returns the y of their top."""
    y = area.bottom()
    if not slots:
        return y
    block = share * area.height() / len(slots)
    gap = 1.0 if block >= 4 else 0.0
    for slot in slots:
        blocks[slot % len(blocks)].append(QRectF(x, y - block + gap, COLUMN - 1, block - gap))
        y -= block
    return y
