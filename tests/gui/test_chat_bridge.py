"""The border between the engine's thread and the window's."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest
from PySide6.QtCore import QCoreApplication, QObject, QThread

from app.engine_thread import EngineBridge
from engine.errors import NotLoadedError
from engine.port import EngineState, Failed, Prepared
from engine.scheduling.events import Finished, Piece, PoolCounts, StepReport


class Looping:
    """A port whose ``run`` takes commands on the thread it is run on."""

    def __init__(self, sink):
        self.sink = sink
        self.thread = None
        self.commands = []
        self.wake = threading.Semaphore(0)

    def run(self):
        self.thread = threading.current_thread()
        while True:
            self.wake.acquire()
            command = self.commands.pop(0)
            if command is None:
                return
            command()

    def do(self, command):
        self.commands.append(command)
        self.wake.release()

    def close(self):
        self.do(None)


class Deaf(Looping):
    """A port that does not end when it is told to."""

    def close(self):
        pass


@pytest.fixture
def bridge(qapp):
    made = EngineBridge(Looping)
    made.start()
    yield made
    assert made.shutdown()


def report(*events, step=1):
    return StepReport(step, 0.0, 10, tuple(events), (1,), (), PoolCounts(4, 4, 0, 0), 0, ())


def test_each_event_arrives_on_the_ui_thread_in_order(bridge, qtbot):
    heard = []
    main = threading.current_thread()

    def hear(kind):
        return lambda value: heard.append((kind, value, threading.current_thread() is main))

    for kind in ("piece", "finished", "step", "state", "prepared", "failed"):
        getattr(bridge, kind).connect(hear(kind))
    port = bridge.port
    finished = Finished(1, "stop", 1, 0, 1, 0, 0, 0)
    first = report(Piece(1, 5, "a"), Piece(2, 6, "b"), finished)
    state = EngineState("ready")
    prepared, failed = Prepared(3, (1,), (), None, 0, 0), Failed(4, "template", "No.")

    def all_at_once():
        port.sink.on_state(state)
        port.sink.on_step(first)
        port.sink.on_prepared(prepared)
        port.sink.on_failed(failed)

    port.do(all_at_once)
    qtbot.waitUntil(lambda: len(heard) == 7)
    assert [kind for kind, _, _ in heard] == ["state", "piece", "piece", "finished", "step", "prepared", "failed"]
    assert all(on_main for _, _, on_main in heard)
    assert bridge.engine_state is state
    assert port.thread is not main


def test_answers_come_back_on_the_ui_thread(bridge, qtbot):
    main, heard = threading.current_thread(), []
    good, bad = Future(), Future()
    bridge.ask(good, lambda value: heard.append((value, threading.current_thread() is main)))
    bridge.ask(bad, lambda value: heard.append("never"), lambda error: heard.append((error.code, str(error))))
    bridge.port.do(lambda: good.set_result(42))
    bridge.port.do(lambda: bad.set_exception(NotLoadedError("No model.")))
    qtbot.waitUntil(lambda: len(heard) == 2)
    assert heard == [(42, True), ("not_loaded", "No model.")]


def test_an_error_without_a_handler_is_logged(bridge, qtbot, caplog):
    future = Future()
    future.set_exception(NotLoadedError("No model."))
    bridge.ask(future, lambda value: None)
    qtbot.waitUntil(lambda: "No model." in caplog.text)
    assert "not_loaded" in caplog.text


def test_an_answer_for_a_deleted_object_is_dropped(bridge, qtbot):
    class Asker(QObject):
        heard: list = []

        def hear(self, value):
            self.heard.append(value)

    asker, future, other = Asker(), Future(), []
    bridge.ask(future, asker.hear)
    asker.deleteLater()
    QCoreApplication.sendPostedEvents(asker, 0)
    qtbot.waitUntil(lambda: not __import__("shiboken6").isValid(asker))
    bridge.ask(future, other.append)
    future.set_result(1)
    qtbot.waitUntil(lambda: other == [1])
    assert Asker.heard == []


def test_what_was_said_before_the_end_is_still_delivered(qtbot):
    bridge = EngineBridge(Looping)
    bridge.start()
    heard = []
    bridge.piece.connect(heard.append)
    piece = Piece(1, 5, "last words")
    bridge.port.do(lambda: bridge.port.sink.on_step(report(piece)))
    assert bridge.shutdown()
    assert heard == [piece]
    bridge.port.sink.on_step(report(piece))
    QCoreApplication.processEvents()
    assert heard == [piece]


def test_a_port_that_does_not_end_is_reported_not_waited_for(qtbot):
    bridge = EngineBridge(Deaf)
    bridge.start()
    assert not bridge.shutdown(50)
    bridge.port.do(None)
    assert bridge.shutdown()


def test_a_port_without_a_loop_needs_no_thread(qtbot):
    class Still:
        closed = 0

        def __init__(self, sink):
            self.sink = sink

        def close(self):
            self.closed += 1

    bridge = EngineBridge(Still)
    bridge.start()
    assert bridge.shutdown() and bridge.shutdown()
    assert bridge.port.closed == 2
    assert not bridge._thread.isRunning() and isinstance(bridge._thread, QThread)
