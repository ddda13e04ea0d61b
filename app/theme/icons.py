"""The icon family: single-colour strokes from ``resources/icons``, coloured when they are painted.

An icon knows the *name* of its colour and looks it up at each painting, so icons follow a switch of the theme
without being set again.
"""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from PySide6.QtCore import QByteArray, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QIcon, QIconEngine, QPainter, QPixmap
from PySide6.QtSvg import QSvgRenderer

from app.theme.theme import Theme


@lru_cache(maxsize=128)
def _source(name: str) -> str:
    entry = resources.files("resources").joinpath("icons", f"{name}.svg")
    if not entry.is_file():
        raise KeyError(f"There is no icon named {name!r} in resources/icons.")
    return entry.read_text(encoding="utf-8")


@lru_cache(maxsize=512)
def _renderer(name: str, color: str) -> QSvgRenderer:
    return QSvgRenderer(QByteArray(_source(name).replace("currentColor", color).encode()))


@lru_cache(maxsize=512)
def _render(name: str, color: str, width: int, height: int, ratio: float) -> QPixmap:
    """The icon at ``width`` x ``height`` device pixels."""
    image = QPixmap(width, height)
    image.fill(Qt.GlobalColor.transparent)
    painter = QPainter(image)
    side = min(width, height)
    _renderer(name, color).render(painter, QRectF((width - side) / 2, (height - side) / 2, side, side))
    painter.end()
    image.setDevicePixelRatio(ratio)
    return image


class _StrokeEngine(QIconEngine):
    """Paints one stroke icon in the theme's colour of the moment."""

    def __init__(self, name: str, color: str, on_color: str) -> None:
        super().__init__()
        self._name, self._color, self._on_color = name, color, on_color
        _source(name)

    def _token(self, mode: QIcon.Mode, state: QIcon.State) -> str:
        if mode == QIcon.Mode.Disabled:
            return "faint"
        return self._on_color if state == QIcon.State.On else self._color

    def _hex(self, mode: QIcon.Mode, state: QIcon.State) -> str:
        return Theme.current().color(self._token(mode, state)).name()

    def paint(self, painter: QPainter, rect: QRect, mode: QIcon.Mode, state: QIcon.State) -> None:
        side = min(rect.width(), rect.height())
        target = QRectF(rect.x() + (rect.width() - side) / 2, rect.y() + (rect.height() - side) / 2, side, side)
        _renderer(self._name, self._hex(mode, state)).render(painter, target)

    def pixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State) -> QPixmap:
        return self.scaledPixmap(size, mode, state, 1.0)

    def scaledPixmap(self, size: QSize, mode: QIcon.Mode, state: QIcon.State, scale: float) -> QPixmap:
        width, height = round(size.width() * scale), round(size.height() * scale)
        return QPixmap(_render(self._name, self._hex(mode, state), width, height, scale))

    def clone(self) -> QIconEngine:
        return _StrokeEngine(self._name, self._color, self._on_color)


def icon(name: str, color: str = "muted", on_color: str = "accent") -> QIcon:
    """The icon ``resources/icons/<name>.svg`` in a token's colour; ``on_color`` when its button is checked.

    It follows the theme by itself. An unknown name is a ``KeyError``.
    """
    return QIcon(_StrokeEngine(name, color, on_color))


def pixmap(name: str, color: str = "muted", size: int = 16, ratio: float = 1.0) -> QPixmap:
    """One icon as a pixmap in today's colour, ``size`` logical pixels at device pixel ratio ``ratio``."""
    side = round(size * ratio)
    return QPixmap(_render(name, Theme.current().color(color).name(), side, side, ratio))
