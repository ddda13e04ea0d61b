"""How the window looks: colour tokens, one stylesheet built from them, icons and fonts.

``Theme.install(app)`` is called once at start; everything else reads ``Theme.current()``.
"""

from app.theme.app_icon import app_icon
from app.theme.icons import icon, pixmap
from app.theme.theme import Theme, ThemeMode
from app.theme.tokens import DARK, LIGHT, TOKEN_NAMES, Palette

__all__ = ["DARK", "LIGHT", "TOKEN_NAMES", "Palette", "Theme", "ThemeMode", "app_icon", "icon", "pixmap"]
