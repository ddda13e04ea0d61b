"""Which model the window opens: a file or the default of the catalogue, fetched first when it is not here yet."""

from __future__ import annotations

import logging
import threading

from PySide6.QtCore import QObject, Qt, Signal

from app.engine_thread import EngineBridge
from app.text import tr
from engine.catalog import default_model, find, known_models, resolve
from engine.errors import EngineError
from engine.port import EngineState, LoadOptions, ModelInfo

log = logging.getLogger(__name__)


class ModelOpener(QObject):
    """Opens models through the port; a download runs on a thread of its own.

    Signals:
        failed: (sentence) the model was not opened; what was loaded before goes on.
    """

    failed = Signal(str)
    _fetched = Signal(str)
    _not_fetched = Signal(str, str)
    _progress = Signal(float)

    def __init__(self, bridge: EngineBridge, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        queued = Qt.ConnectionType.QueuedConnection
        self._fetched.connect(self._load, queued)
        self._not_fetched.connect(self._on_not_fetched, queued)
        self._progress.connect(self._on_progress, queued)

    def open(self, model_or_path: str | None = None) -> None:
        """Open a file, a known model by its id, or (None) the default model."""
        wanted = model_or_path or default_model().id
        known = wanted in {model.id for model in known_models()}
        if known and find(wanted) is None:
            self._fetch(wanted)
            return
        try:
            self._load(str(resolve(wanted, fetch=False)))
        except EngineError as error:
            self._tell_failed(error)

    def close(self) -> None:
        """Stop a download that runs."""
        self._cancel.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _load(self, path: str) -> None:
        log.info("opening %s", path)
        self._bridge.ask(self._bridge.port.load(LoadOptions(path)), self._on_loaded, self._tell_failed)

    def _on_loaded(self, info: ModelInfo) -> None:
        log.info("loaded %s", info.name)

    def _tell_failed(self, error: EngineError) -> None:
        if self._bridge.engine_state.model is None:
            self._bridge.announce(EngineState("failed", error=str(error), error_code=error.code))
        self.failed.emit(str(error))

    def _fetch(self, identifier: str) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._cancel.clear()
        self._on_progress(0.0)
        self._thread = threading.Thread(target=self._run, args=(identifier,), name="fetch", daemon=True)
        self._thread.start()

    def _run(self, identifier: str) -> None:
        """On the download's thread."""
        try:
            path = resolve(identifier, progress=lambda n, of: self._progress.emit(n / max(of, 1)), cancel=self._cancel)
        except EngineError as error:
            if not self._cancel.is_set():
                self._not_fetched.emit(str(error), error.code)
        else:
            self._fetched.emit(str(path))

    def _on_progress(self, share: float) -> None:
        self._bridge.announce(EngineState("loading", share, tr("downloading the default model")))

    def _on_not_fetched(self, sentence: str, code: str) -> None:
        self._bridge.announce(EngineState("failed", error=sentence, error_code=code))
        self.failed.emit(sentence)
