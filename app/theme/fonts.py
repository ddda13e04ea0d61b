"""Fonts: the open fonts in ``resources/fonts`` give the window the same readable face on every system."""

from __future__ import annotations

from importlib import resources

from PySide6.QtGui import QFont, QFontDatabase
from PySide6.QtWidgets import QApplication

_SANS = ("Inter", "Inter Variable", "Noto Sans", "Segoe UI", "Cantarell", "Ubuntu", "DejaVu Sans", "Liberation Sans")
_MONO = (
    "JetBrains Mono",
    "Noto Sans Mono",
    "DejaVu Sans Mono",
    "Cascadia Mono",
    "Menlo",
    "Consolas",
    "Liberation Mono",
)
_MIN_POINTS, _MAX_POINTS = 9.5, 13.0


def load_bundled() -> list[str]:
    """Register every font file that comes with the application; returns the families."""
    families: list[str] = []
    folder = resources.files("resources").joinpath("fonts")
    if not folder.is_dir():
        return families
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if entry.name.lower().endswith((".ttf", ".otf")):
            number = QFontDatabase.addApplicationFontFromData(entry.read_bytes())
            families += QFontDatabase.applicationFontFamilies(number) if number >= 0 else []
    return families


def sans_family(bundled: list[str]) -> str | None:
    """The family for text: ours if there is one, else a good one of the system; None: leave Qt's choice."""
    known = set(QFontDatabase.families())
    ours = [f for f in bundled if "mono" not in f.lower()]
    return next((f for f in (*_SANS, *ours) if f in known), None)


def mono_family(bundled: list[str]) -> str:
    """The family for code and token text."""
    known = set(QFontDatabase.families())
    ours = [f for f in bundled if "mono" in f.lower()]
    fixed = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()
    return next((f for f in (*_MONO, *ours) if f in known), fixed)


def install(app: QApplication) -> str:
    """Set the application's font, keeping the system's size within readable bounds; returns the mono family."""
    bundled = load_bundled()
    font = QFont(app.font())
    points = font.pointSizeF()
    font.setPointSizeF(min(max(points, _MIN_POINTS), _MAX_POINTS) if points > 0 else 10.0)
    if (family := sans_family(bundled)) is not None:
        font.setFamily(family)
    font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
    app.setFont(font)
    return mono_family(bundled)
