"""The settings: kept whole, judged in words, and each with its effect."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QInputDialog

from app.settings.checks import Surroundings, problems, remarks
from app.settings.dialog import SettingsDialog
from app.settings.keeper import FILE_NAME, SettingsKeeper
from app.settings.presets import Presets
from app.settings.values import EngineSettings, Settings
from app.state.sampling import PRESETS, ChatSettings
from app.theme import Theme
from engine.scheduling.request import SamplingParams
from tests.gui.fake_engine import MODEL

AROUND = Surroundings(cores=2, free=8_000_000_000, model=MODEL)
EVERYTHING = Settings(
    model="/models/b.gguf",
    recent=("/models/b.gguf", "/models/ü.gguf"),
    theme="dark",
    engine=EngineSettings(2, 4096, 4, 32, 500, 300, True),
    chat=ChatSettings("Be brief.", SamplingParams(temperature=0.2, seed=5), 99, "drop_oldest"),
    seen_crash="x.txt",
)


@pytest.fixture
def dialog(qtbot, installed_theme):
    """Opens the settings on given values."""

    def make(settings: Settings = Settings(), around: Surroundings = AROUND, streaming: int = 0) -> SettingsDialog:  # noqa: B008
        made = SettingsDialog(settings, around, streaming=streaming)
        qtbot.addWidget(made)
        made.show()
        return made

    return make


def test_settings_survive_a_restart(qtbot, tmp_path):
    keeper = SettingsKeeper(tmp_path)
    with qtbot.waitSignal(keeper.changed) as changed:
        keeper.put(EVERYTHING)
    assert changed.args == [Settings()]
    assert SettingsKeeper(tmp_path).value == EVERYTHING
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("", Settings()),
        ("{", Settings()),
        ("[1, 2]", Settings()),
        (b"\xff\xfe\x00", Settings()),
        ('{"theme": "pink", "model": 7, "recent": ["a", 3]}', Settings()),
        (
            '{"theme": "dark", "engine": {"page_rows": 20, "max_streams": 0, "pool_mb": -3, "threads": 1e9,'
            ' "n_ctx": 512}}',
            Settings(theme="dark", engine=EngineSettings(n_ctx=512)),
        ),
        ('{"engine": {"exact": 1, "threads": 2, "from_the_future": true}}', Settings(engine=EngineSettings(threads=2))),
    ],
)
def test_a_damaged_file_costs_only_what_is_wrong_in_it(tmp_path, content, expected):
    data = content if isinstance(content, bytes) else content.encode()
    (tmp_path / FILE_NAME).write_bytes(data)
    assert SettingsKeeper(tmp_path).value == expected


def test_a_file_that_cannot_be_written_is_said_and_the_settings_hold(qtbot, tmp_path):
    (tmp_path / "file").touch()
    keeper = SettingsKeeper(tmp_path / "file")
    with qtbot.waitSignal(keeper.failed) as failed:
        keeper.change(theme="dark")
    assert "hold until KVScope ends" in failed.args[0]
    assert keeper.value.theme == "dark"


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    keeper = SettingsKeeper(tmp_path)
    keeper.change(theme="dark")

    def refuse(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    keeper.change(theme="light")
    assert json.loads((tmp_path / FILE_NAME).read_text())["theme"] == "dark"
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_recent_models_are_listed_once_newest_first():
    settings = Settings()
    for number in (1, 2, 3, 1, *range(4, 20)):
        settings = settings.with_model(f"/m/{number}.gguf")
    assert settings.model == "/m/19.gguf"
    assert settings.recent == tuple(f"/m/{n}.gguf" for n in range(19, 11, -1))


@pytest.mark.parametrize(
    ("changes", "field", "words"),
    [
        ({"threads": 3}, "threads", "runs 2 threads at once"),
        ({"threads": 0}, "threads", "At least one thread"),
        ({"n_ctx": 64}, "n_ctx", "at least 128 tokens"),
        ({"max_streams": 65}, "max_streams", "Between 1 and 64"),
        ({"page_rows": 24}, "page_rows", "a multiple of 16"),
        ({"page_rows": 1024}, "page_rows", "at most 512"),
        ({"pool_mb": 9000}, "pool_mb", "Only 8.0 GB of memory are free"),
        ({"pool_mb": 1, "page_rows": 64}, "pool_mb", "One page of Fake 135M takes 1.5 MB"),
        ({"pool_mb": 100, "cache_mb": 101}, "cache_mb", "cannot be larger"),
    ],
)
def test_what_is_wrong_is_said_at_its_field(changes, field, words):
    found = problems(replace(EngineSettings(), **changes), AROUND)
    assert list(found) == [field]
    assert words in found[field]


def test_remarks_say_what_a_value_means_here():
    settings = EngineSettings(n_ctx=16_384, pool_mb=100, cache_mb=50)
    assert problems(settings, AROUND) == {}
    said = remarks(settings, AROUND)
    assert said["n_ctx"] == "Fake 135M was trained for 8,192 tokens. More are not used."
    assert said["pool_mb"] == "About 4,340 tokens of Fake 135M."
    assert said["cache_mb"] == "About 2,170 tokens of Fake 135M."
    assert remarks(EngineSettings(), AROUND)["pool_mb"] == "Automatic is 1.5 GB with Fake 135M."
    assert all(remarks(EngineSettings(), Surroundings(2, 1)).values())


def test_how_a_model_is_loaded_follows_the_settings():
    options = EVERYTHING.engine.load_options("/m.gguf", 23_040)
    assert (options.n_ctx, options.threads, options.max_streams, options.page_rows) == (4096, 2, 4, 32)
    assert (options.pool_bytes, options.cache_pages, options.exact) == (500_000_000, 406, True)
    automatic = EngineSettings().load_options("/m.gguf", 23_040)
    assert (automatic.n_ctx, automatic.pool_bytes, automatic.cache_pages) == (None, None, None)


def test_a_wrong_value_stops_saving_and_is_said(dialog):
    shown = dialog()
    assert shown.save.isEnabled()
    shown.engine.page_rows.setValue(20)
    assert not shown.save.isEnabled()
    field = shown.engine.fields["page_rows"]
    assert "multiple of 16" in field.note.text()
    assert field.note.property("role") == "danger"
    assert field.control.accessibleDescription() == field.note.text()
    shown.engine.page_rows.setValue(32)
    assert shown.save.isEnabled()
    assert field.note.property("role") == "caption"


def test_what_needs_a_reload_says_so(dialog):
    shown = dialog(streaming=2)
    shown.engine.threads.setValue(1)
    assert (shown.reloads, shown.save.text(), shown.foot.text()) == (False, "Save", "")
    shown.engine.n_ctx.setValue(2048)
    assert (shown.reloads, shown.save.text()) == (True, "Save and load again")
    assert "All chats stay" in shown.foot.text()
    assert "2 replies" in shown.foot.text()
    without_a_model = dialog(around=Surroundings(2, 8_000_000_000))
    without_a_model.engine.n_ctx.setValue(2048)
    assert not without_a_model.reloads


def test_saving_gives_what_was_chosen(qtbot, dialog):
    shown = dialog()
    shown.engine.n_ctx.setValue(2048)
    shown.engine.exact.setChecked(True)
    shown.chat.system.setPlainText("Be brief.")
    shown.themes.buttons()[2].click()
    with qtbot.waitSignal(shown.saved) as saved:
        shown.save.click()
    value, reload = saved.args
    assert (value.engine, reload) == (EngineSettings(n_ctx=2048, exact=True), True)
    assert (value.theme, value.chat.system_prompt) == ("dark", "Be brief.")
    assert not shown.isVisible()


def test_automatic_is_no_number(dialog):
    shown = dialog(Settings(engine=EngineSettings(threads=2)))
    assert shown.engine.settings() == EngineSettings(threads=2)
    shown.engine.threads.setValue(0)
    assert shown.engine.threads.text() == "Automatic"
    assert shown.engine.settings().threads is None


def test_a_seed_that_is_no_number_is_said(dialog):
    shown = dialog()
    for text in ("x", "-1", str(2**64), "٣"):
        shown.chat.seed.setText(text)
        assert "whole number" in shown.chat.wrong.text()
        assert not shown.save.isEnabled()
    shown.chat.seed.setText(str(2**64 - 1))
    assert shown.save.isEnabled()
    assert shown.value().chat.sampling.seed == 2**64 - 1


def test_settings_take_effect_in_the_window(window):
    app = window.app
    dialogs = window.window.dialogs
    chosen = Settings(
        theme="dark",
        engine=EngineSettings(n_ctx=2048, threads=1),
        chat=ChatSettings(system_prompt="Answer in French.", max_new=7),
    )
    told = []
    window.engine.set_threads = lambda n: told.append(n) or window.engine.pin(0)
    dialogs._save_settings(chosen, False)
    assert Theme.current().is_dark
    assert told == [1]
    dialogs._save_settings(replace(chosen, theme="light"), False)
    assert not Theme.current().is_dark
    stream = window.type_and_send("hello")
    job = window.engine.jobs[stream]
    assert (job.turns[0].text, job.max_new) == ("Answer in French.", 7)
    assert SettingsKeeper(app.settings.path.parent).value.engine.n_ctx == 2048


def test_presets_can_be_kept_and_dropped(qtbot, tmp_path, installed_theme):
    keeper = SettingsKeeper(tmp_path)
    dialog = SettingsDialog(Settings(), AROUND, Presets(keeper))
    qtbot.addWidget(dialog)
    dialog.show()
    dialog.list.setCurrentRow(1)
    form = dialog.chat
    assert not form.keep.isEnabled()
    form.temperature.setValue(0.42)
    form.seed.setText("9")
    form.keep.click()
    asking = form.findChild(QInputDialog)
    asking.setTextValue("  My  own ")
    asking.accept()
    assert form.preset.currentText() == "My own"
    assert keeper.value.presets[0].sampling == SamplingParams(temperature=0.42, top_p=0.95, min_p=0.05)
    again = Presets(SettingsKeeper(tmp_path)).all()
    assert [preset.name for preset in again[len(PRESETS) :]] == ["My own"]
    assert form.drop.isVisible()
    form.drop.click()
    assert form.preset.currentText() == "Set by hand"
    assert SettingsKeeper(tmp_path).value.presets == ()


def test_every_control_has_a_name_and_can_be_reached(dialog):
    shown = dialog()
    for field in shown.engine.fields.values():
        assert field.control.accessibleName()
        assert field.control.focusPolicy() & Qt.FocusPolicy.TabFocus
    assert shown.list.accessibleName()


def test_the_layout_of_the_window_survives_a_kill(make_window):
    first = make_window()
    window = first.window
    window.cache_dock.hide()
    first.qtbot.waitUntil(lambda: first.store.layout("docks") != b"", timeout=5000)
    # Nothing is closed here: the next window finds what was kept while the first one lived.
    second = make_window(first.store)
    assert second.window.cache_dock.isHidden()
    assert not second.window.engine_dock.isHidden()
