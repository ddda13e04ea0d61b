"""The program itself, started as a person starts it, with somebody who acts in its window.

``python real_driver.py PART MODEL``: one JSON object per line on standard output says what was seen. The program runs
in its own event loop and ends as it ends for a person.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))

from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from app import __main__ as program
from app import application

QUESTION = "What is the capital of France?"


def say(**seen: Any) -> None:
    """One line for whoever started us."""
    print(json.dumps(seen), flush=True)


def when(condition: Callable[[], Any], then: Callable[[], None]) -> None:
    """Call ``then`` once, as soon as ``condition()`` is true."""
    timer = QTimer(QApplication.instance())
    timer.setInterval(10)

    def look() -> None:
        if condition():
            timer.stop()
            timer.deleteLater()
            then()

    timer.timeout.connect(look)
    timer.start()


class Person:
    """Acts in the window of a running program."""

    def __init__(self, running: application.Application) -> None:
        self.running = running
        self.window = running.window

    def ready(self) -> bool:
        """Whether a model is loaded."""
        return self.running.bridge.engine_state.stage == "ready"

    def ask(self) -> None:
        """Type where the focus is, and press Enter."""
        field = self.window.focusWidget()
        QTest.keyClicks(field, QUESTION)
        QTest.keyClick(field, Qt.Key.Key_Return)

    def look(self) -> None:
        """Start: tell how large the window is on its screen."""
        when(self.window.isActiveWindow, self._tell_place)

    def _tell_place(self) -> None:
        frame, room = self.window.frameGeometry(), self.window.screen().availableGeometry()
        docks = (self.window.sidebar_dock, self.window.cache_dock, self.window.engine_dock)
        say(
            frame=[frame.x(), frame.y(), frame.width(), frame.height()],
            room=[room.x(), room.y(), room.width(), room.height()],
            docks=[dock.isVisible() for dock in docks],
            bottom=self.window.engine_dock.mapToGlobal(self.window.engine_dock.rect().bottomLeft()).y(),
        )
        self.window.close()

    def use(self) -> None:
        """Start: tell when (Unix seconds) the window is there, painted, and takes what is typed."""
        when(self._usable, lambda: (say(at=time.time()), self.window.close()))

    def _usable(self) -> bool:
        handle, field = self.window.windowHandle(), self.window.focusWidget()
        return handle is not None and handle.isExposed() and field is not None and field.isVisible()

    def chat(self) -> None:
        """Start: ask something, wait for the reply, look at what is on screen, close the window."""
        when(self.ready, self.ask)
        when(self._answered, self._tell_chat)

    def _last(self) -> Any:
        return self.running.controller.conversation(self.window.tabs.current_chat() or "").last()

    def _answered(self) -> bool:
        last = self._last()
        return last is not None and last.role == "assistant" and not last.is_open

    def _tell_chat(self) -> None:
        pane = self.window.current_pane()
        assert pane is not None
        picture = self.window.screen().grabWindow(self.window.winId()).toImage()
        reply = pane.view.viewport().grab().toImage()
        colors = {reply.pixel(x, y) for x in range(0, reply.width(), 3) for y in range(0, reply.height(), 3)}
        say(text=self._last().text, size=[picture.width(), picture.height()], colors=len(colors))
        self.window.close()

    def stream(self) -> None:
        """Start: ask something, and tell when the reply is being written; somebody else ends the program."""
        when(self.ready, self.ask)
        when(lambda: self._last() is not None and self._last().text, lambda: say(writing=True))

    def compile(self) -> None:
        """Start: tell when kernels are being compiled; somebody else ends the program."""
        state = lambda: self.running.bridge.engine_state  # noqa: E731
        when(lambda: state().stage == "compiling", lambda: say(compiling=True))


class Watched(application.Application):
    """The program's own objects, with a person in front of them."""

    def show(self, model: str | None = None) -> None:
        """Show the window, and begin."""
        super().show(model)
        self.person = Person(self)
        getattr(self.person, sys.argv[1])()


if __name__ == "__main__":
    application.Application = Watched  # type: ignore[misc]
    sys.exit(program.main(sys.argv[2:]))
