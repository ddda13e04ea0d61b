"""Where the engine's world meets Qt's: the thread an engine runs on, and the bridge that reports it to the window.

This is the only module of the application that knows both. Everything that the engine says arrives here on the
engine's threads and leaves as Qt signals on the UI thread, so that nothing else in ``app`` needs a lock.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError as FutureCancelled
from concurrent.futures import Future
from typing import Any

import shiboken6
from PySide6.QtCore import QCoreApplication, QDeadlineTimer, QEvent, QObject, Qt, QThread, Signal

from engine.errors import EngineError
from engine.port import EnginePort, EngineSink, EngineState, Failed, Prepared
from engine.scheduling.events import Finished, Piece, StepReport
from engine.serving.sinks import SinkFan

log = logging.getLogger(__name__)

PortFactory = Callable[[EngineSink], EnginePort]


class EngineThread(QThread):
    """Runs a port's ``run()`` until the port is closed. A port without ``run`` has threads of its own or none."""

    def __init__(self, port: EnginePort) -> None:
        super().__init__()
        self.setObjectName("engine")
        self._port = port

    def run(self) -> None:
        """The thread's body (called by Qt)."""
        loop = getattr(self._port, "run", None)
        if loop is not None:
            loop()


class _Sink:
    """The ``EngineSink`` of the bridge: called on the engine's threads, it only posts to the UI thread."""

    def __init__(self, bridge: EngineBridge) -> None:
        self._bridge = bridge

    def on_step(self, report: StepReport) -> None:
        if not self._bridge.closing:
            self._bridge.posted_step.emit(report)

    def on_state(self, state: EngineState) -> None:
        if not self._bridge.closing:
            self._bridge.posted_state.emit(state)

    def on_prepared(self, prepared: Prepared) -> None:
        if not self._bridge.closing:
            self._bridge.posted_prepared.emit(prepared)

    def on_failed(self, failed: Failed) -> None:
        if not self._bridge.closing:
            self._bridge.posted_failed.emit(failed)


class EngineBridge(QObject):
    """The engine as the window sees it; lives on the UI thread. ``sinks``: whoever else is to hear the engine.

    Signals (all on the UI thread):
        piece: one generated token of a stream.
        finished: a stream's last event.
        prepared: a chat became a prompt.
        failed: a chat never became a stream.
        step: the whole report of one engine step, after its events were re-emitted.
        state: the engine's stage changed (empty, compiling, loading, ready, failed, closed).
    """

    piece = Signal(Piece)
    finished = Signal(Finished)
    prepared = Signal(Prepared)
    failed = Signal(Failed)
    step = Signal(StepReport)
    state = Signal(EngineState)

    posted_step = Signal(object)
    posted_state = Signal(object)
    posted_prepared = Signal(object)
    posted_failed = Signal(object)
    posted_answer = Signal(object, object, object)

    def __init__(self, make_port: PortFactory, parent: QObject | None = None) -> None:
        """``make_port`` builds the engine around the sink that it is given (``EngineLoop`` itself fits)."""
        super().__init__(parent)
        queued = Qt.ConnectionType.QueuedConnection
        self.posted_step.connect(self._on_step, queued)
        self.posted_state.connect(self._on_state, queued)
        self.posted_prepared.connect(self._on_prepared, queued)
        self.posted_failed.connect(self._on_failed, queued)
        self.posted_answer.connect(self._on_answer, queued)
        self._state = EngineState("empty")
        self._closing = False
        self.sinks = SinkFan(_Sink(self))
        self._port = make_port(self.sinks)
        self._thread = EngineThread(self._port)

    @property
    def port(self) -> EnginePort:
        """The engine itself; its methods may be called from the UI thread and return at once."""
        return self._port

    @property
    def closing(self) -> bool:
        """Whether ``shutdown`` is over: an engine that did not end in time has nobody left to talk to."""
        return self._closing

    @property
    def engine_state(self) -> EngineState:
        """The last stage that was reported."""
        return self._state

    def start(self) -> None:
        """Start the engine's thread."""
        self._thread.start()

    def ask(
        self,
        future: Future[Any],
        callback: Callable[[Any], None],
        on_error: Callable[[EngineError], None] | None = None,
    ) -> None:
        """Call ``callback(result)`` (or ``on_error(error)``) on the UI thread when ``future`` is done.

        A callback that is a method of a deleted widget is dropped; so is every answer after ``shutdown``. Without
        ``on_error`` an ``EngineError`` is logged. Any other exception is a defect and goes to the log as one.
        """
        future.add_done_callback(lambda done: self._post_answer(done, callback, on_error))

    def _post_answer(self, future: Future[Any], callback: Any, on_error: Any) -> None:
        if not self._closing:
            self.posted_answer.emit(future, callback, on_error)

    def shutdown(self, timeout_ms: int = 1800) -> bool:
        """Close the engine and wait for its thread; False when it did not end in time.

        What it said to its last moment is still delivered; after that no signal is emitted any more. May be called
        twice.
        """
        self._port.close()
        ended = not self._thread.isRunning() or self._thread.wait(QDeadlineTimer(timeout_ms))
        QCoreApplication.sendPostedEvents(self, QEvent.Type.MetaCall.value)
        self._closing = True
        return ended

    def _on_step(self, report: StepReport) -> None:
        if self._closing:
            return
        for event in report.events:
            match event:
                case Piece():
                    self.piece.emit(event)
                case Finished():
                    self.finished.emit(event)
        self.step.emit(report)

    def _on_prepared(self, prepared: Prepared) -> None:
        if not self._closing:
            self.prepared.emit(prepared)

    def _on_failed(self, failed: Failed) -> None:
        if not self._closing:
            self.failed.emit(failed)

    def announce(self, state: EngineState) -> None:
        """Say where things stand before the engine can (a model is being fetched, or was not found)."""
        self._on_state(state)

    def _on_state(self, state: EngineState) -> None:
        if not self._closing:
            self._state = state
            self.state.emit(state)

    def _on_answer(self, future: Future[Any], callback: Any, on_error: Any) -> None:
        if self._closing:
            return
        try:
            result = future.result()
        except EngineError as error:
            if on_error is None:
                log.warning("%s (%s)", error, error.code)
            elif _alive(on_error):
                on_error(error)
        except FutureCancelled:
            log.info("an engine call was cancelled")
        else:
            if _alive(callback):
                callback(result)


def _alive(callback: Callable[..., Any]) -> bool:
    """False for a bound method of a Qt object that was deleted meanwhile."""
    owner = getattr(callback, "__self__", None)
    return not isinstance(owner, QObject) or shiboken6.isValid(owner)
