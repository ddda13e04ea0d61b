"""Every action of the window in one list: its words, its shortcut and what it does.

The list feeds shortcuts and the menu (and whatever else lists commands), so nothing can be done with the mouse alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget

from app.text import tr
from app.theme import icon

Group = Literal["first", "chat", "go", "view", "cache", "model", "help", "last"]

_SUBMENUS: dict[Group, tuple[str, str]] = {
    "chat": ("Chat", "chat"),
    "go": ("Tabs", "split"),
    "view": ("View", "sidebar"),
    "cache": ("Cache", "cache"),
    "model": ("Model and engine", "model"),
    "help": ("Help", "logs"),
}
"""Words and icon of each submenu, in the order of the menu."""


@dataclass(frozen=True, slots=True)
class Command:
    """One action. ``group`` is its place in the menu; ``icon_name`` "" means none; ``also`` is a second shortcut."""

    key: str
    words: str
    shortcut: str
    run: Callable[[], object]
    group: Group = "chat"
    icon_name: str = ""
    also: str = ""

    @property
    def shortcuts(self) -> list[str]:
        """Every shortcut, the one that is shown first."""
        return [keys for keys in (self.shortcut, self.also) if keys]


class Commands:
    """The commands as actions of a window."""

    def __init__(self, window: QWidget) -> None:
        self._window = window
        self.known: dict[str, Command] = {}
        self.actions: dict[str, QAction] = {}

    def add(self, *commands: Command) -> None:
        """Register commands; a shortcut must not be taken twice."""
        for command in commands:
            action = QAction(command.words, self._window)
            if command.icon_name:
                action.setIcon(icon(command.icon_name))
            for keys in command.shortcuts:
                taken = next((c.key for c in self.known.values() if keys in c.shortcuts), None)
                if taken is not None:
                    raise ValueError(f"{keys} is the shortcut of {taken} already")
            action.setShortcuts([QKeySequence(keys) for keys in command.shortcuts])
            action.setShortcutContext(Qt.ShortcutContext.WindowShortcut)
            action.triggered.connect(lambda _=False, run=command.run: run())
            self._window.addAction(action)
            self.known[command.key] = command
            self.actions[command.key] = action

    def menu(self, parent: QWidget) -> QMenu:
        """All commands as a menu: the most usual ones, a submenu for each other group, and the last ones."""
        menu = QMenu(parent)
        menu.addActions(self._of("first"))
        menu.addSeparator()
        for group, (words, icon_name) in _SUBMENUS.items():
            if actions := self._of(group):
                submenu = menu.addMenu(icon(icon_name), tr(words))
                submenu.addActions(actions)
        menu.addSeparator()
        menu.addActions(self._of("last"))
        return menu

    def _of(self, group: Group) -> list[QAction]:
        return [self.actions[key] for key, command in self.known.items() if command.group == group]
