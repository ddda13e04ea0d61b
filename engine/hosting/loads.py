"""Loading models on a thread of its own: the newest load counts, and one that fails changes nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from engine.errors import CancelledError, EngineError
from engine.hosting.bundle import Bundle, Loader, LoadProgress
from engine.hosting.workers import Mailbox, Worker
from engine.port import EngineStage, LoadOptions, ModelInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class Attempt:
    """One load."""

    options: LoadOptions
    progress: LoadProgress
    future: Future[ModelInfo]


class Loads:
    """Runs loads for an engine loop.

    ``adopt(bundle, options)`` and ``tell(stage, progress, detail, error)`` are called on the loop's thread (through its
    mailbox); stage None means: the one of whatever is loaded.
    """

    def __init__(
        self,
        loader: Loader,
        mailbox: Mailbox,
        adopt: Callable[[Bundle, LoadOptions], None],
        tell: Callable[[EngineStage | None, float, str, Exception | None], None],
    ) -> None:
        self._loader = loader
        self._mailbox = mailbox
        self._adopt = adopt
        self._tell = tell
        self._worker = Worker("kvscope-load")
        self._current: Attempt | None = None
        self._lock = threading.Lock()

    def start(self, options: LoadOptions) -> Future[ModelInfo]:
        """Load a model (any thread)."""
        progress = LoadProgress(lambda *told: self._told(attempt, *told))
        attempt = Attempt(options, progress, Future())
        attempt.future.set_running_or_notify_cancel()
        with self._lock:
            if self._current is not None:
                self._current.progress.cancel()
            self._current = attempt
        self._told(attempt, "loading", 0.0, "")
        if not self._worker.put(lambda: self._load(attempt)):
            attempt.future.set_exception(CancelledError("The engine was closed."))
        return attempt.future

    def cancel(self) -> None:
        """The load that runs is no longer wanted (any thread)."""
        attempt = self._current
        if attempt is not None:
            attempt.progress.cancel()

    def close(self, timeout: float) -> bool:
        """Cancel, and wait for the loader's thread; False if it needs longer."""
        self.cancel()
        return self._worker.close(timeout)

    def _told(self, attempt: Attempt, stage: EngineStage, fraction: float, detail: str) -> None:
        def tell() -> None:
            if attempt is self._current and not attempt.progress.cancelled:
                self._tell(stage, fraction, detail, None)

        self._mailbox.put(tell)

    def _load(self, attempt: Attempt) -> None:
        """On the loader's thread."""
        try:
            attempt.progress.check()
            bundle = self._loader(attempt.options, attempt.progress)
        except Exception as error:
            self._failed(attempt, error)
            return
        if not self._mailbox.put(lambda: self._loaded(attempt, bundle)):
            close_bundle(bundle)
            attempt.future.set_exception(CancelledError("The engine was closed."))

    def _loaded(self, attempt: Attempt, bundle: Bundle) -> None:
        """On the loop's thread: the model takes its place, unless it is no longer wanted."""
        try:
            attempt.progress.check()
            if self._mailbox.closed:
                raise CancelledError("The engine was closed.")
            self._adopt(bundle, attempt.options)
        except Exception as error:
            close_bundle(bundle)
            self._failed(attempt, error)
            return
        self._ended(attempt, "ready", None)
        attempt.future.set_result(bundle.info)

    def _failed(self, attempt: Attempt, error: Exception) -> None:
        if not isinstance(error, EngineError):
            log.error("Loading a model failed unexpectedly.", exc_info=error)
        told = None if isinstance(error, CancelledError) else error

        def end() -> None:
            self._ended(attempt, None, told)
            attempt.future.set_exception(error)

        if not self._mailbox.put(end):
            attempt.future.set_exception(error)

    def _ended(self, attempt: Attempt, stage: EngineStage | None, error: Exception | None) -> None:
        with self._lock:
            if attempt is not self._current:
                return
            self._current = None
        self._tell(stage, 0.0, "", error)


def close_bundle(bundle: Bundle) -> None:
    """Close a bundle that nobody waits for; what goes wrong is logged."""
    try:
        bundle.close()
    except Exception:
        log.exception("A model could not be closed.")
