"""The plots over time: pool pages stacked up to the pool's capacity, tokens per second with the queue.

Both are drawn from one ``Series``. They paint only when ``show_series`` is called, which the dock does while visible.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import QBrush, QPainter, QPen, QPolygonF
from PySide6.QtWidgets import QWidget

from app.panels.history import Series
from app.panels.words import shorten
from app.text import tr
from app.theme import Theme
from engine.scheduling.events import Eviction

AXIS, _TOP = 18, 6


class AreaItem(pg.GraphicsObject):
    """A filled curve as one polygon (pyqtgraph's own fill is cut into pieces whose seams show)."""

    def __init__(self, *, steps: bool = False) -> None:
        super().__init__()
        self._steps = steps
        self._line = QPolygonF()
        self._area: QPolygonF | None = None
        self.pen: QPen = pg.mkPen(None)
        self.brush: QBrush | None = None

    def set_data(self, x: np.ndarray, y: np.ndarray) -> None:
        """Take over float64 arrays of one length; values that are not finite end the curve."""
        good = np.isfinite(y)
        x, y = x[good], y[good]
        if self._steps and len(x):
            x, y = np.repeat(x, 2)[:-1], np.repeat(y, 2)[1:]
        self._line = pg.functions.arrayToQPolygonF(x, y) if len(x) else QPolygonF()
        self._area = None
        if self.brush is not None and len(x):
            self._area = pg.functions.arrayToQPolygonF(np.r_[x[0], x, x[-1]], np.r_[0.0, y, 0.0])
        self.prepareGeometryChange()
        self.update()

    def boundingRect(self) -> QRectF:
        return self._line.boundingRect().united(self._area.boundingRect() if self._area is not None else QRectF())

    def paint(self, painter: QPainter, *_: object) -> None:
        if self._area is not None and self.brush is not None:
            # The line drawn over the edge is smooth; smoothing the area too would cost most of the frame.
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(self.brush)
            painter.drawPolygon(self._area)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, not self._steps)
        painter.setPen(self.pen)
        painter.drawPolyline(self._line)


class TimePlot(pg.PlotWidget):
    """A calm plot whose x axis is seconds before now: a few quiet grid lines, labels at both ends, no buttons.

    Signals:
        inspected(index): the cursor is over this column of the series; -1 when it left.
    """

    inspected = Signal(int)

    def __init__(self, name: str, parent: QWidget | None = None) -> None:
        super().__init__(parent, enableMenu=False)
        self.setAccessibleName(name)
        self.setFrameShape(pg.PlotWidget.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setMinimumSize(120, 60)
        self.series: Series | None = None
        item = self.plotItem
        item.hideButtons()
        item.hideAxis("left")
        item.setMouseEnabled(False, False)
        item.hideAxis("bottom")
        item.layout.setContentsMargins(0, _TOP, 0, AXIS)
        item.getViewBox().setDefaultPadding(0)
        item.disableAutoRange()
        self._grid = [pg.InfiniteLine(angle=0, movable=False) for _ in range(4)]
        self._cursor = pg.InfiniteLine(angle=90, movable=False)
        for line in (*self._grid, self._cursor):
            item.addItem(line, ignoreBounds=True)
        self._cursor.setZValue(20)
        self._cursor.hide()
        self._top = 1.0
        self._words = ("", "")
        self.corner = ""
        self._range: tuple[float, float] | None = None
        Theme.current().changed.connect(self.recolor)

    def recolor(self) -> None:
        """Take the theme's colours."""
        theme = Theme.current()
        self.setBackground(theme.color("panel"))
        for line in self._grid:
            line.setPen(pg.mkPen(theme.color("line"), width=1))
        self._cursor.setPen(pg.mkPen(theme.color("muted"), width=1))
        self.viewport().update()

    def set_range(self, range_s: float, top: float) -> None:
        """Fix the axes: ``range_s`` seconds up to now, 0 to ``top``."""
        if (range_s, top) == self._range:
            return
        self._range = (range_s, top)
        self._top = max(top, 1e-9)
        box = self.plotItem.getViewBox()
        box.setRange(xRange=(-range_s, 0), yRange=(0, self._top * 1.02), padding=0, disableAutoRange=True)
        for number, line in enumerate(self._grid):
            line.setValue(self._top * number / 3)
        self._words = (ago(range_s), tr("now"))

    def drawForeground(self, painter: QPainter, rect: QRectF) -> None:
        """Write the ends of the time axis under the plot."""
        painter.save()
        painter.resetTransform()
        painter.setPen(Theme.current().color("muted"))
        painter.setFont(Theme.current().font("caption"))
        below = QRectF(0, self.height() - AXIS + 3, self.width(), AXIS - 3)
        for words, side in zip(self._words, (Qt.AlignmentFlag.AlignLeft, Qt.AlignmentFlag.AlignRight), strict=True):
            painter.drawText(below, side | Qt.AlignmentFlag.AlignVCenter, words)
        painter.drawText(QRectF(0, _TOP + 1, self.width(), 16), Qt.AlignmentFlag.AlignLeft, self.corner)
        painter.restore()

    def column_at(self, x: float) -> int:
        """The column of the series at ``x`` seconds before now (negative), -1 without one."""
        if self.series is None or not len(self.series.at):
            return -1
        index = int(np.searchsorted(self.times, x))
        return min(index, len(self.series.at) - 1)

    @property
    def times(self) -> np.ndarray:
        """Each column's end in seconds before the last one's."""
        assert self.series is not None
        return self.series.at - self.series.at[-1]

    def mouseMoveEvent(self, event) -> None:  # type: ignore[no-untyped-def]
        super().mouseMoveEvent(event)
        self._inspect(self.plotItem.getViewBox().mapSceneToView(QPointF(event.position())).x())

    def _inspect(self, x: float) -> None:
        index = self.column_at(x)
        self._cursor.setVisible(index >= 0)
        if index >= 0:
            self._cursor.setValue(float(self.times[index]))
        self.inspected.emit(index)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._cursor.hide()
        self.inspected.emit(-1)


class PoolPlot(TimePlot):
    """Referenced and cached pages as a stack; what is above it is free. Evictions are marked.

    The top line is the pool's capacity, or less while only a small part of a large pool is in use.
    """

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr("Pool: referenced, cached and free pages over time"), parent)
        self._cached = AreaItem()
        self._referenced = AreaItem()
        self._marks = pg.PlotCurveItem(connect="pairs")
        self._label = pg.TextItem(anchor=(1, 0))
        for curve in (self._cached, self._referenced, self._marks, self._label):
            self.plotItem.addItem(curve, ignoreBounds=True)
        self._label.setZValue(15)
        self._label.hide()
        self.recolor()

    def recolor(self) -> None:
        super().recolor()
        theme = Theme.current()
        for curve, token in ((self._cached, "cached"), (self._referenced, "active")):
            curve.pen = pg.mkPen(theme.color(token), width=1.2)
            curve.brush = QBrush(theme.color(f"{token}_area"))
        marks = pg.mkPen(theme.color("diverged"), width=1.2, style=Qt.PenStyle.DashLine)
        self._marks.setPen(marks)
        self._label.setColor(theme.color("muted"))
        self._label.setFont(theme.font("caption"))

    def show_series(self, series: Series, range_s: float, evictions: Sequence[Eviction], names: dict[str, str]) -> None:
        """Paint a series; ``names`` turns an eviction's chat into the name that people see."""
        self.series = series
        known = np.flatnonzero(np.isfinite(series.capacity))
        capacity = float(series.capacity[known].max()) if len(known) else 0.0
        used = (series.referenced + series.cached)[known]
        top = pool_top(float(used.max(initial=0.0)), capacity)
        self.set_range(range_s, top)
        self.corner = ""
        if capacity:
            self.corner = tr("{n:,.0f} pages", n=top) if top >= capacity else tr("up to {n:,.0f} pages", n=top)
        times = self.times[known]
        self._referenced.set_data(times, series.referenced[known])
        self._cached.set_data(times, used)
        now = float(series.at[-1])
        at = np.repeat([e.at - now for e in evictions], 2)
        self._marks.setData(at, np.tile([0.0, top], len(evictions)))
        self._label.setVisible(bool(evictions))
        if evictions:
            last = evictions[-1]
            x = last.at - now
            whose = shorten(names.get(last.chat, last.chat) or last.label, 24)
            self._label.setText(tr("evict {n:,} · {chat}", n=last.pages, chat=whose))
            self._label.setAnchor((1, 0) if x > -range_s * 0.55 else (0, 0))
            self._label.setPos(x, top)


class SpeedPlot(TimePlot):
    """Generated tokens per second as an area, the queue's length as a stepped line on its own scale."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(tr("Speed: generated tokens per second and queue length over time"), parent)
        self._tokens = AreaItem()
        self._queue = AreaItem(steps=True)
        self.speed = np.zeros(0)
        for curve in (self._tokens, self._queue):
            self.plotItem.addItem(curve, ignoreBounds=True)
        self.recolor()

    def recolor(self) -> None:
        super().recolor()
        theme = Theme.current()
        self._tokens.pen = pg.mkPen(theme.color("active"), width=1.4)
        self._tokens.brush = QBrush(theme.color("active", 0.18))
        self._queue.pen = pg.mkPen(theme.color("prefill"), width=1.2)

    def show_series(self, series: Series, range_s: float) -> None:
        """Paint a series."""
        self.series = series
        self.speed = speed = smooth(series.tokens_per_s, max(1, round(1.0 / series.width_s)))
        top = nice_top(float(speed.max(initial=0.0)) * 1.1)
        self.set_range(range_s, top)
        self.corner = tr("{n:,.0f} tok/s", n=top)
        self._tokens.set_data(self.times, speed)
        queue_top = max(4.0, float(series.queued.max(initial=0.0)))
        shown = bool(series.queued.any())
        self._queue.setVisible(shown)
        if shown:
            self._queue.set_data(self.times, series.queued / queue_top * top)


def ago(seconds: float) -> str:
    """``−60 s``, ``−15 min``: the start of a range."""
    return tr("−{n:.0f} s", n=seconds) if seconds <= 60 else tr("−{n:.0f} min", n=seconds / 60)


def pool_top(used: float, capacity: float) -> float:
    """The axis end of the pool plot: capacity, or a round number well above what is used of a large pool."""
    wanted = nice_top(max(16.0, used * 1.3))
    return wanted if wanted < capacity * 0.6 else max(1.0, capacity)


def smooth(values: np.ndarray, n: int) -> np.ndarray:
    """Means over the last ``n`` values, float64 of the same length."""
    if n <= 1:
        return values
    sums = np.cumsum(np.concatenate([np.zeros(n), values]))
    return (sums[n:] - sums[:-n]) / n


def nice_top(value: float) -> float:
    """The axis end for a largest value: 1, 1.5, 2, 3, 4, 5 or 8 times a power of ten."""
    if value <= 0:
        return 10.0
    power = 10.0 ** np.floor(np.log10(value))
    return float(next((f * power for f in (1, 1.5, 2, 3, 4, 5, 8, 10) if f * power >= value * 1.02), 15 * power))
