"""The dot of a chat in tabs and in the list: its shape tells the state as well as its colour."""

from __future__ import annotations

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QIcon, QIconEngine, QPainter, QPen, QPixmap

from app.state.chat_controller import Activity
from app.text import tr
from app.theme.theme import Theme

_COLORS: dict[Activity, str] = {
    "idle": "faint",
    "waiting": "muted",
    "reading": "prefill",
    "writing": "accent",
    "failed": "diverged",
}


def activity_words(activity: Activity) -> str:
    """The state in words (for tooltips and screen readers)."""
    return {
        "idle": tr("idle"),
        "waiting": tr("waiting"),
        "reading": tr("reading the prompt"),
        "writing": tr("writing"),
        "failed": tr("failed"),
    }[activity]


def paint_dot(painter: QPainter, box: QRectF, activity: Activity) -> None:
    """Writing: full; reading: half full; waiting: a ring; failed: a square with a stroke; idle: a small dot."""
    color: QColor = Theme.current().color(_COLORS[activity])
    painter.save()
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    side = min(box.width(), box.height())
    centre, radius = box.center(), side / 2
    painter.setPen(QPen(color, max(side / 6, 1.2)))
    painter.setBrush(Qt.BrushStyle.NoBrush)
    inner = radius - max(side / 12, 0.6)
    match activity:
        case "writing":
            painter.setBrush(color)
            painter.drawEllipse(centre, inner, inner)
        case "reading":
            painter.drawEllipse(centre, inner, inner)
            painter.setBrush(color)
            painter.drawPie(QRectF(centre.x() - inner, centre.y() - inner, 2 * inner, 2 * inner), 90 * 16, -180 * 16)
        case "waiting":
            painter.drawEllipse(centre, inner, inner)
        case "failed":
            painter.drawLine(centre + QPointF(-inner, -inner), centre + QPointF(inner, inner))
            painter.drawLine(centre + QPointF(-inner, inner), centre + QPointF(inner, -inner))
        case "idle":
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(color)
            painter.drawEllipse(centre, radius * 0.55, radius * 0.55)
    painter.restore()


class _DotEngine(QIconEngine):
    def __init__(self, activity: Activity) -> None:
        super().__init__()
        self._activity = activity

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State) -> None:
        box = QRectF(rect)
        inset = box.width() * 0.2
        paint_dot(painter, box.adjusted(inset, inset, -inset, -inset), self._activity)

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        return self.scaledPixmap(size, mode, state, 1.0)

    def scaledPixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State, scale: float) -> QPixmap:
        image = QPixmap(size)
        image.fill(Qt.GlobalColor.transparent)
        painter = QPainter(image)
        self.paint(painter, image.rect(), mode, state)
        painter.end()
        return image

    def clone(self) -> QIconEngine:
        return _DotEngine(self._activity)


def dot_icon(activity: Activity) -> QIcon:
    """The dot as an icon that follows the theme."""
    return QIcon(_DotEngine(activity))
