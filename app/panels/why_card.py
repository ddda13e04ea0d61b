"""The card "Why not all?": one cause in words, and the two texts around the first difference."""

from __future__ import annotations

import html
from collections.abc import Sequence
from functools import partial

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QVBoxLayout, QWidget

from app.panels.asks import Asks
from app.panels.markup import MARKUP
from app.panels.miss import Explanation
from app.panels.parts import SectionHeader, label, semibold, tool_button
from app.panels.words import shorten
from app.text import tr
from app.theme import Theme


class WhyCard(QWidget):
    """Explains one reply's miss.

    Signals:
        closed: the person closed the card.
        grown: the texts arrived; the card is taller now.
    """

    closed = Signal()
    grown = Signal()

    def __init__(self, bridge: Asks) -> None:
        super().__init__()
        self._bridge = bridge
        self._texts: tuple[str, str, str] | None = None
        self._asked = 0
        self.setAccessibleName(tr("Why not all?"))
        self.header = SectionHeader(tr("Why not all?"))
        close = tool_button("close", tr("Close the explanation"))
        close.clicked.connect(self._on_close)
        self.header.row.addWidget(close)
        self.sentence = label(wrap=True)
        self.sentence.setTextFormat(Qt.TextFormat.RichText)
        self.difference = label(wrap=True)
        self.difference.setTextFormat(Qt.TextFormat.RichText)
        self.difference.setAccessibleName(tr("The two texts around the first difference"))
        self.difference.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.note = label(role="muted", wrap=True)
        self._box = _framed("code", [self.difference], 8)
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self.header)
        column.addWidget(_framed("why", [self.sentence, self._box, self.note], 10))
        Theme.current().changed.connect(self._paint_difference)
        self.hide()

    def show_explanation(self, explanation: Explanation, whose: str) -> None:
        """Show a cause; the texts are decoded by the engine and follow."""
        self.header.figures.setText(whose)
        self.sentence.setText(f"{semibold(html.escape(explanation.cause) + '.')} {html.escape(explanation.sentence)}")
        self.note.setText(explanation.note)
        self.note.setVisible(bool(explanation.note))
        self._texts = None
        self._box.hide()
        self._asked += 1
        if explanation.stored or explanation.prompt:
            self._decode((explanation.common, explanation.stored, explanation.prompt))
        self.show()

    def _decode(self, parts: Sequence[tuple[int, ...]]) -> None:
        found: dict[int, str] = {}
        asked = self._asked

        def collect(number: int, text: str, *_: object) -> None:
            found[number] = text
            if len(found) == len(parts) and asked == self._asked:
                self._texts = (found[0], found[1], found[2])
                self._paint_difference()
                self.grown.emit()

        for number, tokens in enumerate(parts):
            if tokens:
                got, failed = partial(collect, number), partial(collect, number, "")
                self._bridge.ask(self._bridge.port.decode(tokens), got, failed)
            else:
                collect(number, "")

    def _paint_difference(self) -> None:
        if self._texts is None:
            return
        common, stored, prompt = without_markup(*self._texts)
        stored, prompt, after = trim_common_end(stored, prompt)
        theme = Theme.current()
        self.difference.setFont(theme.font("mono_small"))
        before = common if len(common) <= 28 else "… " + common[-26:].lstrip()
        inside_a_word = before and stored and not before[-1].isspace() and not stored[0].isspace()
        parts = [
            html.escape(_one_line(before)) + ("" if inside_a_word else " ") + _marked(stored, "diverged"),
            f'<span style="color:{theme.color("muted").name()}">→</span>',
            _marked(prompt, "cached"),
            html.escape(shorten(after, 24)),
        ]
        self.difference.setText(" ".join(p for p in parts if p))
        self._box.show()

    def _on_close(self) -> None:
        self._asked += 1
        self.hide()
        self.closed.emit()


def without_markup(common: str, stored: str, prompt: str) -> tuple[str, str, str]:
    """The texts without the template's control tokens, unless these are all that differs."""
    before, one, other = (MARKUP.sub(" ", text) for text in (common, stored, prompt))
    return (before.lstrip(), one, other) if one.strip() != other.strip() else (common, stored, prompt)


def trim_common_end(stored: str, prompt: str) -> tuple[str, str, str]:
    """Take off the words that both texts end with; returns both and what they share."""
    one, other = stored.split(" "), prompt.split(" ")
    n = 0
    while n < min(len(one), len(other)) - 1 and one[-1 - n] == other[-1 - n]:
        n += 1
    if not n:
        return stored, prompt, ""
    return " ".join(one[:-n]), " ".join(other[:-n]), " ".join(one[-n:])


def _one_line(text: str) -> str:
    return text.replace("\n", "⏎")


def _marked(text: str, token: str) -> str:
    """A stretch of text on its state's quiet background; what is not there is named."""
    theme = Theme.current()
    words = html.escape(_one_line(text if len(text) <= 60 else text[:58] + "…").strip()) or tr("(nothing)")
    back, front = theme.color(f"{token}_soft").name(), theme.color(token).name()
    return f'<span style="background-color:{back};color:{front}">{words}</span>'


def _framed(surface: str, parts: Sequence[QWidget], margin: int) -> QFrame:
    frame = QFrame()
    frame.setProperty("surface", surface)
    column = QVBoxLayout(frame)
    column.setContentsMargins(margin + 2, margin, margin, margin)
    column.setSpacing(6)
    for part in parts:
        column.addWidget(part)
    return frame
