"""The theme: both palettes complete, live switching, icons that follow it."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QColor, QGuiApplication, QIcon
from PySide6.QtWidgets import QPushButton

from app.theme import DARK, LIGHT, TOKEN_NAMES, Theme, app_icon, icon
from app.theme.tokens import mix


@pytest.fixture
def theme(qapp):
    """An installed theme that leaves the application as it was."""
    sheet, font, style = qapp.styleSheet(), qapp.font(), qapp.style().objectName()
    previous = Theme._current
    installed = Theme.install(qapp, "light")
    yield installed
    installed.set_mode("system")
    QGuiApplication.styleHints().colorSchemeChanged.disconnect(installed._on_system_scheme)
    Theme._current = previous
    qapp.setStyleSheet(sheet)
    qapp.setFont(font)
    qapp.setStyle(style)
    installed.deleteLater()


def _contrast(one: str, other: str) -> float:
    def luminance(value: str) -> float:
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in QColor(value).getRgbF()[:3]]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_palettes_hold_the_agreed_colours():
    assert (LIGHT.background, LIGHT.panel, LIGHT.accent, LIGHT.cached) == ("#f6f7f9", "#ffffff", "#2f6fe4", "#1f8f83")
    assert (DARK.background, DARK.panel, DARK.accent, DARK.cached) == ("#16181d", "#1c1f26", "#4f8ef7", "#2fa89a")
    assert mix("#ffffff", "#000000", 0.5) == "#808080"
    assert set(LIGHT.as_dict()) == set(TOKEN_NAMES) == set(DARK.as_dict())


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_text_is_readable_on_every_surface(palette):
    for surface in (palette.background, palette.panel, palette.raised, palette.accent_soft):
        assert _contrast(palette.text, surface) >= 7
        assert _contrast(palette.muted, surface) >= 4
    assert _contrast(palette.on_accent, palette.accent_fill) >= 4


def test_switching_changes_colours_stylesheet_and_tells_widgets(theme, qtbot):
    light_sheet = QGuiApplication.instance().styleSheet()
    assert theme.color("background").name() == "#f6f7f9"
    with qtbot.waitSignal(theme.changed):
        theme.set_mode("dark")
    assert theme.is_dark
    assert theme.color("background").name() == "#16181d"
    assert QGuiApplication.instance().styleSheet() != light_sheet
    assert QGuiApplication.styleHints().colorScheme() in (Qt.ColorScheme.Dark, Qt.ColorScheme.Unknown)
    with qtbot.waitSignal(theme.changed):
        theme.set_mode("light")
    assert QGuiApplication.instance().styleSheet() == light_sheet


def test_unknown_names_are_errors(theme):
    with pytest.raises(KeyError):
        theme.color("no-such-token")
    with pytest.raises(KeyError, match="no icon named"):
        icon("no-such-icon")


def test_icons_follow_the_theme_without_being_set_again(theme, qtbot):
    button = QPushButton(icon("cache", "text"), "Cache")
    qtbot.addWidget(button)

    def darkest() -> int:
        image = button.icon().pixmap(QSize(32, 32)).toImage()
        solid = [image.pixelColor(x, y) for x in range(32) for y in range(32)]
        return min(c.lightness() for c in solid if c.alpha() > 250)

    assert darkest() < 60
    theme.set_mode("dark")
    assert darkest() > 200


def test_every_icon_file_renders(theme):
    from importlib import resources

    names = [e.name[:-4] for e in resources.files("resources").joinpath("icons").iterdir() if e.name.endswith(".svg")]
    assert len(names) > 40
    for name in names:
        image = icon(name).pixmap(QSize(24, 24), QIcon.Mode.Disabled).toImage()
        assert any(image.pixelColor(x, y).alpha() for x in range(24) for y in range(24)), name


def test_application_icon_has_all_sizes(theme):
    assert {s.width() for s in app_icon().availableSizes()} >= {16, 32, 48, 128, 256, 512}
