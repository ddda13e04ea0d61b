"""Which model the window opens and how: fetched when it is not here yet, looked at before it is loaded."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from PySide6.QtCore import QObject, Qt, Signal

from app.engine_thread import EngineBridge
from app.settings.keeper import SettingsKeeper
from app.settings.model_facts import Fit, ModelFacts, fit_of, read_facts
from app.text import tr
from engine.catalog import default_model, find, known_model, known_models, resolve
from engine.errors import EngineError
from engine.hosting.workers import Worker, fulfil
from engine.port import EngineState, ModelInfo

log = logging.getLogger(__name__)

FILES_S = 0.2
"""How long the end waits for a file that is being read, in seconds; its thread ends with the program."""


class ModelOpener(QObject):
    """Opens models through the port, as the settings say; downloads and file reading run on threads of their own.

    Signals:
        failed: (sentence) the model was not opened; what was loaded before goes on.
        doubtful: (ModelFacts, Fit) it would not fit into memory: ``load`` loads it all the same.
        started: (ModelFacts) it is being loaded now.
        loaded: (ModelInfo) it is ready.
        said: (sentence) something worth knowing.
    """

    failed = Signal(str)
    doubtful = Signal(ModelFacts, Fit)
    started = Signal(ModelFacts)
    loaded = Signal(ModelInfo)
    said = Signal(str)
    _fetched = Signal(str)
    _not_fetched = Signal(object)
    _progress = Signal(float)

    def __init__(self, bridge: EngineBridge, settings: SettingsKeeper, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._settings = settings
        self._cancel = threading.Event()
        self._thread: threading.Thread | None = None
        self._files = Worker("kvscope-files")
        self._fetching = ""
        self._loading = ""
        self._n_loads = 0
        queued = Qt.ConnectionType.QueuedConnection
        self._fetched.connect(self._inspect, queued)
        self._not_fetched.connect(self._tell_failed, queued)
        self._progress.connect(self._on_progress, queued)

    @property
    def fetching(self) -> bool:
        """Whether a model is being downloaded."""
        return bool(self._fetching)

    @property
    def loading(self) -> str:
        """The name of the model that was loaded last or is being loaded, "" before the first."""
        return self._loading

    def folder(self) -> Path:
        """Where to look for another file: the folder of the model that was open last, else the person's own."""
        path = Path(self._settings.value.model)
        return path.parent if self._settings.value.model and path.parent.is_dir() else Path.home()

    def open(self, model_or_path: str | None = None) -> None:
        """Open a file, a known model by its id, or (None) the one that was open last, at first the default model."""
        wanted = model_or_path or self._last() or default_model().id
        known = wanted in {model.id for model in known_models()}
        if known and find(wanted) is None:
            self._fetch(wanted)
            return
        try:
            self._inspect(str(resolve(wanted, fetch=False).absolute()))
        except EngineError as error:
            self._tell_failed(error)

    def open_other(self, path: str) -> None:
        """Open a file unless it is what is loaded: that would end every reply and empty the cache for nothing."""
        model = self._bridge.engine_state.model
        loaded = Path(model.path) if model is not None and self._bridge.engine_state.stage == "ready" else None
        if loaded is None or not loaded.exists() or not Path(path).exists() or not loaded.samefile(path):
            self.open(path)

    def reload(self) -> None:
        """Load the model that is loaded again, with the settings of now; without one, open what was open last."""
        model = self._bridge.engine_state.model
        self.open(model.path if model is not None else None)

    def load(self, facts: ModelFacts) -> None:
        """Load this file, whatever its size."""
        log.info("loading %s", facts.path)
        self._loading = facts.name
        self.started.emit(facts)
        options = self._settings.value.engine.load_options(facts.path, facts.kv_bytes_per_token)
        self._n_loads += 1
        self._bridge.ask(self._bridge.port.load(options), self._on_loaded, self._on_not_loaded)

    def look(self, path: str, callback: Callable[[ModelFacts], None], on_error: Callable[[EngineError], None]) -> None:
        """Read what the file is, without loading it."""
        future: Future[ModelFacts] = Future()
        if self._files.put(lambda: fulfil(future, lambda: read_facts(path))):
            self._bridge.ask(future, callback, on_error)

    def cancel(self) -> None:
        """Stop a download or a load; what was loaded before goes on."""
        if self._fetching:
            self._cancel.set()
        self._bridge.port.cancel_load()

    def close(self) -> None:
        """Stop what runs on the threads of this object."""
        self._cancel.set()
        self._files.close(FILES_S)
        if self._thread is not None:
            self._thread.join(1.0)

    def _last(self) -> str:
        """The model that was open last, if it is still there."""
        path = self._settings.value.model
        if path and not Path(path).is_file():
            self.said.emit(tr("{path} is gone; the default model is opened instead.", path=path))
            return ""
        return path

    def _inspect(self, path: str) -> None:
        """Look at the file first: does it fit?"""
        self._fetching = ""
        self.look(path, self._on_facts, self._tell_failed)

    def _on_facts(self, facts: ModelFacts) -> None:
        fit = fit_of(facts, self._settings.value.engine)
        if fit.verdict == "too_large":
            self._say_what_is_there()
            self.doubtful.emit(facts, fit)
        else:
            self.load(facts)

    def _on_loaded(self, info: ModelInfo) -> None:
        self._n_loads -= 1
        log.info("loaded %s", info.name)
        self._settings.put(self._settings.value.with_model(info.path))
        self.loaded.emit(info)

    def _on_not_loaded(self, error: EngineError) -> None:
        self._n_loads -= 1
        self._tell_failed(error)

    def _tell_failed(self, error: EngineError) -> None:
        self._fetching = ""
        if error.code != "cancelled":
            if self._bridge.engine_state.model is None:
                self._bridge.announce(EngineState("failed", error=str(error), error_code=error.code))
            self.failed.emit(str(error))
        self._say_what_is_there()

    def _say_what_is_there(self) -> None:
        """Take back "loading" where that was only a download or a look at a file, and no load followed."""
        state = self._bridge.engine_state
        if state.stage == "loading" and not self._fetching and not self._n_loads:
            self._bridge.announce(EngineState("empty" if state.model is None else "ready", model=state.model))

    def _fetch(self, identifier: str) -> None:
        if self._thread is not None and self._thread.is_alive():
            return
        self._cancel.clear()
        self._fetching = known_model(identifier).name
        self._on_progress(0.0)
        self._thread = threading.Thread(target=self._run, args=(identifier,), name="fetch", daemon=True)
        self._thread.start()

    def _run(self, identifier: str) -> None:
        """On the download's thread."""
        try:
            path = resolve(identifier, progress=lambda n, of: self._progress.emit(n / max(of, 1)), cancel=self._cancel)
        except EngineError as error:
            self._not_fetched.emit(error)
        else:
            self._fetched.emit(str(path))

    def _on_progress(self, share: float) -> None:
        if self._fetching:
            detail = tr("downloading {name}", name=self._fetching)
            self._bridge.announce(EngineState("loading", share, detail, self._bridge.engine_state.model))
