"""Every action of the window in one list: its words, its shortcut and what it does.

The list feeds shortcuts and the menu (and whatever else lists commands), so nothing can be done with the mouse alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtWidgets import QMenu, QWidget

from app.theme import icon


@dataclass(frozen=True, slots=True)
class Command:
    """One action. ``group`` parts the menu; ``icon_name`` "" means none; ``also`` is a second shortcut."""

    key: str
    words: str
    shortcut: str
    run: Callable[[], object]
    group: str = "chat"
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
        """All commands as a menu, parted by group."""
        menu = QMenu(parent)
        group = ""
        for key, command in self.known.items():
            if group and command.group != group:
                menu.addSeparator()
            group = command.group
            menu.addAction(self.actions[key])
        return menu
