"""The text of a reply: its thinking, folded, and its answer."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QWidget

from app.views.blocks.canvas import Canvas
from app.views.thinking import ThinkingFold
from engine.text.thinking import MARKERS, Part, ThinkingSplitter

GAP = 6


class ReplyText(QWidget):
    """Shows a text that may grow; in plain form all of it as it was written.

    ``begins_inside``: the text starts within thinking that the prompt opened; to be said before the first word.

    Signals:
        height_changed: it needs another height now.
    """

    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.canvas = Canvas(self)
        self.canvas.height_changed.connect(self.height_changed)
        self.fold: ThinkingFold | None = None
        self.begins_inside = False
        self._splitter: ThinkingSplitter | None = None
        self._source: list[str] = []
        self._growing = False
        self._plain = False

    @property
    def source(self) -> str:
        """The text as it was written."""
        return "".join(self._source)

    @property
    def busy(self) -> bool:
        """Whether text waits to be shown."""
        return self.canvas.busy or (self.fold is not None and self.fold.canvas.busy)

    def set_text(self, text: str, *, growing: bool) -> None:
        """Show this text; ``growing``: more follows."""
        self._drop_fold()
        self._splitter = None
        self._source, self._growing = [], growing
        self.canvas.set_text("", growing=True)
        self.append(text)
        if not growing:
            self._growing = True
            self.finish()
        self.refresh()

    def append(self, text: str) -> None:
        """More text; it is shown at the next ``refresh``."""
        self._source.append(text)
        if self._plain:
            self.canvas.append(text)
        elif text:
            if self._splitter is None:
                self._splitter = ThinkingSplitter(MARKERS, inside=self.begins_inside)
            self._show(self._splitter.push(text))

    def refresh(self) -> None:
        """Show what was added."""
        self.canvas.refresh()
        if self.fold is not None:
            self.fold.canvas.refresh()

    def resume(self) -> None:
        """More follows after all."""
        if not self._growing:
            self.set_text(self.source, growing=True)

    def finish(self) -> None:
        """Nothing follows."""
        if self._growing:
            self._growing = False
            if self._splitter is not None:
                self._show(self._splitter.flush())
            if self.fold is not None:
                self.fold.set_open_end(False)
            self.canvas.finish()

    def set_plain(self, on: bool) -> None:
        """Show the text as it was written, or as Markdown."""
        if on != self._plain:
            self._plain = on
            self.canvas.set_plain(on)
            self.set_text(self.source, growing=self._growing)

    def height_for(self, width: int) -> int:
        """Place the parts for this width; returns the height."""
        y = 0
        if self.fold is not None:
            y = self.fold.height_for(width)
            self.fold.setGeometry(0, 0, width, y)
            y += GAP
        height = self.canvas.height_for(width)
        self.canvas.setGeometry(0, y, width, height)
        return y + height

    def _show(self, parts: list[Part]) -> None:
        for part in parts:
            if part.kind == "answer":
                self.canvas.append(part.text)
            else:
                self._the_fold().canvas.append(part.text)
        if self.fold is not None and self._splitter is not None and not self._splitter.in_reasoning:
            self.fold.set_open_end(False)

    def _the_fold(self) -> ThinkingFold:
        if self.fold is None:
            self.fold = ThinkingFold(self)
            self.fold.height_changed.connect(self.height_changed)
            self.fold.canvas.link_clicked.connect(self.canvas.link_clicked)
            self.fold.show()
            self.height_changed.emit()
        return self.fold

    def _drop_fold(self) -> None:
        if self.fold is not None:
            self.fold.hide()
            self.fold.deleteLater()
            self.fold = None
