"""A server on a real socket over an engine loop, and what tests see of both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from engine.hosting.bundle import Loader
from engine.loop import EngineLoop
from engine.port import EngineState, Failed, LoadOptions, Prepared, Snapshot
from engine.scheduling.events import Finished, Piece, SchedEvent, StepReport
from engine.serving.options import ServerOptions
from engine.serving.server import Server
from engine.serving.sinks import SinkFan
from tests.fakes import FakeBundle

WAIT_S = 20.0


class Recorder:
    """A second listener, as the window's is: keeps every report."""

    def __init__(self) -> None:
        self.reports: list[StepReport] = []
        self._changed = threading.Condition()

    def on_step(self, report: StepReport) -> None:
        with self._changed:
            self.reports.append(report)
            self._changed.notify_all()

    def on_state(self, state: EngineState) -> None: ...
    def on_prepared(self, prepared: Prepared) -> None: ...
    def on_failed(self, failed: Failed) -> None: ...

    @property
    def events(self) -> list[SchedEvent]:
        """All events so far, in order."""
        return [event for report in list(self.reports) for event in report.events]

    @property
    def finished(self) -> list[Finished]:
        """The last events of streams so far."""
        return [event for event in self.events if isinstance(event, Finished)]

    @property
    def pieces(self) -> list[Piece]:
        """The pieces so far."""
        return [event for event in self.events if isinstance(event, Piece)]

    def until(self, true: Callable[[Recorder], object]) -> None:
        """Wait until ``true(self)``; fails after a long while."""
        with self._changed:
            assert self._changed.wait_for(lambda: true(self), WAIT_S), "the engine did not do what was waited for"


class Served:
    """A running server and the loop under it."""

    def __init__(self, loop: EngineLoop, server: Server, recorder: Recorder) -> None:
        self.loop = loop
        self.server = server
        self.recorder = recorder

    @property
    def url(self) -> str:
        """The base URL of the OpenAI API."""
        return self.server.url

    @property
    def root(self) -> str:
        """The URL without /v1."""
        return self.server.url.removesuffix("/v1")

    def client(self, **options: Any) -> httpx.Client:
        """A plain HTTP client."""
        return httpx.Client(base_url=self.root, timeout=WAIT_S, **options)

    def post(self, path: str, body: Any, **options: Any) -> httpx.Response:
        """One POST of JSON."""
        with self.client() as client:
            return client.post(path, json=body, **options)

    def snapshot(self) -> Snapshot:
        """The instrument now."""
        return self.loop.snapshot().result(WAIT_S)

    def idle(self) -> Snapshot:
        """The instrument once no stream runs and no page is held by one."""
        return until(self.snapshot, lambda now: not now.streams and not now.pool.referenced)


def until(ask: Callable[[], Any], good: Callable[[Any], object]) -> Any:
    """Ask again and again until the answer is good."""
    end = time.monotonic() + WAIT_S
    pause = threading.Event()
    while time.monotonic() < end:
        answer = ask()
        if good(answer):
            return answer
        pause.wait(0.005)
    raise AssertionError(f"never became what was waited for; last: {answer!r:.500}")


@contextmanager
def serving(loader: Loader, load: LoadOptions, **options: Any) -> Iterator[Served]:
    """A server on a free port of this machine."""
    recorder = Recorder()
    fan = SinkFan(recorder)
    loop = EngineLoop(fan, loader)
    worker = threading.Thread(target=loop.run, name="engine-of-tests")
    worker.start()
    server = Server(loop, fan.attach, ServerOptions(port=0, **options))
    try:
        loop.load(load).result(120)
        server.start()
        yield Served(loop, server, recorder)
    finally:
        server.stop(drain_s=0.0)
        loop.close()
        worker.join(WAIT_S)


@contextmanager
def serving_fake(bundle: FakeBundle | None = None, **options: Any) -> Iterator[Served]:
    """A server over a model in a few lines; its name is ``fake``."""
    made = bundle or FakeBundle()
    with serving(lambda load, progress: made, LoadOptions(made.info.path), **options) as served:
        yield served


class Held:
    """Keeps a fake model's steps from going on until ``release``."""

    def __init__(self, bundle: FakeBundle) -> None:
        self.reached = threading.Event()
        self._go = threading.Event()
        bundle.evaluator.on_call = self._on_call

    def _on_call(self, name: str, sessions: object) -> None:
        if name == "eval_batch":
            self.reached.set()
            assert self._go.wait(WAIT_S), "nobody let the model go on"

    def release(self) -> None:
        """Let it go on for good."""
        self._go.set()
