"""The switch that serves other programs from the engine of this window, over HTTP on this machine."""

from __future__ import annotations

import errno
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import TYPE_CHECKING, Literal, TypeVar

from PySide6.QtCore import QObject, Signal

from app.engine_thread import EngineBridge
from app.text import tr
from engine.errors import EngineError
from engine.loop import EngineLoop

if TYPE_CHECKING:
    from engine.serving.server import Server

log = logging.getLogger(__name__)
T = TypeVar("T")
Stage = Literal["off", "starting", "on", "stopping"]

FIRST_PORT = 8080
PORTS = 10
"""How many ports are tried from the first one on: another program may have it."""

DRAIN_S = 10.0
CLOSE_S = 1.5
"""How long replies may go on when the switch is turned off, and how long the end of the program waits in all."""


class Serving(QObject):
    """Starts and stops the HTTP API. It runs on threads of its own: neither the window nor the engine waits for it.

    Signals:
        changed: the stage is another one.
        failed: (sentence) it could not be started.
    """

    changed = Signal()
    failed = Signal(str)

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None, *, first_port: int = FIRST_PORT) -> None:
        super().__init__(parent)
        self.stage: Stage = "off"
        self._bridge = bridge
        self._first_port = first_port
        self._server: Server | None = None
        self._work: Future[Server] | None = None

    @property
    def url(self) -> str:
        """What other programs call the base URL; empty while it is off."""
        return self._server.url if self._server is not None and self.stage == "on" else ""

    def toggle(self) -> None:
        """On when it is off, off when it is on; nothing while it is about to become either."""
        match self.stage:
            case "off":
                self._become("starting")
                self._work = _in_background(lambda: start_server(self._bridge, self._first_port))
                self._bridge.ask(self._work, self._on_started, self._on_failed)
            case "on":
                self._become("stopping")
                assert self._server is not None
                self._bridge.ask(_in_background(self._server.stop), lambda _: self._become("off"))

    def close(self) -> None:
        """End it now, with the program; replies to other programs are cut."""
        try:
            server = self._server if self._work is None else self._work.result(CLOSE_S)
            if server is not None:
                _in_background(lambda: server.stop(0.0)).result(CLOSE_S)
        except FutureTimeoutError:
            log.warning("The server did not end in time.")
        except EngineError as error:
            log.info("The server had not started: %s", error)

    def _on_started(self, server: Server) -> None:
        self._server = server
        self._become("on")

    def _on_failed(self, error: EngineError) -> None:
        self._work = None
        self._become("off")
        self.failed.emit(tr("Other programs cannot be served: {error}", error=str(error)))

    def _become(self, stage: Stage) -> None:
        self.stage = stage
        if stage == "off":
            self._server = self._work = None
        self.changed.emit()


def start_server(bridge: EngineBridge, first_port: int) -> Server:
    """A server over the window's engine, on the first port that is free. Takes a moment: it imports the HTTP stack."""
    from engine.serving.options import ServerOptions
    from engine.serving.server import Server

    loop = bridge.port
    if not isinstance(loop, EngineLoop):
        raise EngineError("This engine runs elsewhere and is served from there.")
    for port in range(first_port, first_port + PORTS):
        server = Server(loop, bridge.sinks.attach, ServerOptions(port=port, drain_s=DRAIN_S))
        try:
            server.start()
        except EngineError as error:
            taken = isinstance(error.__cause__, OSError) and error.__cause__.errno == errno.EADDRINUSE
            if not taken or port == first_port + PORTS - 1:
                raise
        else:
            return server
    raise AssertionError("the last port either served or raised")


def _in_background(action: Callable[[], T]) -> Future[T]:
    """Run ``action`` on a thread of its own."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            result = action()
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=run, name="kvscope-serving", daemon=True).start()
    return future
