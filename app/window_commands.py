"""The commands of the main window."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtWidgets import QDockWidget

from app.commands import Command
from app.text import tr
from app.views.tab_area import TabArea


class Window(Protocol):
    """What the commands need of the main window."""

    tabs: TabArea
    sidebar_dock: QDockWidget

    def new_chat(self) -> None: ...
    def stop_current(self) -> None: ...
    def regenerate_current(self) -> None: ...
    def continue_current(self) -> None: ...
    def edit_last(self) -> None: ...
    def edit_settings(self) -> None: ...
    def export_chat(self) -> None: ...
    def undo_delete(self) -> None: ...
    def focus_search(self) -> None: ...
    def split_current(self) -> None: ...
    def close_current(self) -> None: ...
    def toggle(self, dock: QDockWidget) -> None: ...
    def next_theme(self) -> None: ...
    def choose_model(self) -> None: ...
    def close(self) -> bool: ...


def window_commands(window: Window, cache_dock: QDockWidget, engine_dock: QDockWidget) -> list[Command]:
    """Every command, in the order of the menu."""
    tabs = window.tabs
    return [
        Command("new", tr("New chat"), "Ctrl+N", window.new_chat, "chat", "new-chat"),
        Command("stop", tr("Stop the reply"), "Ctrl+.", window.stop_current, "chat", "stop"),
        Command("again", tr("Write another reply"), "Ctrl+R", window.regenerate_current, "chat", "regenerate"),
        Command("continue", tr("Continue the reply"), "Ctrl+Shift+R", window.continue_current, "chat", "continue"),
        Command("edit", tr("Edit the last message"), "Ctrl+E", window.edit_last, "chat", "edit"),
        Command(
            "settings", tr("System prompt and sampling…"), "Ctrl+Shift+P", window.edit_settings, "chat", "settings"
        ),
        Command("export", tr("Export as Markdown…"), "Ctrl+S", window.export_chat, "chat", "export"),
        Command("undo", tr("Bring back the deleted chat"), "Ctrl+Shift+Z", window.undo_delete, "chat", "undo"),
        Command("search", tr("Search all chats"), "Ctrl+F", window.focus_search, "go", "search"),
        Command("next", tr("Next tab"), "Ctrl+Tab", lambda: tabs.cycle(1), "go"),
        Command("previous", tr("Previous tab"), "Ctrl+Shift+Tab", lambda: tabs.cycle(-1), "go"),
        Command("split", tr("Show this chat beside the others"), "Ctrl+\\", window.split_current, "go", "split"),
        Command("close", tr("Close the tab"), "Ctrl+W", window.close_current, "go", "close"),
        Command("sidebar", tr("Chats"), "Ctrl+B", lambda: window.toggle(window.sidebar_dock), "view", "sidebar"),
        Command("cache", tr("Cache"), "Ctrl+Shift+K", lambda: window.toggle(cache_dock), "view", "cache"),
        Command("engine", tr("Engine"), "Ctrl+Shift+E", lambda: window.toggle(engine_dock), "view", "engine"),
        Command("theme", tr("Light, dark or like the system"), "Ctrl+Shift+L", window.next_theme, "view", "moon"),
        Command("model", tr("Open a model…"), "Ctrl+O", window.choose_model, "app", "folder"),
        Command("quit", tr("Quit"), "Ctrl+Q", window.close, "app"),
    ]
