"""The line under a reply: progress while it is written, then its figures, its ribbon and what can be done with it."""

from __future__ import annotations

import time
from dataclasses import dataclass

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QHBoxLayout, QLabel, QWidget

from app.panels.ribbon import Ribbon
from app.state.document import Message, ReplyStats
from app.state.reply_tracker import LiveReply
from app.text import tr
from app.theme import Theme, icon
from app.views.figures import asks_why, outcome_text, progress_text, speed_html, tokens_html
from app.views.parts import flow, label, link_button, tool_button
from app.views.progress import ReadingBar
from app.views.versions import VersionSwitch
from engine.port import EngineState

REPAINT_S = 0.2
"""How often the figures of a running reply change, in seconds: faster is only flicker."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a reply stands: (number, count) among its versions; at the branch's end; in a chat's first exchange."""

    versions: tuple[int, int] = (0, 1)
    is_last: bool = True
    is_first: bool = False


class ReplyActions(QWidget):
    """What can be done with a reply; quiet under older replies.

    Signals:
        copy_asked, regenerate_asked, continue_asked: what the buttons say.
        raw_toggled: (on) show the text as it was written.
        version_asked: (step) show another version of the reply.
    """

    copy_asked = Signal()
    regenerate_asked = Signal()
    continue_asked = Signal()
    raw_toggled = Signal(bool)
    version_asked = Signal(int)

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.copy = tool_button("copy", tr("Copy the reply as it was written"), self.copy_asked.emit)
        self.again = tool_button("regenerate", tr("Write another reply"), self.regenerate_asked.emit)
        self.go_on = tool_button("continue", tr("Continue this reply"), self.continue_asked.emit)
        self.raw = tool_button("raw", tr("Show the text as it was written"), lambda: None)
        self.raw.setCheckable(True)
        self.raw.toggled.connect(self.raw_toggled)
        self.versions = VersionSwitch()
        self.versions.step.connect(self.version_asked)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2)
        self._icons = {"copy": self.copy, "regenerate": self.again, "continue": self.go_on, "raw": self.raw}
        for widget in (*self._icons.values(), self.versions):
            row.addWidget(widget)

    def show_message(self, message: Message, place: Place) -> None:
        """Offer what makes sense for this reply."""
        has_text = bool(message.text)
        self.copy.setVisible(has_text)
        self.raw.setVisible(has_text)
        self.go_on.setVisible(place.is_last and has_text and message.status in ("stopped", "length", "evicted"))
        self.versions.show_place(*place.versions)
        for name, button in self._icons.items():
            button.setIcon(icon(name, "muted" if place.is_last else "faint"))
        self.adjustSize()


class Footer(QWidget):
    """Figures and actions of one reply.

    Signals:
        why_asked: why was not all reused?
        chain_asked: show what was reused.
    """

    why_asked = Signal()
    chain_asked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.words = _figures(self)
        self.tokens = _figures(self)
        self.tokens.linkActivated.connect(lambda _: self.chain_asked.emit())
        self.tokens.linkHovered.connect(self._on_link)
        self.bar = ReadingBar(self)
        self.ribbon = Ribbon(self)
        self.ribbon.clicked.connect(self.why_asked)
        self.why = link_button(tr("why not all?"), self.why_asked.emit, self)
        self.why.setProperty("tone", "danger")
        self.why.setFont(Theme.current().font("caption"))
        self.outcome = label("", "caption", self)
        self.actions_row = ReplyActions(self)
        self._told_at, self._told_phase = 0.0, ""
        self._stats: ReplyStats | None = None
        self._asks = False
        self._running = False
        self._parts = [self.words, self.tokens, self.bar, self.ribbon, self.why, self.outcome, self.actions_row]
        for widget in self._parts[1:]:
            widget.hide()
        Theme.current().changed.connect(self._show_figures)

    def show_message(self, message: Message, place: Place) -> None:
        """The final figures of a reply (or nothing but its buttons where it has none)."""
        stats = self._stats = message.stats
        self._running = False
        self._asks = stats is not None and asks_why(stats, expected=place.is_first)
        self._show_figures()
        self.bar.hide()
        self.words.setVisible(bool(stats is not None and self.words.text()))
        self.tokens.setVisible(stats is not None)
        self.ribbon.setVisible(stats is not None)
        if stats is not None:
            self.ribbon.set_counts(stats.n_prompt, stats.n_cached, stats.n_gen, stats.page_rows, stats.miss)
        self.why.setVisible(self._asks)
        self.outcome.setText(outcome_text(message))
        self.outcome.setVisible(bool(self.outcome.text()))
        self.actions_row.show_message(message, place)
        self.actions_row.show()

    def show_progress(self, live: LiveReply, state: EngineState) -> None:
        """What a running reply is doing."""
        now = time.monotonic()
        if live.phase == self._told_phase == "decoding" and now - self._told_at < REPAINT_S:
            return
        self._told_at, self._told_phase = now, live.phase
        if not self._running:
            self._running, self._stats = True, None
            for widget in (self.tokens, self.ribbon, self.why, self.outcome, self.actions_row):
                widget.hide()
            self.words.show()
        self.words.setText(progress_text(live, state).replace("   ", "&nbsp;&nbsp;&nbsp;"))
        self.bar.setVisible(live.phase == "prefilling")
        self.bar.set_values(live.n_cached, live.n_read, live.n_prompt)

    def told(self) -> str:
        """All figures that are shown, as rich text."""
        return " ".join(label.text() for label in (self.words, self.tokens) if not label.isHidden())

    def height_for(self, width: int) -> int:
        """Place everything for this width; returns the height."""
        return flow(self._parts, width, gap=10)

    def _show_figures(self) -> None:
        if self._stats is not None:
            strong = Theme.current().color("text").name()
            self.words.setText(speed_html(self._stats, strong))
            self.tokens.setText(tokens_html(self._stats, strong, self._asks))

    def _on_link(self, link: str) -> None:
        self.tokens.setToolTip(tr("Show this chain in the cache") if link else "")


def _figures(parent: QWidget) -> QLabel:
    label = QLabel(parent)
    label.setProperty("role", "caption")
    label.setTextFormat(Qt.TextFormat.RichText)
    label.setAccessibleName(tr("Figures of this reply"))
    return label
