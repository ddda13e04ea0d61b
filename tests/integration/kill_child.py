"""Writes chats as a person and an engine would, until it is killed.

Run as ``python kill_child.py``. It imports everything once and then, for each line ``folder seed`` on its standard
input, forks a process that works in that folder; the process id goes to standard output. What that process was promised
(the message is saved) and what the engine wrote when is noted in ``folder/journal``, one JSON list a line, each written
in one system call so that the end of the process cannot cut it.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path

from PySide6.QtCore import QCoreApplication, QTimer

from app.engine_thread import EngineBridge
from app.state.chat_controller import ChatController
from app.state.frame_clock import FrameClock
from app.state.sqlite_open import open_store
from tests.gui.fake_engine import FakeEngine

STEP_MS = 3
WORDS = ("lorem ", "ipsum ", "dolor, ", "sit\n", "amet 👍 ", "", "**x** ")


class Person:
    """Chats, edits, regenerates, stops and deletes by chance."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.journal = os.open(folder / "journal", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self.store, notice = open_store(folder / "data", lambda sentence: self.note("problem", sentence))
        if notice:
            self.note("problem", notice)
        self.bridge = EngineBridge(FakeEngine)
        self.engine: FakeEngine = self.bridge.port  # type: ignore[assignment]
        self.controller = ChatController(self.bridge, self.store, FrameClock())
        self.controller.reply_grew.connect(lambda chat, message, text: self.note("grew", chat, message, text))
        self.engine.ready()
        QCoreApplication.processEvents()
        self.timer = QTimer()
        self.timer.timeout.connect(self.act)
        self.timer.start(STEP_MS)

    def note(self, what: str, *facts: str) -> None:
        """Put a fact on record, with the time."""
        os.write(self.journal, (json.dumps([what, time.monotonic(), *facts]) + "\n").encode())

    def act(self) -> None:
        """One moment: mostly the engine writes; sometimes the person does something."""
        streams = [stream for stream, state in self.engine.states.items() if state.phase != "prefilling"]
        if streams and self.random.random() < 0.97:
            # No two pieces are alike, so that it can be told which of them are stored.
            self.engine.write(*((stream, f"{os.urandom(3).hex()} {self.random.choice(WORDS)}") for stream in streams))
            for stream in list(streams):
                if self.random.random() < 0.01:
                    self.engine.finish(stream)
            return
        chats = [head.id for head in self.controller.heads()]
        choice = self.random.random()
        if not chats or choice < 0.1 and len(chats) < 6:
            self.send(self.controller.new_chat())
        elif choice < 0.2 and len(chats) > 2:
            chat = self.random.choice(chats)
            self.note("deleting", chat)
            self.controller.delete(chat)
            if self.random.random() < 0.5:
                self.controller.undo_delete()
        else:
            self.change(self.random.choice(chats))

    def change(self, chat: str) -> None:
        """Edit, regenerate, rename, stop or go on in one chat."""
        path = self.controller.conversation(chat).path()
        replies = [message for message in path if message.role == "assistant"]
        match self.random.choice(("send", "edit", "again", "stop", "continue", "rename")):
            case "edit" if replies:
                text = f"edited {self.random.random()}"
                self.controller.edit(chat, path[0].id, text)
                self.note("saved", chat, text)
            case "again" if replies:
                self.controller.regenerate(chat, replies[-1].id)
            case "stop":
                self.controller.stop(chat)
            case "continue" if replies and replies[-1].text:
                self.controller.resume(chat, replies[-1].id)
            case "rename":
                self.controller.rename(chat, f"title {self.random.random()}")
            case _:
                self.send(chat)

    def send(self, chat: str) -> None:
        """A message; it is noted only when the controller said that it was taken."""
        text = f"message {self.random.random()}"
        if self.controller.send(chat, text):
            self.note("saved", chat, text)


def work(folder: Path, seed: int) -> None:
    """In the forked process: chat until killed."""
    app = QCoreApplication([])
    person = Person(folder, seed)
    QTimer.singleShot(20_000, app.quit)
    app.exec()
    person.store.close()


def main() -> None:
    """Fork a worker per line of input."""
    for line in sys.stdin:
        folder, seed = line.rsplit(" ", 1)
        child = os.fork()
        if child == 0:
            work(Path(folder), int(seed))
            os._exit(0)
        print(child, flush=True)
        os.waitpid(child, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    main()
