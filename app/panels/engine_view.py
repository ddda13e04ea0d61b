"""What stands in the Engine dock: three plots side by side, each with its name, legend and values."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QHBoxLayout, QSplitter, QVBoxLayout, QWidget

from app.panels.history import Series, StepHistory
from app.panels.parts import ElidedLabel, Segments, Swatch, label
from app.panels.plots import PoolPlot, SpeedPlot
from app.panels.steps_plot import StepsPlot
from app.panels.words import milliseconds
from app.theme import Theme

MODES = ("ms", "rows", "range")
_MODE_WORDS = ("ms", "rows", "over time")


class PlotPanel(QWidget):
    """A plot under its header: name, legend, and on the right the values of now or under the cursor."""

    def __init__(self, title: str, plot: QWidget, legend: tuple[tuple[str, str], ...], *extra: QWidget) -> None:
        super().__init__()
        self.plot = plot
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 0, 8, 4)
        column.setSpacing(2)
        row = QHBoxLayout()
        row.setSpacing(4)
        row.addWidget(label(title, "heading"))
        row.addSpacing(6)
        for words, token in legend:
            row.addWidget(Swatch(_filled(token), 9))
            row.addWidget(label(words, "caption"))
            row.addSpacing(4)
        for widget in extra:
            row.addWidget(widget)
        self.values = ElidedLabel("", "caption")
        self.values.setAlignment(Qt.AlignmentFlag.AlignRight)
        row.addWidget(self.values, 1)
        column.addLayout(row)
        column.addWidget(plot, 1)


def _filled(token: str) -> Callable[[QPainter, QRectF, Theme], None]:
    def draw(painter: QPainter, box: QRectF, theme: Theme) -> None:
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color(token))
        painter.drawRoundedRect(box, 1.5, 1.5)

    return draw


class EngineView(QSplitter):
    """Pool, Steps and Speed. What is under the cursor is told in the plot's header.

    Signals:
        mode_changed: the steps are to be shown in another way.
    """

    mode_changed = Signal()

    def __init__(self, chat_title: Callable[[str], str]) -> None:
        super().__init__(Qt.Orientation.Horizontal)
        self.setAccessibleName("Engine plots")
        self.setHandleWidth(8)
        self._chat_title = chat_title
        self._history: StepHistory | None = None
        self._cursor = {"pool": -1, "steps": -1, "speed": -1}
        self.pool_plot, self.steps_plot, self.speed_plot = PoolPlot(), StepsPlot(), SpeedPlot()
        self.modes = Segments("Steps as", _MODE_WORDS)
        self.mode = MODES[0]
        self.modes.chosen.connect(self._on_mode)
        self.pool = PlotPanel("Pool", self.pool_plot, (("referenced", "active"), ("cached", "cached")))
        self.steps = PlotPanel("Steps", self.steps_plot, (("prefill", "prefill"),), self.modes)
        self.speed = PlotPanel("Speed", self.speed_plot, (("tok/s", "active"), ("queue", "prefill")))
        for panel, share in ((self.pool, 5), (self.steps, 5), (self.speed, 4)):
            self.addWidget(panel)
            self.setStretchFactor(self.count() - 1, share)
        self.setMinimumHeight(120)
        self.pool_plot.inspected.connect(lambda i: self._inspect("pool", i))
        self.steps_plot.inspected.connect(lambda i: self._inspect("steps", i))
        self.speed_plot.inspected.connect(lambda i: self._inspect("speed", i))

    def _on_mode(self, index: int) -> None:
        self.mode = MODES[index]
        self.mode_changed.emit()

    def set_held(self, held: bool) -> None:
        """Say that the picture is paused."""
        self.setAccessibleDescription("paused" if held else "")

    def show_history(self, history: StepHistory, series: Series, range_s: int) -> None:
        """Paint everything from the history and its series over ``range_s``."""
        self._history = history
        if self.pool.isVisible() and self.pool.width() > 0:
            evictions = history.evictions_since(float(series.at[0]))
            names = {e.chat: self._chat_title(e.chat) for e in evictions}
            self.pool_plot.show_series(series, range_s, evictions, names)
        if self.steps.isVisible():
            self._show_steps(history, series)
        if self.speed.isVisible():
            self.speed_plot.show_series(series, range_s)
        for which in self._cursor:
            self._say(which)

    def _show_steps(self, history: StepHistory, series: Series) -> None:
        if self.mode == "range":
            self.steps_plot.show_series(series)
        else:
            recent = history.recent(self.steps_plot.n_columns)
            names = {stream: self._chat_title(chat) for stream, chat in history.names.items()}
            self.steps_plot.show_recent(recent, names, by_time=self.mode == "ms")

    def _inspect(self, which: str, index: int) -> None:
        self._cursor[which] = index
        self._say(which)

    def _say(self, which: str) -> None:
        """Values under the cursor, else of now."""
        if self._history is None:
            return
        index = self._cursor[which]
        if which == "pool":
            self.pool.values.setText(pool_words(self.pool_plot.series, index))
        elif which == "speed":
            self.speed.values.setText(speed_words(self.speed_plot.series, index))
        else:
            self.steps.values.setText(self._step_words(index))

    def _step_words(self, index: int) -> str:
        plot = self.steps_plot
        if plot.series is not None:
            series = plot.series
            ago = _ago(series, index)
            return f"{ago}batch {series.width[index]:.0f} · {series.prefill_share[index]:.0%} of the time on prompts"
        recent = plot.recent
        if recent is None or not len(recent.step):
            return ""
        i = index if 0 <= index < len(recent.step) else -1
        head = f"step {int(recent.step[i]):,} · " if index >= 0 else ""
        words = f"{head}batch {int(recent.width[i])} · {milliseconds(recent.duration_us[i])}"
        if recent.prefill_tokens[i]:
            words += f" · read {int(recent.prefill_tokens[i]):,} in {milliseconds(recent.prefill_us[i])}"
        return words


def _ago(series: Series, index: int) -> str:
    """``−12 s · `` for a column under the cursor, nothing for now."""
    return f"−{series.at[-1] - series.at[index]:.0f} s · " if 0 <= index < len(series.at) else ""


def pool_words(series: Series | None, index: int) -> str:
    """Pages at a column (-1: now): "58 · 87 · 119 free of 264"."""
    if series is None:
        return ""
    referenced, cached, capacity = series.referenced[index], series.cached[index], series.capacity[index]
    if capacity != capacity:
        return ""
    free = capacity - referenced - cached
    return f"{_ago(series, index)}{referenced:,.0f} + {cached:,.0f} + {free:,.0f} free = {capacity:,.0f}"


def speed_words(series: Series | None, index: int) -> str:
    """Tokens per second, prompt tokens per second and queue at a column (-1: now)."""
    if series is None:
        return ""
    at = index if index >= 0 else max(-2, -len(series.at))
    words = f"{_ago(series, index)}{series.tokens_per_s[at]:,.0f} tok/s · queue {series.queued[at]:.0f}"
    return words + (f" · reading {series.read_per_s[at]:,.0f}/s" if series.read_per_s[at] else "")
