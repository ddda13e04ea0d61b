"""The Engine dock: pool pages, steps and speed over time, from one minute to one hour.

Every step is added to a ``StepHistory``; painting happens at most seven times a second, only while the dock is
visible, not paused, and something changed.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QTimer
from PySide6.QtGui import QHideEvent, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QDockWidget, QMenu, QToolButton, QWidget

from app.panels.asks import Bridge
from app.panels.engine_view import MODE_WORDS, MODES, EngineView
from app.panels.history import RANGES, Series, StepHistory
from app.panels.parts import DockTitleBar, Lamp, QuietText, Segments, label, tool_button
from app.panels.words import count
from app.text import tr
from app.theme import icon
from engine.port import EngineState, Snapshot
from engine.scheduling.events import StepReport

_FRAME_MS, _IDLE_FRAMES = 150, 14
_WIDE, _MEDIUM = 780, 540
_SAID, _SAID_MOST = 240, 360
"""Widths from which the title bar has room for every choice, and for the range alone (see ``_SAID``)."""


class EngineDock(QDockWidget):
    """The instrument on the engine's work.

    ``chat_title`` turns a chat's id into the name that people see; ``clock`` gives Unix seconds.
    """

    def __init__(
        self,
        bridge: Bridge,
        parent: QWidget | None = None,
        *,
        chat_title: Callable[[str], str] = str,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(tr("Engine"), parent)
        self.setObjectName("EngineDock")
        self.history = StepHistory()
        self._clock = clock
        self._chat_title = chat_title
        self._range_s = RANGES[0][1]
        self._shown_steps = -1
        self._idle_frames = 0
        self.frames = 0
        self.view = EngineView(chat_title)
        self.setWidget(self.view)
        self._said = _SAID
        self._build_bar()
        self._timer = QTimer(self)
        self._timer.setInterval(_FRAME_MS)
        self._timer.timeout.connect(self._tick)
        bridge.step.connect(self._on_step)
        bridge.state.connect(self._on_state)

    def _build_bar(self) -> None:
        self.bar = DockTitleBar(self, tr("Engine"))
        self.lamp, self.now = Lamp(), QuietText()
        self.modes = Segments(tr("Steps as"), [tr(words) for words in MODE_WORDS])
        self.modes.chosen.connect(self.set_mode)
        self.ranges = Segments(tr("Range"), [tr(words) for words, _ in RANGES])
        self.ranges.chosen.connect(self.set_range)
        self.pause = tool_button("pause", tr("Pause the plots (the engine goes on)"), checkable=True)
        self.pause.toggled.connect(self._on_pause)
        self.choices = tool_button("more", tr("What the plots show"))
        self.choices.setPopupMode(QToolButton.ToolButtonPopupMode.InstantPopup)
        self.choices.setMenu(self._menu())
        self.choices.hide()
        self._wide: tuple[tuple[QWidget, int], ...] = (
            (label(tr("steps"), "caption"), _WIDE),
            (self.modes, _WIDE),
            (label(tr("last"), "caption"), _WIDE),
            (self.ranges, _MEDIUM),
        )
        self.bar.middle.addWidget(self.lamp)
        self.bar.middle.addWidget(self.now, 1)
        for part in (*(part for part, _ in self._wide), self.choices, self.pause):
            self.bar.middle.addWidget(part)
        self.setTitleBarWidget(self.bar)

    def _menu(self) -> QMenu:
        """The choices of the title bar for a dock that is too narrow to show them."""
        menu = QMenu(self)
        for words, names, choose in (
            (tr("Steps as"), MODE_WORDS, self.set_mode),
            (tr("Range"), [words for words, _ in RANGES], self.set_range),
        ):
            menu.addSection(words)
            for number, name in enumerate(names):
                menu.addAction(tr(name), partial(choose, number))
        return menu

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._fit_bar()

    @property
    def paused(self) -> bool:
        """Whether the picture is held still."""
        return self.pause.isChecked()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._shown_steps = -1
        self._timer.start()
        QTimer.singleShot(0, self, self._paint_if_running)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()

    def _on_step(self, report: StepReport) -> None:
        self.history.append(report)

    def note_snapshot(self, snapshot: Snapshot) -> None:
        """Take in the pool of a snapshot: a release or an eviction by hand shows before the next step."""
        self.history.note_pool(snapshot.at, snapshot.pool)
        self.history.imbalance = snapshot.integrity or self.history.imbalance
        self._shown_steps = -1

    def _on_state(self, state: EngineState) -> None:
        if state.stage in ("loading", "empty", "closed"):
            self.history.clear()
            self._shown_steps = -1
        self._say(state_words(state))

    def set_mode(self, index: int) -> None:
        """Show steps in milliseconds, in rows of the batch, or over time (an index into ``MODES``)."""
        self.view.mode = MODES[index]
        self.modes.set_current(index)
        self._paint()

    def set_range(self, index: int) -> None:
        """Show the last minute up to the last hour (an index into ``RANGES``)."""
        self._range_s = RANGES[index][1]
        self.ranges.set_current(index)
        self._paint()

    def toggle_pause(self) -> None:
        """Hold the picture still, or let it go on."""
        self.pause.toggle()

    def saved(self) -> str:
        """What the person chose here, for the next start."""
        ranges = [seconds for _, seconds in RANGES]
        mode, span = MODES.index(self.view.mode), ranges.index(self._range_s)
        return json.dumps({"mode": mode, "range": span, "sizes": self.view.sizes()})

    def restore(self, saved: str) -> None:
        """Take up what ``saved`` gave; anything else is ignored."""
        try:
            known = json.loads(saved)
            mode, span, sizes = int(known["mode"]), int(known["range"]), [int(n) for n in known["sizes"]]
        except (ValueError, KeyError, TypeError):
            return
        if 0 <= mode < len(MODES) and 0 <= span < len(RANGES) and len(sizes) == self.view.count():
            self.set_mode(mode)
            self.set_range(span)
            if any(sizes):
                self.view.setSizes(sizes)

    def _on_pause(self, paused: bool) -> None:
        words = tr("Go on") if paused else tr("Pause the plots (the engine goes on)")
        self.pause.setIcon(icon("play" if paused else "pause"))
        self.pause.setToolTip(words)
        self.pause.setAccessibleName(words)
        if not paused:
            self._paint()

    def _tick(self) -> None:
        """Some seven times a second: paint when there were steps; every two seconds while old ones scroll away."""
        if self.paused:
            return
        if self.history.n_steps != self._shown_steps:
            self._idle_frames = 0
            self._paint()
            return
        self._idle_frames += 1
        last = self.history.last
        moving = last is not None and self._clock() - last.started < self._range_s + 2
        if moving and self._idle_frames % _IDLE_FRAMES == 0:
            self._paint()

    def _paint_if_running(self) -> None:
        if not self.paused:
            self._paint()

    def _paint(self) -> None:
        if not self.isVisible():
            return
        now = self._clock()
        self._shown_steps = self.history.n_steps
        self.frames += 1
        series = self.history.series(self._range_s, now)
        self.view.show_history(self.history, series, self._range_s)
        self._say_now(series, now)

    def _say_now(self, series: Series, now: float) -> None:
        self.lamp.set_state(self.history.imbalance if self.history.first_at is not None else None)
        last = self.history.last
        if last is None:
            return
        decoding = sum(1 for s in last.streams if s.phase == "decoding")
        reading = sum(1 for s in last.streams if s.phase == "prefilling")
        if not last.streams or now - last.started > 2.0:
            self._say(tr("idle · {steps} so far", steps=count(last.step, "step")))
            return
        parts = [tr("{n} decoding", n=decoding)] if decoding or not reading else []
        parts += [tr("{n} reading", n=reading)] if reading else []
        parts += [tr("queue {n}", n=last.queued)]
        if decoding or not reading:  # nothing is written while prompts are read
            parts += [tr("{n:,.0f} tok/s", n=self.history.tokens_per_s(now))]
        self._say(" · ".join(parts))

    def _say(self, words: str) -> None:
        """Say what the engine does; where the bar has no room for it the choices go into their menu."""
        self.now.setText(words)
        self.now.setToolTip(words)
        self._fit_bar()

    def _fit_bar(self) -> None:
        said = min(self.now.sizeHint().width(), _SAID_MOST)
        self._said = max(self._said, said)  # it does not shrink again: else the choices would come and go
        more = self._said - _SAID
        for part, needed in self._wide:
            part.setVisible(self.width() >= needed + more)
        self.choices.setVisible(self.width() < _WIDE + more)


def state_words(state: EngineState) -> str:
    """A stage of the engine in a few words."""
    if state.stage == "ready":
        return tr("idle")
    if state.stage in ("compiling", "loading"):
        words = tr("{stage} {share:.0%}", stage=tr(state.stage), share=state.progress)
        return f"{words} · {state.detail}" if state.detail else words
    if state.stage == "failed":
        return tr("failed: {reason}", reason=state.error) if state.error else tr("failed")
    return tr("no model loaded") if state.stage == "empty" else tr(state.stage)
