"""The objects of one run of the window, and that run from its first to its last moment."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
from typing import NoReturn

from PySide6.QtCore import QObject, QTimer, Signal
from PySide6.QtWidgets import QApplication

from app import crash, logs
from app.engine_thread import EngineBridge, PortFactory
from app.main_window import MainWindow
from app.settings.keeper import SettingsKeeper
from app.settings.values import Settings
from app.single_instance import SingleInstance
from app.state.chat_controller import ChatController
from app.state.frame_clock import FrameClock
from app.state.model_opener import ModelOpener
from app.state.sqlite_open import open_store
from app.state.store import ChatStore
from app.theme import Theme
from engine.catalog import data_dir
from engine.hosting.bundle import Bundle, LoadProgress
from engine.loop import EngineLoop
from engine.port import EnginePort, EngineSink, EngineState, LoadOptions

log = logging.getLogger(__name__)

CLOSE_MS = 1800
"""How long the engine may take to end, in milliseconds."""


SWITCH_S = 0.0005
"""How long the window's Python may keep the engine's thread from its next step, in seconds: with Python's usual 5 ms
a step waits several times longer when something is painted just then."""


WINDOW_NICE = 4
"""How far this thread stands behind the engine's for the processors' time: a frame that comes a few milliseconds later
is not seen, a thread of the engine that is put aside for it keeps all others waiting."""


def give_way() -> None:
    """Let the engine go first where threads have priorities of their own (Linux). For the window's thread, and after
    the engine's has started, which would inherit it."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, 0, max(WINDOW_NICE, os.getpriority(os.PRIO_PROCESS, 0)))


class Voice(QObject):
    """Carries what other threads have to say to the window.

    Signals:
        said: (text).
    """

    said = Signal(str)


class Application:
    """The objects of one run, in the order in which they depend on each other."""

    def __init__(self, make_port: PortFactory, store: ChatStore, settings: SettingsKeeper) -> None:
        self.store = store
        self.settings = settings
        self.bridge = EngineBridge(make_port)
        self.clock = FrameClock()
        self.controller = ChatController(self.bridge, store, self.clock)
        self.controller.set_defaults(settings.value.chat)
        self.opener = ModelOpener(self.bridge, settings)
        self.window = MainWindow(self.bridge, self.controller, self.opener, settings)
        settings.changed.connect(self._on_settings)
        settings.failed.connect(self.window.toast.say)

    def show(self, model: str | None = None) -> None:
        """Show the window, then start the engine and open ``model`` (None: the default one)."""
        self.bridge.start()
        self.bridge.announce(EngineState("loading"))
        self.window.show()
        QTimer.singleShot(0, lambda: self.opener.open(model))
        self.window.dialogs.offer_crash_report()

    def say_saving(self, sentence: str) -> None:
        """What is wrong with keeping the chats, "" when all is well."""
        self.window.notices.say("store", sentence)

    def _on_settings(self, before: Settings) -> None:
        now = self.settings.value
        Theme.current().set_mode(now.theme)
        self.controller.set_defaults(now.chat)

    def come_forward(self, file: str = "", token: str = "") -> None:
        """Another start wants this window; ``token`` lets it take the focus where the desktop asks for one."""
        if token:
            os.environ["XDG_ACTIVATION_TOKEN"] = token
        self.window.come_forward()
        if file:
            self.opener.open_other(file)

    def close(self) -> bool:
        """End everything in order; False when the engine did not end in time."""
        self.window.hide()
        self.controller.begin_close()
        self.opener.close()
        self.window.serving.close()
        ended = self.bridge.shutdown(CLOSE_MS)
        self.controller.close()
        self.store.close()
        return ended


def _engine(sink: EngineSink) -> EnginePort:
    return EngineLoop(sink, _load)


def _load(options: LoadOptions, progress: LoadProgress) -> Bundle:
    """On the loader's thread: the compiler is imported only now, so that the window does not wait for it."""
    from engine.model.loading import load_bundle

    return load_bundle(options, progress)


def run(app: QApplication, single: SingleInstance, model: str | None) -> NoReturn:
    """Run the window until it is closed, then end the process."""
    logs.set_up()
    sys.setswitchinterval(SWITCH_S)
    reports, saving = Voice(), Voice()
    crash.install(reports.said.emit)
    settings = SettingsKeeper(data_dir())
    Theme.install(app, settings.value.theme)
    store, notice = open_store(data_dir(), saving.said.emit)
    running = Application(_engine, store, settings)
    running.say_saving(notice)
    saving.said.connect(running.say_saving)
    reports.said.connect(running.window.dialogs.tell_error)
    single.asked.connect(running.come_forward)
    _end_on_signals(app)
    running.show(model)
    give_way()
    code = app.exec()
    single.stop_listening()
    clean = running.close()
    single.release()
    crash.uninstall()
    if not clean:
        # A thread inside compiled code or a system call cannot be interrupted. Everything is saved: leave it behind.
        log.warning("The engine did not end in time; leaving without it.")
    _leave(code)


def _leave(code: int) -> NoReturn:
    """End the process at once. Everything is saved and closed; taking a loaded compiler and a window apart piece by
    piece can cost seconds, and nobody would be the wiser for it."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):  # nobody reads it any more
                stream.flush()
    os._exit(code)


def _end_on_signals(app: QApplication) -> None:
    """Ctrl+C and a polite kill close the window as a click would; not at once, for it may just be painted."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: QTimer.singleShot(0, app.quit))
    heartbeat = QTimer(app)
    heartbeat.setInterval(500)
    heartbeat.timeout.connect(lambda: None)
    heartbeat.start()
