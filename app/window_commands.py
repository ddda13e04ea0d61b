"""The commands of the main window."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtWidgets import QDockWidget

from app.commands import Command
from app.panels.cache_dock import CacheDock
from app.state.serving import Serving
from app.text import tr
from app.views.tab_area import TabArea
from app.window_dialogs import WindowDialogs


class Window(Protocol):
    """What the commands need of the main window."""

    tabs: TabArea
    sidebar_dock: QDockWidget
    dialogs: WindowDialogs
    serving: Serving

    def new_chat(self) -> None: ...
    def stop_current(self) -> None: ...
    def regenerate_current(self) -> None: ...
    def continue_current(self) -> None: ...
    def edit_last(self) -> None: ...
    def edit_settings(self) -> None: ...
    def export_chat(self, chat: str | None = None, form: str = "markdown") -> None: ...
    def rename_current(self) -> None: ...
    def delete_current(self) -> None: ...
    def copy_last_reply(self) -> None: ...
    def focus_input(self) -> None: ...
    def stop_loading(self) -> None: ...
    def reload_model(self) -> None: ...
    def undo_delete(self) -> None: ...
    def focus_search(self) -> None: ...
    def split_current(self) -> None: ...
    def close_current(self) -> None: ...
    def toggle(self, dock: QDockWidget) -> None: ...
    def next_theme(self) -> None: ...
    def choose_model(self) -> None: ...
    def close(self) -> bool: ...


def window_commands(window: Window, cache_dock: CacheDock, engine_dock: QDockWidget) -> list[Command]:
    """Every command, in the order of the menu."""
    return [
        *_chat_commands(window),
        *_go_commands(window),
        *_view_commands(window, cache_dock, engine_dock),
        *_app_commands(window),
    ]


def _chat_commands(window: Window) -> list[Command]:
    return [
        Command("new", tr("New chat"), "Ctrl+N", window.new_chat, "first", "new-chat"),
        Command("stop", tr("Stop the reply"), "Ctrl+.", window.stop_current, "chat", "stop"),
        Command("again", tr("Write another reply"), "Ctrl+R", window.regenerate_current, "chat", "regenerate"),
        Command("continue", tr("Continue the reply"), "Ctrl+Shift+R", window.continue_current, "chat", "continue"),
        Command("edit", tr("Edit the last message"), "Ctrl+E", window.edit_last, "chat", "edit"),
        Command("copy", tr("Copy the last reply"), "Ctrl+Shift+C", window.copy_last_reply, "chat", "copy"),
        Command("chat", tr("System prompt and sampling…"), "Ctrl+Shift+S", window.edit_settings, "chat", "settings"),
        Command("rename", tr("Rename the chat"), "F2", window.rename_current, "chat", "edit"),
        Command("export", tr("Export as Markdown…"), "Ctrl+S", window.export_chat, "chat", "export"),
        Command(
            "export_json",
            tr("Export as JSON…"),
            "Ctrl+Shift+J",
            lambda: window.export_chat(form="json"),
            "chat",
            "export",
        ),
        Command("delete", tr("Delete the chat"), "Ctrl+Shift+Backspace", window.delete_current, "chat", "delete"),
        Command("undo", tr("Bring back the deleted chat"), "Ctrl+Shift+Z", window.undo_delete, "chat", "undo"),
    ]


def _go_commands(window: Window) -> list[Command]:
    tabs = window.tabs
    return [
        Command("search", tr("Search all chats"), "Ctrl+F", window.focus_search, "go", "search"),
        Command("input", tr("Write a message"), "Ctrl+I", window.focus_input, "go", "edit"),
        Command("next", tr("Next tab"), "Ctrl+Tab", lambda: tabs.cycle(1), "go"),
        Command("previous", tr("Previous tab"), "Ctrl+Shift+Tab", lambda: tabs.cycle(-1), "go"),
        Command("split", tr("Show this chat beside the others"), "Ctrl+\\", window.split_current, "go", "split"),
        Command("close", tr("Close the tab"), "Ctrl+W", window.close_current, "go", "close"),
    ]


def _view_commands(window: Window, cache_dock: CacheDock, engine_dock: QDockWidget) -> list[Command]:
    return [
        Command("sidebar", tr("Chats"), "Ctrl+B", lambda: window.toggle(window.sidebar_dock), "view", "sidebar"),
        Command("cache", tr("Cache"), "Ctrl+Shift+K", lambda: window.toggle(cache_dock), "cache", "cache"),
        Command("engine", tr("Engine"), "Ctrl+Shift+E", lambda: window.toggle(engine_dock), "view", "engine"),
        Command(
            "release_all", tr("Release all chains…"), "Ctrl+Shift+D", cache_dock.ask_release_all, "cache", "release"
        ),
        Command("theme", tr("Light, dark or like the system"), "Ctrl+Shift+L", window.next_theme, "view", "moon"),
    ]


def _app_commands(window: Window) -> list[Command]:
    dialogs = window.dialogs
    return [
        Command("palette", tr("Commands…"), "Ctrl+K", dialogs.palette, "first", "palette", also="Ctrl+Shift+P"),
        Command("settings", tr("Settings…"), "Ctrl+,", dialogs.settings, "first", "settings"),
        Command("models", tr("Models…"), "Ctrl+M", lambda: dialogs.models(), "model", "model"),
        Command("model", tr("Open a model file…"), "Ctrl+O", window.choose_model, "model", "folder"),
        Command("reload", tr("Load the model again"), "Ctrl+Shift+M", window.reload_model, "model", "regenerate"),
        Command("stop_loading", tr("Stop loading"), "Ctrl+Shift+.", window.stop_loading, "model", "stop"),
        Command(
            "serve", tr("Serve on this machine: on or off"), "Ctrl+Shift+A", window.serving.toggle, "model", "serve"
        ),
        Command("log", tr("Log and reports"), "F12", lambda: dialogs.log(), "help", "logs"),
        Command("quit", tr("Quit"), "Ctrl+Q", window.close, "last"),
    ]
