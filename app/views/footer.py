"""The line under a reply: progress while it is written, then its figures, its ribbon and what can be done with it."""

from __future__ import annotations

import time

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QWidget

from app.panels.ribbon import Ribbon
from app.state.document import Message
from app.state.reply_tracker import LiveReply
from app.text import tr
from app.views.figures import asks_why, figures_html, outcome_text, progress_text
from app.views.parts import flow, label, link_button, tool_button
from app.views.progress import ReadingBar
from app.views.versions import VersionSwitch
from engine.port import EngineState

REPAINT_S = 0.2
"""How often the figures of a running reply change, in seconds: faster is only flicker."""


class Footer(QWidget):
    """Figures and actions of one reply.

    Signals:
        why_asked: why was not all reused?
        chain_asked: show what was reused.
        copy_asked, regenerate_asked, continue_asked: what the buttons say.
        raw_toggled: (on) show the text as it was written.
        version_asked: (step) show another version of the reply.
    """

    why_asked = Signal()
    chain_asked = Signal()
    copy_asked = Signal()
    regenerate_asked = Signal()
    continue_asked = Signal()
    raw_toggled = Signal(bool)
    version_asked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.words = QLabel(self)
        self.words.setProperty("role", "caption")
        self.words.setTextFormat(Qt.TextFormat.RichText)
        self.words.linkActivated.connect(lambda _: self.chain_asked.emit())
        self.bar = ReadingBar(self)
        self.ribbon = Ribbon(self)
        self.ribbon.clicked.connect(self.why_asked)
        self.outcome = label("", "caption", self)
        self.why = link_button(tr("why not all?"), self.why_asked.emit, self)
        self.why.setProperty("tone", "danger")
        self.versions = VersionSwitch(self)
        self.versions.step.connect(self.version_asked)
        self.copy = tool_button("copy", tr("Copy the reply as it was written"), self.copy_asked.emit, self)
        self.again = tool_button("regenerate", tr("Write another reply"), self.regenerate_asked.emit, self)
        self.go_on = tool_button("continue", tr("Continue this reply"), self.continue_asked.emit, self)
        self.raw = tool_button("raw", tr("Show the text as it was written"), lambda: None, self)
        self.raw.setCheckable(True)
        self.raw.toggled.connect(self.raw_toggled)
        self._told_at = 0.0
        self._parts = [self.words, self.bar, self.ribbon, self.why, self.outcome, self.versions]
        self._actions = [self.copy, self.again, self.go_on, self.raw]
        for widget in (self.bar, self.ribbon, self.why, self.outcome, self.versions, *self._actions):
            widget.hide()

    def show_message(self, message: Message, versions: tuple[int, int], is_last: bool) -> None:
        """The final figures of a reply (or nothing but its buttons where it has none)."""
        stats = message.stats
        self.bar.hide()
        self.words.setText(figures_html(stats) if stats is not None else "")
        self.words.setVisible(stats is not None)
        self.ribbon.setVisible(stats is not None)
        if stats is not None:
            self.ribbon.set_counts(stats.n_prompt, stats.n_cached, stats.n_gen, stats.page_rows, stats.miss)
        self.why.setVisible(stats is not None and asks_why(stats))
        self.outcome.setText(outcome_text(message))
        self.outcome.setVisible(bool(self.outcome.text()))
        self.versions.show_place(*versions)
        for button in (self.copy, self.raw):
            button.setVisible(bool(message.text))
        self.again.setVisible(True)
        self.go_on.setVisible(is_last and bool(message.text) and message.status in ("stopped", "length", "evicted"))

    def show_progress(self, live: LiveReply, state: EngineState) -> None:
        """What a running reply is doing."""
        now = time.monotonic()
        reading = live.phase == "prefilling"
        if live.phase == "decoding" and now - self._told_at < REPAINT_S:
            return
        self._told_at = now
        for widget in (self.ribbon, self.why, self.outcome, self.versions, *self._actions):
            widget.hide()
        self.words.setVisible(True)
        self.words.setText(progress_text(live, state).replace("   ", "&nbsp;&nbsp;&nbsp;"))
        self.bar.setVisible(reading)
        if reading:
            self.bar.set_values(live.n_cached, live.n_read, live.n_prompt)

    def height_for(self, width: int) -> int:
        """Place everything for this width; returns the height."""
        return flow([*self._parts, *self._actions], width, gap=10)
