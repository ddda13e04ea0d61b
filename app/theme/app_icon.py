"""The application's icon: four pages of the pool, two active, one cached, one shared."""

from __future__ import annotations

from importlib import resources

from PySide6.QtGui import QIcon, QPixmap

SIZES = (16, 24, 32, 48, 64, 128, 256, 512)


def app_icon() -> QIcon:
    """The icon in all sizes that ship with the application."""
    icon = QIcon()
    folder = resources.files("resources").joinpath("icons", "app")
    for size in SIZES:
        entry = folder.joinpath(f"kvscope-{size}.png")
        if entry.is_file():
            pixmap = QPixmap()
            pixmap.loadFromData(entry.read_bytes())
            icon.addPixmap(pixmap)
    return icon
