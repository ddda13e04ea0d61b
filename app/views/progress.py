"""A thin bar: how much of a prompt was reused, is read, and is still to be read."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPainterPath, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.text import tr
from app.theme.theme import Theme


class ReadingBar(QWidget):
    """Reused tokens in the colour of the cache, read ones in the colour of prefill."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cached = self._read = 0
        self._total = 1
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        Theme.current().changed.connect(self.update)

    def set_values(self, cached: int, read: int, total: int) -> None:
        """Tokens reused, read (the reused ones included) and all."""
        self._cached, self._read, self._total = cached, read, max(total, 1)
        self.setAccessibleName(tr("reading {read:,} of {total:,} tokens", read=read, total=total))
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(140, 6)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme = Theme.current()
        shape = QPainterPath()
        shape.addRoundedRect(QRectF(self.rect()), 3, 3)
        painter.setClipPath(shape)
        painter.setPen(Qt.PenStyle.NoPen)
        painter.fillRect(self.rect(), theme.color("free"))
        width, height = self.width(), self.height()
        cached = width * self._cached / self._total
        read = width * self._read / self._total
        painter.fillRect(QRectF(0, 0, cached, height), theme.color("cached"))
        painter.fillRect(QRectF(cached, 0, max(read - cached, 0), height), theme.color("prefill"))
        painter.end()


class ContextMeter(QWidget):
    """How much of the context a chat fills; the colour warns before it is full."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._share = 0.0
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        Theme.current().changed.connect(self.update)

    def set_share(self, share: float) -> None:
        """From 0 (empty) to 1 (full), in hundredths."""
        share = round(min(max(share, 0.0), 1.0), 2)
        if share != self._share:
            self._share = share
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(112, 6)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        theme = Theme.current()
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(theme.color("free"))
        painter.drawRoundedRect(QRectF(self.rect()), 3, 3)
        if self._share > 0:
            token = "accent" if self._share < 0.8 else "prefill" if self._share < 0.95 else "diverged"
            painter.setBrush(theme.color(token))
            painter.drawRoundedRect(QRectF(0, 0, max(self.width() * self._share, 4), self.height()), 3, 3)
        painter.end()
