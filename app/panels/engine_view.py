"""What stands in the Engine dock: three plots side by side, each under its name and its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget

from app.panels.history import Series, StepHistory
from app.panels.plot_header import PlotHeader
from app.panels.plots import PoolPlot, SpeedPlot, ago
from app.panels.steps_plot import StepsPlot
from app.panels.words import milliseconds
from app.text import tr

MODES = ("ms", "rows", "range")
MODE_WORDS = ("ms", "rows", "over time")


class PlotPanel(QWidget):
    """A plot under its header: name, on the right the values of now or under the cursor beside their marks."""

    def __init__(self, title: str, plot: QWidget, marks: Sequence[str]) -> None:
        super().__init__()
        self.plot = plot
        self.header = PlotHeader(title, marks)
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 0, 8, 4)
        column.setSpacing(2)
        column.addWidget(self.header)
        column.addWidget(plot, 1)

    def say(self, when: str, *values: str) -> None:
        """Show values, and when they were (empty: now)."""
        self.header.say(when, values)


class EngineView(QSplitter):
    """Pool, Steps and Speed. What is under the cursor is told in the plot's header."""

    def __init__(self, chat_title: Callable[[str], str]) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.setAccessibleName(tr("Engine plots"))
        self.setProperty("surface", "panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setHandleWidth(8)
        self._chat_title = chat_title
        self._history: StepHistory | None = None
        self._cursor = {"pool": -1, "steps": -1, "speed": -1}
        self.mode = MODES[0]
        self.pool_plot, self.steps_plot, self.speed_plot = PoolPlot(), StepsPlot(), SpeedPlot()
        self.pool = PlotPanel(tr("Pool"), self.pool_plot, ("active", "cached", "free"))
        self.steps = PlotPanel(tr("Steps"), self.steps_plot, ("", "prefill"))
        self.speed = PlotPanel(tr("Speed"), self.speed_plot, ("active", "prefill"))
        for panel, share in ((self.pool, 5), (self.steps, 5), (self.speed, 4)):
            self.addWidget(panel)
            self.setStretchFactor(self.count() - 1, share)
        self.setSizes([500, 440, 400])
        self.setContentsMargins(8, 0, 8, 0)
        self.setMinimumHeight(112)
        self.pool_plot.inspected.connect(lambda i: self._inspect("pool", i))
        self.steps_plot.resized.connect(self._show_steps)
        self.steps_plot.inspected.connect(lambda i: self._inspect("steps", i))
        self.speed_plot.inspected.connect(lambda i: self._inspect("speed", i))

    def sizeHint(self) -> QSize:
        """A modest wish: the window takes room from the other docks for what a dock wishes for."""
        return QSize(480, 160)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Side by side where there is room, one above the other in a narrow dock."""
        super().resizeEvent(event)
        narrow = self.width() < 480 and self.height() > self.width()
        self.setOrientation(Qt.Orientation.Vertical if narrow else Qt.Orientation.Horizontal)

    def show_history(self, history: StepHistory, series: Series, range_s: int) -> None:
        """Paint everything from the history and its series over ``range_s``."""
        self._history = history
        evictions = history.evictions_since(float(series.at[0]))
        names = {e.chat: self._chat_title(e.chat) for e in evictions}
        self.pool_plot.show_series(series, range_s, evictions, names)
        self.speed_plot.show_series(series, range_s)
        if self.mode == "range":
            self.steps_plot.show_series(series)
        else:
            self._show_steps()
        for which in self._cursor:
            self._say(which)

    def _show_steps(self) -> None:
        """Single steps, as many as fit."""
        if self._history is not None and self.mode != "range":
            recent = self._history.recent(self.steps_plot.n_columns)
            chats = {stream: self._chat_title(chat) for stream, chat in self._history.names.items()}
            self.steps_plot.show_recent(recent, chats, by_time=self.mode == "ms")

    def _inspect(self, which: str, index: int) -> None:
        self._cursor[which] = index
        self._say(which)

    def _say(self, which: str) -> None:
        """Values under the cursor, else of now."""
        if self._history is None:
            return
        index = self._cursor[which]
        if which == "pool":
            self.pool.say(*pool_words(self.pool_plot.series, index))
        elif which == "speed":
            when, rate, queue = speed_words(self.speed_plot.series, self.speed_plot.speed, index)
            self.speed.say(when, tr("reading") if index < 0 and self._history.only_reading else rate, queue)
        else:
            self.steps.say(*step_words(self.steps_plot, index))


def _when(series: Series, index: int) -> str:
    """``−12 s`` for a column under the cursor, nothing for now."""
    if not 0 <= index < len(series.at):
        return ""
    return ago(float(series.at[-1] - series.at[index]))


def pool_words(series: Series | None, index: int) -> tuple[str, str, str, str]:
    """When, referenced, cached and free pages at a column (-1: now)."""
    if series is None or series.capacity[index] != series.capacity[index]:
        return ("", tr("referenced"), tr("cached"), tr("free"))
    referenced, cached, capacity = series.referenced[index], series.cached[index], series.capacity[index]
    free = tr("{n:,.0f} free", n=capacity - referenced - cached)
    referenced_words = tr("{n:,.0f} referenced", n=referenced)
    return (_when(series, index), referenced_words, tr("{n:,.0f} cached", n=cached), free)


def speed_words(series: Series | None, speed: np.ndarray, index: int) -> tuple[str, str, str]:
    """When, generated tokens per second and the queue's length at a column (-1: now)."""
    if series is None:
        return ("", tr("tok/s"), tr("queue"))
    speed_now = tr("{n:,.0f} tok/s", n=speed[index])
    return (_when(series, index), speed_now, tr("queue {n}", n=int(series.queued[index])))


def step_words(plot: StepsPlot, index: int) -> tuple[str, str, str]:
    """Which step, its batch and time, and its prompt chunk at a column (-1: the last)."""
    if plot.series is not None:
        share = tr("{share:.0%} of the time", share=plot.series.prefill_share[index])
        return (_when(plot.series, index), tr("batch {n}", n=int(plot.series.width[index])), share)
    recent = plot.recent
    if recent is None or not len(recent.step):
        return ("", "", tr("prefill"))
    i = index if 0 <= index < len(recent.step) else -1
    read = tr("read {n:,}", n=int(recent.prefill_tokens[i])) if recent.prefill_tokens[i] else tr("prefill")
    which = tr("step {n:,}", n=int(recent.step[i])) if index >= 0 else ""
    batch = tr("batch {n}", n=int(recent.width[i]))
    return (which, f"{batch} · {milliseconds(recent.duration_us[i])}", read)
