"""EngineLoop: the engine port in this process. One thread steps the scheduler; commands wait in a mailbox and are done
between steps; text work and loading have threads of their own, so that decoding never waits for them."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

import numpy as np

from engine.errors import CancelledError, EngineError, NotLoadedError
from engine.hosting.bundle import Bundle, Loader
from engine.hosting.embedding import EmbeddingJob
from engine.hosting.loads import Loads, close_bundle
from engine.hosting.prepare import prepare, render
from engine.hosting.reporter import Reporter
from engine.hosting.runtime import Runtime
from engine.hosting.workers import Mailbox, Worker, chained, fulfil
from engine.port import (
    ChatJob,
    EngineSink,
    EngineStage,
    Forecast,
    LoadOptions,
    ModelInfo,
    PageDetail,
    ReleaseReport,
    Snapshot,
)
from engine.scheduling.request import Request

log = logging.getLogger(__name__)
T = TypeVar("T")

TRIM_AFTER_S = 5.0
"""After so long without work the memory of free pages goes back to the system."""

JOIN_S = 0.7
"""How long the end of the loop waits for a loader, and for a text job, that does not end by itself."""


class EngineLoop:
    """Implements ``EnginePort``. ``run`` is the body of the engine's thread and returns after ``close``.

    The other methods may be called from any thread and return at once. The sink is called on the engine's thread
    (``on_prepared``, and ``on_failed`` for jobs that could not be prepared, on the text thread).
    """

    def __init__(self, sink: EngineSink, loader: Loader) -> None:
        self._report = Reporter(sink)
        self._mailbox = Mailbox()
        self._text = Worker("kvscope-text")
        self._loads = Loads(loader, self._mailbox, self._adopt, self._tell)
        self._runtime: Runtime | None = None
        self._preparing: set[int] = set()  # chat jobs that are not yet requests
        self._unwanted: set[int] = set()  # those of them that were cancelled meanwhile
        self._embedding: deque[EmbeddingJob] = deque()

    @property
    def bundle(self) -> Bundle | None:
        """The loaded model's parts, None without a model."""
        runtime = self._runtime
        return None if runtime is None else runtime.bundle

    # The engine's thread

    def run(self) -> None:
        """Step while there is work, sleep while there is none, until ``close``."""
        try:
            while not self._mailbox.closed:
                for job in self._mailbox.take():
                    job()
                self._work()
        finally:
            self._shut_down()

    def _work(self) -> None:
        runtime = self._runtime
        if runtime is None:
            self._mailbox.wait()
            return
        busy = runtime.scheduler.has_work
        if busy:
            self._step(runtime)
        if self._embedding:
            if self._embedding[0].advance(runtime):
                self._embedding.popleft()
        elif not busy and not self._mailbox.wait(None if runtime.trimmed else TRIM_AFTER_S):
            runtime.trim()

    def _step(self, runtime: Runtime) -> None:
        try:
            report = runtime.step()
        except Exception as error:
            # The books cannot be trusted now: all streams end, and the same model starts anew with an empty pool.
            log.exception("An engine step failed.")
            self._report.step(runtime.abandon(error))
            self._runtime = Runtime(runtime.bundle, runtime.options)
            self._tell(None, error=error)
            return
        self._report.step(report)

    def _shut_down(self) -> None:
        self._mailbox.close()
        self._loads.cancel()
        self._replace(None)
        for job in self._mailbox.take():
            job()
        for thread, ended in (("load", self._loads.close(JOIN_S)), ("text", self._text.close(JOIN_S))):
            if not ended:
                log.warning("The engine's %s thread has not ended yet.", thread)
        self._tell("closed")

    def _tell(
        self, stage: EngineStage | None, progress: float = 0.0, detail: str = "", error: Exception | None = None
    ) -> None:
        """Report a stage; None takes the one of whatever is loaded."""
        bundle = self.bundle
        if stage is None:
            stage = "ready" if bundle is not None else "empty" if error is None else "failed"
        model = None if bundle is None else bundle.info
        self._report.state(stage, model, progress=progress, detail=detail, error=error)

    def _adopt(self, bundle: Bundle, options: LoadOptions) -> None:
        old = self._runtime
        strangers = old.chats if old is not None and old.bundle.info.path != bundle.info.path else ()
        self._replace(Runtime(bundle, options, strangers))

    def _replace(self, runtime: Runtime | None) -> None:
        """End what runs on the old model, and put ``runtime`` in its place. The old bundle is closed on the text
        thread, after whatever that is doing with it."""
        old, self._runtime = self._runtime, runtime
        while self._embedding:
            self._embedding.popleft().fail(CancelledError("The model was unloaded."))
        if old is None:
            return
        report = old.close()
        if report is not None:
            self._report.step(report)
        if not self._text.put(lambda: close_bundle(old.bundle)):
            close_bundle(old.bundle)

    # How the other threads ask

    def _ask(self, action: Callable[[], T]) -> Future[T]:
        """Run ``action`` on the engine's thread between two steps."""
        future: Future[T] = Future()
        if not self._mailbox.put(lambda: fulfil(future, lambda: self._if_open(action))):
            future.set_exception(_closed())
        return future

    def _ask_text(self, action: Callable[[Bundle], T]) -> Future[T]:
        """Run ``action`` on the text thread."""
        future: Future[T] = Future()
        if not self._text.put(lambda: fulfil(future, lambda: self._if_open(lambda: action(self._need().bundle)))):
            future.set_exception(_closed())
        return future

    def _if_open(self, action: Callable[[], T]) -> T:
        if self._mailbox.closed:
            raise _closed()
        return action()

    def _need(self) -> Runtime:
        runtime = self._runtime
        if runtime is None:
            raise NotLoadedError("No model is loaded: open one first.")
        return runtime

    # Models

    def load(self, options: LoadOptions) -> Future[ModelInfo]:
        """Load a model. The old one runs on until then, and stays if that fails. An earlier load is cancelled."""
        return self._loads.start(options)

    def cancel_load(self) -> None:
        """Stop loading; the model that was loaded before stays."""
        self._loads.cancel()

    def unload(self) -> Future[None]:
        """End all streams and give the model back."""
        self._loads.cancel()

        def action() -> None:
            self._replace(None)
            self._tell("empty")

        return self._ask(action)

    def set_threads(self, threads: int) -> Future[None]:
        """Compute with this many threads from the next step on."""
        return self._ask(lambda: self._need().bundle.set_threads(threads))

    def close(self) -> None:
        """End everything; ``run`` returns soon after. May be called twice."""
        self._loads.cancel()
        self._mailbox.close()

    # Streams

    def submit(self, request: Request, *, bundle: Bundle | None = None) -> Future[None]:
        """Queue a request; the future fails if it is refused, also when ``bundle``, whose tokens it is made of, is no
        longer what is loaded."""

        def action() -> None:
            runtime = self._need()
            if bundle is not None and runtime.bundle is not bundle:
                raise NotLoadedError("Another model was loaded meanwhile: send the request again.")
            runtime.submit(request)

        return self._ask(action)

    def chat(self, job: ChatJob) -> None:
        """Render, tokenize and queue a conversation; the sink hears ``on_prepared`` or ``on_failed``."""
        self._preparing.add(job.id)
        if not self._text.put(lambda: self._prepare(job)):
            self._job_failed(job.id, _closed())

    def _prepare(self, job: ChatJob) -> None:
        """On the text thread."""
        try:
            bundle = self._if_open(self._need).bundle
            prepared, request = prepare(bundle, job)
        except Exception as error:
            self._job_failed(job.id, error)
            return
        self._report.prepared(prepared)
        if not self._mailbox.put(lambda: self._submit_job(bundle, job, request)):
            self._job_failed(job.id, _closed())

    def _submit_job(self, bundle: Bundle, job: ChatJob, request: Request) -> None:
        try:
            runtime = self._if_open(self._need)
            if runtime.bundle is not bundle:
                self.chat(job)  # the model changed meanwhile: these ids mean nothing to the new one
                return
            runtime.submit(request)
        except EngineError as error:
            self._job_failed(job.id, error)
            return
        self._preparing.discard(job.id)
        if job.id in self._unwanted:
            self._unwanted.discard(job.id)
            runtime.scheduler.cancel(job.id)

    def _job_failed(self, stream: int, error: Exception) -> None:
        self._preparing.discard(stream)
        self._unwanted.discard(stream)
        self._report.failed(stream, error)

    def cancel(self, stream: int) -> None:
        """End a stream, or a chat job that is not yet one; its last event is ``Finished`` with reason cancelled."""

        def action() -> None:
            running = self._runtime is not None and self._runtime.scheduler.cancel(stream)
            if not running and stream in self._preparing:
                self._unwanted.add(stream)

        self._ask(action)

    # Questions

    def forecast(self, job: ChatJob) -> Future[Forecast]:
        """What a job would reuse if it were sent now."""
        rendered = self._ask_text(lambda bundle: render(bundle, job))
        return chained(
            rendered,
            lambda r: self._ask(lambda: Forecast(len(r.ids), self._need().reusable(r.ids), r.spans)),
        )

    def count_tokens(self, text: str) -> Future[int]:
        """Tokens of plain text."""
        return self._ask_text(lambda bundle: len(bundle.tokenizer.encode(text)))

    def decode(self, tokens: tuple[int, ...]) -> Future[str]:
        """The text of tokens, control tokens included."""
        return self._ask_text(lambda bundle: bundle.tokenizer.decode(tokens, special=True))

    def snapshot(self) -> Future[Snapshot]:
        """The whole instrument."""
        return self._ask(lambda: self._need().snapshot())

    def page_detail(self, page: int) -> Future[PageDetail]:
        """One page: its holders and its text."""
        return self._ask(lambda: self._need().page_detail(page))

    def release(self, chain: int, *, dry_run: bool = False) -> Future[ReleaseReport]:
        """Drop the cached pages that only this chain has."""
        return self._ask(lambda: self._need().release(chain, dry_run))

    def release_all(self, *, dry_run: bool = False) -> Future[ReleaseReport]:
        """Drop all cached pages."""
        return self._ask(lambda: self._need().release_all(dry_run))

    def pin(self, chain: int, pinned: bool = True) -> Future[None]:
        """Keep a chain from eviction, or no longer."""
        return self._ask(lambda: self._need().pin(chain, pinned))

    def embed(self, texts: tuple[tuple[int, ...], ...]) -> Future[np.ndarray]:
        """Embeddings of token lists, float32[len(texts), width]; one text between two steps, so that chats go on."""

        def action() -> Future[np.ndarray]:
            self._need()
            self._embedding.append(EmbeddingJob(texts))
            return self._embedding[-1].future

        return chained(self._ask(action), lambda future: future)


def _closed() -> CancelledError:
    return CancelledError("The engine was closed.")
