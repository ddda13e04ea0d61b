"""Rules and fixtures of the window's tests.

A test fails when Qt says anything, when a thread or a visible window is left behind, or when an exception was raised in
a slot (pytest-qt sees to that); Python's warnings are errors in the whole suite.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from PySide6.QtCore import QDeadlineTimer, QThread
from PySide6.QtWidgets import QApplication

from app.settings.keeper import SettingsKeeper
from app.state.store import ChatStore
from app.theme import Theme
from engine.hosting.bundle import Loader
from tests.gui.harness import Harness

OFFSCREEN_NOTE = "This plugin does not support "
"""The virtual screen says this whenever a window has a size hint or is raised; it is no fault of ours."""

JOIN_S = 2.0


def _native_threads() -> set[str]:
    """Ids of this process's engine threads (where the system tells)."""
    tasks = Path("/proc/self/task")
    if not tasks.is_dir():
        return set()
    names = {}
    for task in tasks.iterdir():
        try:
            names[task.name] = (task / "comm").read_text().strip()
        except OSError:  # it ended while we looked
            continue
    return {number for number, name in names.items() if name == "engine"}


@pytest.fixture(scope="session")
def qapp_args() -> list[str]:
    """A virtual screen as large as a usual desk's (its own default is 800 × 800: on that docks begin hidden)."""
    if os.environ["QT_QPA_PLATFORM"] != "offscreen":
        return ["pytest"]
    screen = os.path.relpath(Path(__file__).with_name("screen.json"))  # a drive's colon would part the option
    return ["pytest", "-platform", f"offscreen:configfile={screen}"]


@pytest.fixture(autouse=True)
def leaves_nothing_behind(qapp: QApplication, qtlog) -> Iterator[None]:
    """No Qt message, no thread and no visible window outlives a test."""
    threads, native = set(threading.enumerate()), _native_threads()
    visible = {id(widget) for widget in qapp.topLevelWidgets() if widget.isVisible()}
    yield
    fresh = [t for t in threading.enumerate() if t not in threads and t.is_alive()]
    for thread in fresh:
        if not isinstance(thread, threading._DummyThread):
            thread.join(JOIN_S)
    left = [t.name for t in fresh if t.is_alive() and not isinstance(t, threading._DummyThread)]
    windows = [w for w in qapp.topLevelWidgets() if w.isVisible() and id(w) not in visible]
    for widget in windows:
        widget.hide()
    messages = [record.message for record in qtlog.records if OFFSCREEN_NOTE not in record.message]
    assert not messages, f"Qt said: {messages}"
    assert not left, f"threads left behind: {left}"
    deadline = QDeadlineTimer(1000)
    while not _native_threads() <= native and not deadline.hasExpired():
        QThread.yieldCurrentThread()
    assert _native_threads() <= native, "an engine thread is still running"
    assert not windows, f"windows left open: {windows}"


@pytest.fixture(scope="session")
def installed_theme(qapp: QApplication) -> Theme:
    """Our look, once for all tests of the window."""
    return Theme.install(qapp, "light")


@pytest.fixture(scope="session")
def real_loader(smollm2: Any) -> Loader:
    """Hands the shared model to real engine loops; its template process runs before the first test counts threads."""
    from tests.gui.real_engine import shared_loader

    smollm2.renderer().warm()
    return shared_loader(smollm2)


@pytest.fixture
def make_window(
    qtbot, qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, installed_theme: Theme
) -> Iterator[Callable[..., Harness]]:
    """Makes windows over a fake engine; all of them are closed at the end."""
    monkeypatch.setenv("KVSCOPE_DATA_DIR", str(tmp_path))
    made: list[Harness] = []

    def make(store: ChatStore | None = None, *, ready: bool = True) -> Harness:
        harness = Harness(qtbot, SettingsKeeper(tmp_path), store, ready=ready)
        made.append(harness)
        return harness

    yield make
    for harness in made:
        harness.close()


@pytest.fixture
def window(make_window: Callable[..., Harness]) -> Harness:
    """One window, its engine ready."""
    return make_window()
