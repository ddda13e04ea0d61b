"""The one stylesheet of the window, built from the tokens.

Widgets choose a look by dynamic properties, so that no widget needs a stylesheet of its own:

* ``variant`` on buttons: ``primary``, ``secondary`` (default of QPushButton), ``ghost`` (default of QToolButton),
  ``danger``, ``link``, ``segment`` (checkable, in a row);
* ``role`` on labels: ``title``, ``heading``, ``muted``, ``caption``, ``danger``, ``mono``;
* ``surface`` on frames and widgets: ``background``, ``panel``, ``raised``, ``card``, ``bubble``, ``code``, ``why``,
  ``warning``, ``bar`` (a dock's title bar), ``composer``.
"""

from __future__ import annotations

from importlib import resources
from string import Template

from PySide6.QtCore import QDir

from app.theme.tokens import Palette

_SHEETS = ("base", "buttons", "inputs", "views", "docks", "chat")


def build(tokens: Palette, mono_family: str) -> str:
    """The stylesheet for one palette."""
    folder = resources.files("resources")
    QDir.setSearchPaths("icons", [str(folder.joinpath("icons"))])
    names = {**tokens.as_dict(), "mono": mono_family, "tone": "dark" if tokens.dark else "light"}
    parts = [folder.joinpath("themes", f"{name}.qss").read_text(encoding="utf-8") for name in _SHEETS]
    return Template("\n".join(parts)).substitute(names)
