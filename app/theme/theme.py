"""The theme: which palette is in force, and the one place that changes it.

The system's light or dark setting is followed live unless a person overrides it.
"""

from __future__ import annotations

from typing import Literal

from PySide6.QtCore import QObject, Qt, Signal
from PySide6.QtGui import QColor, QFont, QFontDatabase, QGuiApplication, QPalette
from PySide6.QtWidgets import QApplication

from app.theme import fonts
from app.theme.app_icon import app_icon
from app.theme.stylesheet import build
from app.theme.tokens import DARK, LIGHT, TOKEN_NAMES, Palette

ThemeMode = Literal["system", "light", "dark"]


class Theme(QObject):
    """Colours and fonts of the window.

    Signals:
        changing: it is about to change; whoever holds many widgets that nobody sees may let them go first.
        changed: the palette changed; painted widgets drop what they cached and repaint.
    """

    changing = Signal()
    changed = Signal()
    _current: Theme | None = None

    def __init__(self, app: QApplication | None = None) -> None:
        super().__init__(app)
        self._app = app
        self._mode: ThemeMode = "system"
        self._palette = LIGHT
        self._colors: dict[str, QColor] = {}
        self.mono_family = QFontDatabase.systemFont(QFontDatabase.SystemFont.FixedFont).family()

    @classmethod
    def install(cls, app: QApplication, mode: ThemeMode = "system") -> Theme:
        """Give ``app`` our style, fonts, icon and colours; called once, before the first window is shown."""
        theme = cls(app)
        cls._current = theme
        app.setStyle("Fusion")
        app.setWindowIcon(app_icon())
        theme.mono_family = fonts.install(app)
        theme._mode = mode
        QGuiApplication.styleHints().colorSchemeChanged.connect(theme._on_system_scheme)
        theme._tell_system()
        theme._apply(force=True)
        return theme

    @classmethod
    def current(cls) -> Theme:
        """The installed theme; a plain light one where none was installed (a widget shown on its own)."""
        if cls._current is None:
            cls._current = cls()
        return cls._current

    @property
    def mode(self) -> ThemeMode:
        """What the person chose: ``system``, ``light`` or ``dark``."""
        return self._mode

    def set_mode(self, mode: ThemeMode) -> None:
        """Follow the system, or stay light or dark."""
        if mode != self._mode:
            self._mode = mode
            self._tell_system()
            self._apply()

    @property
    def is_dark(self) -> bool:
        """Whether the dark palette is in force."""
        return self._palette.dark

    @property
    def palette(self) -> Palette:
        """The tokens in force."""
        return self._palette

    def color(self, name: str, alpha: float = 1.0) -> QColor:
        """A token as a colour; ``alpha`` 0..1. An unknown name is a ``KeyError``."""
        found = self._colors.get(name)
        if found is None:
            if name not in TOKEN_NAMES:
                raise KeyError(f"There is no colour named {name!r}.")
            found = self._colors[name] = QColor(getattr(self._palette, name))
        color = QColor(found)
        if alpha < 1.0:
            color.setAlphaF(alpha)
        return color

    def font(self, role: Literal["body", "small", "caption", "title", "mono", "mono_small"] = "body") -> QFont:
        """A font by role; sizes follow the application's font."""
        font = QFont(QApplication.font())
        scale = {"body": 1.0, "small": 0.92, "caption": 0.85, "title": 1.0, "mono": 0.96, "mono_small": 0.88}[role]
        font.setPointSizeF(font.pointSizeF() * scale)
        if role == "title":
            font.setWeight(QFont.Weight.DemiBold)
        if role.startswith("mono"):
            font.setFamily(self.mono_family)
            font.setStyleHint(QFont.StyleHint.Monospace)
            font.setFixedPitch(True)
        return font

    def _wanted(self) -> Palette:
        if self._mode == "system":
            return DARK if QGuiApplication.styleHints().colorScheme() == Qt.ColorScheme.Dark else LIGHT
        return DARK if self._mode == "dark" else LIGHT

    def _tell_system(self) -> None:
        """Let window frames and native dialogs follow an override."""
        hints = QGuiApplication.styleHints()
        if self._mode == "system":
            hints.unsetColorScheme()
        else:
            hints.setColorScheme(Qt.ColorScheme.Dark if self._mode == "dark" else Qt.ColorScheme.Light)

    def _on_system_scheme(self) -> None:
        self._apply()

    def _apply(self, *, force: bool = False) -> None:
        wanted = self._wanted()
        if wanted is self._palette and not force:
            return
        self.changing.emit()
        self._palette = wanted
        self._colors.clear()
        if self._app is not None:
            self._app.setPalette(qt_palette(wanted))
            self._app.setStyleSheet(build(wanted, self.mono_family))
        self.changed.emit()


def qt_palette(tokens: Palette) -> QPalette:
    """Our tokens as Qt's palette, for the parts that the stylesheet does not reach."""
    role = QPalette.ColorRole
    palette = QPalette()
    for name, value in (
        (role.Window, tokens.panel),
        (role.WindowText, tokens.text),
        (role.Base, tokens.panel),
        (role.AlternateBase, tokens.raised),
        (role.ToolTipBase, tokens.panel),
        (role.ToolTipText, tokens.text),
        (role.PlaceholderText, tokens.muted),
        (role.Text, tokens.text),
        (role.Button, tokens.panel),
        (role.ButtonText, tokens.text),
        (role.BrightText, tokens.diverged),
        (role.Highlight, tokens.accent_fill),
        (role.HighlightedText, tokens.on_accent),
        (role.Link, tokens.accent),
        (role.LinkVisited, tokens.shared),
        (role.Light, tokens.raised),
        (role.Midlight, tokens.line),
        (role.Mid, tokens.line),
        (role.Dark, tokens.faint),
        (role.Shadow, tokens.line),
        (role.Accent, tokens.accent),
    ):
        palette.setColor(name, QColor(value))
    for name in (role.WindowText, role.Text, role.ButtonText, role.HighlightedText):
        palette.setColor(QPalette.ColorGroup.Disabled, name, QColor(tokens.faint))
    palette.setColor(QPalette.ColorGroup.Disabled, role.Highlight, QColor(tokens.pressed))
    return palette
