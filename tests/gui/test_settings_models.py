"""Models: looked at before they are loaded, a warning when one does not fit, loads that stop or fail."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtWidgets import QMessageBox

from app.settings import model_facts
from app.settings.model_dialog import ModelDialog
from app.settings.model_facts import Fit, ModelFacts, context_of, fit_of, fit_words
from app.settings.values import EngineSettings
from app.views.engine_status import EngineStatus
from engine.errors import CancelledError, ModelFileError
from engine.port import EngineState
from tests.gui.fake_engine import MODEL, done

TINY = Path(__file__).parents[1] / "data" / "tiny"
GB = 1_000_000_000
FACTS = ModelFacts(
    path="/m/x.gguf",
    name="X 7B",
    architecture="llama",
    parameters=7 * GB,
    context_length=32_768,
    default_context=8192,
    vocabulary=32_000,
    layers=32,
    file_bytes=4 * GB,
    tensor_types=(("Q4_K", 200), ("F32", 65)),
    weights_bytes=4 * GB,
    kv_bytes_per_token=100_000,
    workspace_bytes=GB,
    metadata=(("general.name", "X 7B"), ("tokenizer.chat_template", "{% for m in\n messages %}")),
)


@pytest.fixture
def tiny() -> Path:
    """A small sound model file."""
    return sorted(TINY.glob("*.gguf"))[0]


@pytest.fixture
def models(window, monkeypatch, tmp_path) -> ModelDialog:
    """The dialog over a window whose engine has a model; no known model is on this computer."""
    monkeypatch.setattr("app.settings.model_dialog.find", lambda known: None)
    window.window.dialogs.models()
    dialog = window.window.dialogs._models
    assert dialog is not None
    yield dialog
    dialog.close()


def wait_for_facts(window, dialog: ModelDialog, path: Path) -> None:
    window.qtbot.waitUntil(lambda: str(path) in dialog.card.path.text(), timeout=10_000)


@pytest.mark.parametrize(
    ("free", "settings", "verdict", "words"),
    [
        (40 * GB, EngineSettings(), "fits", ""),
        (12 * GB, EngineSettings(pool_mb=8000), "tight", "A smaller pool budget is safer"),
        (5 * GB, EngineSettings(), "too_large", "needs at least 5.8 GB, and 5.0 GB of memory are free"),
        (int(5.5 * GB), EngineSettings(n_ctx=1024), "fits", ""),
    ],
)
def test_whether_a_model_fits(free, settings, verdict, words):
    if verdict == "fits" and settings.n_ctx:
        settings = replace(settings, pool_mb=400)
    fit = fit_of(FACTS, settings, free)
    assert fit.verdict == verdict
    assert words in fit_words(fit)
    assert bool(fit_words(fit)) == (verdict != "fits")


def test_the_context_that_a_model_gets():
    assert context_of(FACTS, EngineSettings()) == 8192
    assert context_of(FACTS, EngineSettings(n_ctx=16_384)) == 16_384
    assert context_of(FACTS, EngineSettings(n_ctx=65_536)) == 32_768


def test_the_facts_of_a_file(tiny):
    facts = model_facts.read_facts(str(tiny))
    assert facts.file_bytes == tiny.stat().st_size
    assert facts.weights_bytes > 0
    assert facts.kv_bytes_per_token > 0
    assert sum(n for _, n in facts.tensor_types) > 0
    assert ("general.architecture", facts.architecture) in facts.metadata


def test_a_file_is_opened_as_the_settings_say_and_remembered(window, tiny):
    window.settings.change(engine=EngineSettings(n_ctx=128, page_rows=32, cache_mb=1))
    with window.qtbot.waitSignal(window.app.opener.loaded, timeout=10_000):
        window.app.opener.open(str(tiny))
    options = window.engine.loaded[-1]
    facts = model_facts.read_facts(str(tiny))
    assert (options.path, options.n_ctx, options.page_rows) == (str(tiny), 128, 32)
    assert options.cache_pages == 1_000_000 // (32 * facts.kv_bytes_per_token)
    assert window.settings.value.recent == (MODEL.path,)


def test_a_model_dropped_on_the_window_is_opened(window, tiny):
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/etc/hostname"), QUrl.fromLocalFile(str(tiny))])
    left, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    event = QDropEvent(QPointF(50, 50), Qt.DropAction.CopyAction, data, left, none)
    with window.qtbot.waitSignal(window.app.opener.loaded, timeout=10_000):
        window.window.dropEvent(event)
    assert window.engine.loaded[-1].path == str(tiny)


def test_another_file_is_looked_for_beside_the_last_one(window, tiny):
    assert window.app.opener.folder() == Path.home()
    window.settings.change(model=str(tiny))
    assert window.app.opener.folder() == tiny.parent


def test_the_dialog_says_what_is_being_loaded(window, tiny):
    window.window.dialogs.models()
    dialog = window.window.findChild(ModelDialog)
    with window.qtbot.waitSignal(window.app.opener.started, timeout=10_000):
        window.app.opener.open(str(tiny))
    assert dialog.list.currentItem().toolTip() == str(tiny)
    window.bridge.announce(EngineState("loading", 0.4))
    assert dialog.state.text() == f"{window.app.opener.loading}: loading"
    window.engine.ready()
    dialog.close()


def test_a_model_that_does_not_fit_is_loaded_only_when_the_person_says_so(window, tiny, monkeypatch):
    monkeypatch.setattr(model_facts, "free_memory", lambda: 1000)
    window.app.opener.open(str(tiny))
    window.qtbot.waitUntil(lambda: window.window.findChildren(QMessageBox) != [], timeout=10_000)
    box = window.window.findChildren(QMessageBox)[-1]
    assert "1.0 kB of memory are free" in box.informativeText()
    assert window.engine.loaded == []
    box.button(QMessageBox.StandardButton.Cancel).click()
    assert window.engine.loaded == []
    window.app.opener.open(str(tiny))
    window.qtbot.waitUntil(lambda: window.window.findChildren(QMessageBox)[-1] is not box, timeout=10_000)
    box = window.window.findChildren(QMessageBox)[-1]
    next(button for button in box.buttons() if button.text() == "Load all the same").click()
    assert window.engine.loaded[-1].path == str(tiny)


def test_a_damaged_file_is_said_and_the_old_model_goes_on(window, tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 40)
    with window.qtbot.waitSignal(window.app.opener.failed, timeout=10_000) as failed:
        window.app.opener.open(str(tmp_path / "bad.gguf"))
    assert "bad.gguf" in failed.args[0]
    assert window.window.toast.words.text() == failed.args[0]
    assert window.bridge.engine_state.stage == "ready"
    assert window.settings.value.recent == ()


def test_a_load_that_fails_leaves_the_old_model_and_is_said(window, tiny):
    def refuse(options) -> Future:
        future: Future = Future()
        future.set_exception(ModelFileError("The tensor x lies outside the file.", field="x"))
        window.engine.sink.on_state(EngineState("ready", model=MODEL, error="The tensor x lies outside the file."))
        return future

    window.engine.load = refuse
    with window.qtbot.waitSignal(window.app.opener.failed, timeout=10_000) as failed:
        window.app.opener.open(str(tiny))
    assert failed.args == ["The tensor x lies outside the file."]
    assert window.bridge.engine_state.model == MODEL


def test_a_load_that_is_stopped_is_no_failure(window, tiny):
    waiting: Future = Future()
    window.engine.load = lambda options: waiting
    stopped = []
    window.engine.cancel_load = lambda: stopped.append(True)
    failed = []
    window.app.opener.failed.connect(failed.append)
    window.app.opener.open(str(tiny))
    window.qtbot.waitUntil(lambda: window.bridge.port.load is window.engine.load)
    window.window.commands.actions["stop_loading"].trigger()
    assert stopped == [True]
    waiting.set_exception(CancelledError("Loading was cancelled."))
    window.settle()
    assert failed == []


def test_a_model_that_is_gone_is_said_and_the_default_opened(window, monkeypatch, tiny, tmp_path):
    window.settings.change(model=str(tmp_path / "gone.gguf"))
    monkeypatch.setattr("app.state.model_opener.find", lambda name: tiny)
    monkeypatch.setattr("app.state.model_opener.resolve", lambda name, **_: tiny)
    with window.qtbot.waitSignal(window.app.opener.said) as said:
        window.app.opener.open()
    assert "gone.gguf is gone" in said.args[0]
    window.qtbot.waitUntil(lambda: window.engine.loaded != [], timeout=10_000)


def test_loading_again_takes_the_settings_of_now(window, tiny, monkeypatch):
    window.engine.sink.on_state(EngineState("ready", model=replace(MODEL, path=str(tiny))))
    window.settle()
    window.window.dialogs._save_settings(replace(window.settings.value, engine=EngineSettings(n_ctx=512)), True)
    window.qtbot.waitUntil(lambda: window.engine.loaded != [], timeout=10_000)
    assert (window.engine.loaded[-1].path, window.engine.loaded[-1].n_ctx) == (str(tiny), 512)


def test_the_dialog_shows_a_file_before_it_is_loaded(window, models, tiny):
    models.look_at(str(tiny))
    wait_for_facts(window, models, tiny)
    card = models.card
    assert card.title.text() == model_facts.read_facts(str(tiny)).name
    assert "free" in card.memory.accessibleName()
    assert card.verdict.text().startswith("It fits.")
    rows = card.table.model().rowCount()
    card.filter.setText("context_length")
    assert 0 < card.table.model().rowCount() < rows
    assert (models.load.text(), models.load.isVisible()) == ("Load", True)
    models.load.click()
    assert window.engine.loaded[-1].path == str(tiny)


def test_the_dialog_offers_to_download_what_is_not_here(window, models):
    words = [models.list.item(row).text() for row in range(models.list.count())]
    models.list.setCurrentRow(words.index("SmolLM2 135M Instruct"))
    assert models.load.text() == "Download and load"
    assert "98 MB" in models.card.figures.text() or "to download" in models.card.figures.text()
    asked = []
    window.app.opener.open = asked.append
    models.load.click()
    assert asked == ["smollm2-135m-instruct"]


def test_the_dialog_says_what_is_wrong_with_a_file(window, models, tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"nothing of the kind")
    models.look_at(str(tmp_path / "bad.gguf"))
    window.qtbot.waitUntil(lambda: models.card.title.text() == "bad.gguf", timeout=10_000)
    assert models.card.figures.property("role") == "danger"
    assert "bad.gguf" in models.card.figures.text()
    assert not models.load.isVisible()


def test_the_dialog_warns_of_a_model_that_does_not_fit(window, models, tiny, monkeypatch):
    monkeypatch.setattr(model_facts, "free_memory", lambda: 1000)
    models.look_at(str(tiny))
    wait_for_facts(window, models, tiny)
    assert models.card.verdict.property("role") == "danger"
    assert models.load.text() == "Load all the same"


def test_a_load_can_be_followed_and_stopped_in_the_dialog(window, models):
    stopped = []
    window.engine.cancel_load = lambda: stopped.append(True)
    window.engine.sink.on_state(EngineState("loading", 0.25, "packing weights", MODEL))
    window.settle()
    assert (models.bar.value(), models.state.text(), models.load.isEnabled()) == (250, "packing weights", False)
    models.stop.click()
    assert stopped == [True]
    window.engine.sink.on_state(EngineState("ready", model=MODEL))
    window.settle()
    assert not models.stop.isVisible()
    assert models.state.text() == "Fake 135M is loaded."


def test_the_status_line_opens_the_models(window, models):
    models.close()
    window.window.sidebar.status.clicked.emit()
    assert models.isVisible()
    assert done().result() is None


def test_a_fit_knows_its_verdict():
    assert Fit(10, 20, 10, 9).verdict == "too_large"
    assert Fit(10, 20, 10, 15).verdict == "tight"
    assert Fit(10, 20, 10, 20).verdict == "fits"


def test_what_says_loading_ends_with_the_load_whatever_became_of_it(window, tiny, tmp_path, monkeypatch):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\xff" * 40)
    window.bridge.announce(EngineState("loading", 1.0, "downloading Bad", MODEL))
    with window.qtbot.waitSignal(window.app.opener.failed, timeout=10_000):
        window.app.opener.open(str(tmp_path / "bad.gguf"))
    status = window.window.sidebar.findChild(EngineStatus)
    assert (status.words.text(), status.bar.isVisible()) == ("Fake 135M", False)
    monkeypatch.setattr(model_facts, "free_memory", lambda: 1000)
    window.bridge.announce(EngineState("loading", 1.0, "downloading Tiny", MODEL))
    with window.qtbot.waitSignal(window.app.opener.doubtful, timeout=10_000):
        window.app.opener.open(str(tiny))
    assert (status.words.text(), status.bar.isVisible()) == ("Fake 135M", False)
