"""How a model would fill the free memory, as one bar with its parts named."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRectF, QSize
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QWidget

from app.panels.words import size
from app.settings.model_facts import Fit, ModelFacts
from app.text import tr
from app.theme import Theme

BAR_HEIGHT = 10
DOT = 8


class MemoryBar(QWidget):
    """Weights, workspace and KV pool beside what is free."""

    def __init__(self) -> None:
        super().__init__()
        self._parts: list[tuple[str, str, int]] = []
        self._whole = 1
        self._free = 0
        Theme.current().changed.connect(self.update)

    def show_fit(self, facts: ModelFacts, fit: Fit) -> None:
        """Show what loading this file would take."""
        self._parts = [
            ("accent", tr("weights {n}", n=size(facts.weights_bytes)), facts.weights_bytes),
            ("prefill", tr("workspace {n}", n=size(facts.workspace_bytes)), facts.workspace_bytes),
            ("cached", tr("KV pool up to {n}", n=size(fit.pool)), fit.pool),
        ]
        self._free = fit.free
        self._whole = max(fit.most, fit.free, 1)
        self.setAccessibleName(", ".join(words for _, words, _ in self._parts) + ", " + self._free_words())
        self.setToolTip(self.accessibleName())
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(300, BAR_HEIGHT + 12 + self.fontMetrics().height())

    def minimumSizeHint(self) -> QSize:
        return QSize(200, self.sizeHint().height())

    def _free_words(self) -> str:
        return tr("{n} free", n=size(self._free))

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint_bar(painter, theme)
        painter.setFont(theme.font("caption"))
        metrics = painter.fontMetrics()
        x, base = 0, BAR_HEIGHT + 10 + metrics.ascent()
        for token, words, _ in self._parts:
            painter.setBrush(theme.color(token))
            painter.setPen(theme.color(token))
            painter.drawRoundedRect(QRectF(x + 0.5, base - DOT, DOT, DOT), 2, 2)
            painter.setPen(theme.color("muted"))
            painter.drawText(QPointF(x + DOT + 5, base), words)
            x += DOT + 5 + metrics.horizontalAdvance(words) + 14
        painter.setPen(theme.color("muted"))
        free = self._free_words()
        painter.drawText(QPointF(max(self.width() - metrics.horizontalAdvance(free), x), base), free)

    def _paint_bar(self, painter: QPainter, theme: Theme) -> None:
        width = float(self.width())
        outline = QPainterPath()
        outline.addRoundedRect(QRectF(0, 0, width, BAR_HEIGHT), 4, 4)
        painter.save()
        painter.setClipPath(outline)
        painter.fillRect(QRectF(0, 0, width, BAR_HEIGHT), theme.color("free"))
        x = 0.0
        for token, _, amount in self._parts:
            part = width * amount / self._whole
            painter.fillRect(QRectF(x, 0, part, BAR_HEIGHT), theme.color(token))
            x += part
        if self._free < self._whole:
            edge = width * self._free / self._whole
            painter.fillRect(QRectF(edge - 1, 0, 2, BAR_HEIGHT), theme.color("diverged"))
        painter.restore()
