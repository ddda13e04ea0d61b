"""The Engine dock and the ribbon: figures, cursor, pause, ranges, and that a hidden dock does no work."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtWidgets import QAbstractButton, QMainWindow

from app.panels.engine_dock import EngineDock
from app.panels.engine_view import pool_words, speed_words, step_words
from app.panels.history import RANGES, StepHistory
from app.panels.plots import nice_top, pool_top, smooth
from app.panels.ribbon import DIVERGED, Ribbon
from app.panels.steps_plot import heights, last_stall, slot_colors
from engine.port import EngineState
from engine.scheduling.events import Eviction, Miss, Piece, PoolCounts
from tests.gui.fakes_panels import FakeBridge, FakePort, report, scene

NOW = 1_760_000_000.0


class Clock:
    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def dock(qtbot, clock, installed_theme):
    window = QMainWindow()
    qtbot.addWidget(window)
    bridge = FakeBridge(FakePort(scene()))
    made = EngineDock(bridge, window, chat_title=str.upper, clock=clock)
    made.bridge = bridge
    window.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, made)
    window.resize(1000, 240)
    made.hide()
    window.show()
    yield made
    window.close()


def play(dock: EngineDock, seconds: float = 70, hz: float = 10, **changes) -> None:
    """Steps up to now, the batch growing from 1 to 4."""
    n = int(seconds * hz)
    for i in range(n):
        at = NOW - seconds + (i + 1) / hz - 0.011
        width = 1 + 4 * i // n
        events = tuple(Piece(s, 7, "x") for s in range(1, width + 1))
        dock.bridge.step.emit(report(i + 1, at=at, width=width, events=events, **changes))


def test_hidden_it_only_takes_in_numbers(dock, qtbot, monkeypatch):
    monkeypatch.setattr(StepHistory, "series", lambda *_: pytest.fail("a hidden dock must not compute"))
    monkeypatch.setattr(StepHistory, "recent", lambda *_: pytest.fail("a hidden dock must not compute"))
    play(dock, 5)
    assert dock.history.n_steps == 50
    assert dock.frames == 0
    assert not dock._timer.isActive()


def test_shown_it_paints_and_hidden_again_it_stops(dock, qtbot):
    play(dock, 5)
    dock.show()
    qtbot.waitUntil(lambda: dock.frames >= 1)
    assert dock._timer.isActive()
    dock.hide()
    frames = dock.frames
    play(dock, 5)
    dock._tick()
    assert dock.frames == frames
    assert not dock._timer.isActive()


def test_it_paints_once_per_tick_whatever_the_number_of_steps(dock, qtbot):
    dock.show()
    qtbot.waitUntil(lambda: dock.frames >= 1)
    dock._timer.stop()
    frames = dock.frames
    play(dock, 20)
    assert dock.frames == frames
    dock._tick()
    assert dock.frames == frames + 1
    dock._tick()
    assert dock.frames == frames + 1


def test_an_idle_engine_costs_no_painting(dock, qtbot, clock):
    play(dock, 5)
    dock.show()
    qtbot.waitUntil(lambda: dock.frames >= 1)
    dock._timer.stop()
    clock.now = NOW + 3600
    frames = dock.frames
    for _ in range(100):
        dock._tick()
    assert dock.frames == frames
    clock.now = NOW + 5
    for _ in range(32):
        dock._tick()
    assert 1 <= dock.frames - frames <= 4


def test_pause_holds_the_picture_and_the_history_goes_on(dock, qtbot):
    play(dock, 5)
    dock.show()
    qtbot.waitUntil(lambda: dock.frames >= 1)
    dock._timer.stop()
    dock.pause.setChecked(True)
    assert dock.pause.accessibleName() == "Go on"
    frames, steps = dock.frames, dock.history.n_steps
    play(dock, 5)
    dock._tick()
    assert dock.frames == frames
    assert dock.history.n_steps == steps + 50
    dock.pause.setChecked(False)
    assert dock.frames == frames + 1


def test_the_header_and_the_values_of_now(dock, qtbot):
    play(dock)
    dock.show()
    qtbot.waitUntil(lambda: dock.view.pool.header.values[0] != "")
    assert dock.view.pool.header.values == ("58 referenced", "87 cached", "119 free")
    assert dock.view.steps.header.values[0] == "batch 4 · 8.2 ms"
    assert dock.now.text() == "4 decoding · queue 0 · 40 tok/s"
    assert dock.lamp.problem == ""


def test_while_prompts_are_only_read_no_speed_of_writing_is_told(dock, qtbot):
    read = tuple(replace(s, phase="prefilling") for s in report(1, at=NOW, width=2).streams)
    dock.show()
    for step in range(1, 4):
        dock.bridge.step.emit(replace(report(step, at=NOW - 0.1, width=2), streams=read))
    qtbot.waitUntil(lambda: dock.now.text() == "2 reading · queue 0")
    assert dock.view.speed.header.values[0] == "reading"
    assert dock.now.toolTip() == dock.now.text()


def test_values_under_the_cursor(dock, qtbot):
    play(dock)
    dock.show()
    qtbot.waitUntil(lambda: dock.view.pool_plot.series is not None)
    dock._timer.stop()
    plot = dock.view.pool_plot
    index = plot.column_at(-30.0)
    assert plot.times[index] == pytest.approx(-30.0, abs=0.25)
    plot._inspect(-30.0)
    assert dock.view.pool.header.when == "−30 s"
    steps = dock.view.steps_plot
    steps._inspect(0)
    first = int(steps.recent.step[0])
    assert dock.view.steps.header.when == f"step {first:,}"
    steps._inspect(-1)
    assert dock.view.steps.header.when == ""
    assert steps.column_at(steps.width() - 1) == len(steps.recent.step) - 1


@pytest.mark.parametrize("index", range(len(RANGES)))
def test_each_range_fills_the_plots(dock, qtbot, index):
    play(dock, 70)
    dock.show()
    dock.set_range(index)
    series = dock.view.speed_plot.series
    assert 240 <= len(series.at) <= 300
    assert series.at[-1] - series.at[0] == pytest.approx(RANGES[index][1], rel=0.01)
    assert np.nansum(series.tokens_per_s[:-1] * series.width_s) == pytest.approx(70 * 10 * 2.5, rel=0.25)
    for number in range(3):
        dock.set_mode(number)
        dock.view.steps_plot.grab()
    assert step_words(dock.view.steps_plot, -1)[1].startswith("batch")


def test_a_narrow_dock_keeps_its_choices_in_a_menu(dock, qtbot):
    dock.show()
    qtbot.waitUntil(lambda: dock.ranges.isVisible())
    assert not dock.choices.isVisible()
    dock.resize(400, 700)
    assert dock.choices.isVisible()
    assert not dock.ranges.isVisible()
    dock.view.resize(400, 700)
    assert dock.view.orientation() == Qt.Orientation.Vertical
    last = dock.choices.menu().actions()[-1]
    assert last.text() == "1 h"
    last.trigger()
    assert dock.ranges.button(3).isChecked()


def test_what_was_chosen_survives_a_restart(dock, qtbot, clock, installed_theme):
    dock.show()
    dock.set_mode(1)
    dock.set_range(2)
    other = EngineDock(FakeBridge(FakePort(scene())), clock=clock)
    qtbot.addWidget(other)
    for broken in ("", "{}", "[1]", '{"mode": 9, "range": 0, "sizes": [1, 1, 1]}'):
        other.restore(broken)
    assert (other.view.mode, other.ranges.button(0).isChecked()) == ("ms", True)
    other.restore(dock.saved())
    assert (other.view.mode, other.ranges.button(2).isChecked()) == ("rows", True)


def test_a_release_shows_without_a_step(dock, clock):
    play(dock, 5)
    dock.show()
    dock._paint()
    assert dock.view.pool.header.values[1] == "87 cached"
    clock.now += 3
    dock.note_snapshot(replace(scene(), at=clock.now))
    dock._tick()
    assert dock.view.pool.header.values[1] == "31 cached"
    dock.note_snapshot(replace(scene(), integrity="Page 7 has two owners."))
    dock._tick()
    assert dock.lamp.problem == "Page 7 has two owners."


def test_free_is_what_is_left_up_to_the_capacity():
    history = StepHistory()
    history.append(report(1, at=NOW - 10, pool=PoolCounts(264, 100, 64, 100)))
    series = history.series(60, NOW)
    assert pool_words(series, -1) == ("", "100 referenced", "64 cached", "100 free")
    assert np.isnan(series.capacity[0])
    assert pool_words(series, 0)[1] == "referenced"
    assert speed_words(series, series.tokens_per_s, 5)[0].startswith("−")


def test_a_quiet_stretch_keeps_the_pool_and_counts_no_tokens():
    history = StepHistory()
    history.append(report(1, at=NOW - 50, pool=PoolCounts(264, 200, 14, 50), events=(Piece(1, 5, "a"),)))
    history.append(report(2, at=NOW - 20, pool=PoolCounts(264, 100, 64, 100), queued=3, prefill=128))
    series = history.series(60, NOW)
    ago = series.at - NOW
    assert set(series.referenced[(ago > -49) & (ago < -21)]) == {50.0}
    assert series.tokens_per_s[(ago > -49)].sum() == 0
    assert series.tokens_per_s.sum() * series.width_s == pytest.approx(1.0)
    assert series.queued.max() == 3
    assert series.read_per_s.sum() * series.width_s == pytest.approx(128)
    later = history.series(60, NOW + 300)
    assert set(later.referenced) == {100.0}


def test_the_rings_wrap():
    history = StepHistory()
    for i in range(5000):
        history.append(report(i, at=NOW + i, width=1 + i % 3))
    recent = history.recent(10_000)
    assert len(recent.step) == 4096
    assert list(recent.step[-3:]) == [4997, 4998, 4999]
    assert list(recent.width[-3:]) == [1 + i % 3 for i in (4997, 4998, 4999)]
    assert history.series(3600, NOW + 5000).referenced[-2] == 58


def test_pieces_without_a_token_are_not_counted():
    history = StepHistory()
    history.append(report(1, at=NOW - 1, events=(Piece(1, 4, "a"), Piece(1, None, "b"))))
    assert history.tokens_per_s(NOW) == pytest.approx(0.5)


def test_streams_keep_their_colour_while_others_come_and_go():
    history = StepHistory()
    history.append(report(1, at=NOW, decoded=(5, 6, 7), streams=()))
    history.append(report(2, at=NOW, decoded=(5, 7), streams=()))
    history.append(report(3, at=NOW, decoded=(5, 7, 9), streams=()))
    slots = history.recent(3).slots
    assert slots[0] == bytes((0, 1, 2))
    assert slots[1] == bytes((0, 2))
    assert slots[2] == bytes((0, 2, 1))
    assert len({c.color().name() for c in slot_colors()}) == 8


def test_a_column_is_milliseconds_or_rows():
    history = StepHistory()
    history.append(report(1, at=NOW, width=4, prefill=128, decode_us=8000, prefill_us=9000))
    decode, prefill, top = heights(history.recent(9), by_time=True)
    assert (decode[0], prefill[0], top) == (8000, 9000, 20_000)
    width, chunk, rows = heights(history.recent(9), by_time=False)
    assert (width[0], rows) == (4, 6)
    assert width[0] + chunk[0] <= rows


def test_a_stall_is_named_after_the_prompt_that_was_read():
    history = StepHistory()
    for i in range(20):
        history.append(report(i, at=NOW, width=2, prefill=128 if i in (3, 4, 11, 12, 13) else 0))
    stall = last_stall(history.recent(20))
    assert (stall.first, stall.last, stall.reader) == (11, 13, 9)
    assert stall.prefill_us == 75 * 128
    timed = StepHistory()
    timed.append(report(1, at=NOW, width=2, prefill_us=40))
    assert last_stall(timed.recent(5)) is None
    assert heights(timed.recent(5), by_time=True)[1][0] == 0
    quiet = StepHistory()
    quiet.append(report(1, at=NOW, width=0, prefill=128))
    assert last_stall(quiet.recent(5)) is None


def test_evictions_are_marked(dock, qtbot):
    eviction = Eviction(NOW - 16, 3, "turn 1", "Trip to Porto", 12, 300.0, 120.0, 2, "Invoice email")
    play(dock, 30)
    dock.bridge.step.emit(report(999, at=NOW - 0.5, evictions=(eviction,)))
    dock.show()
    dock._paint()
    assert dock.history.evictions_since(NOW - 60) == [eviction]
    assert dock.view.pool_plot._label.toPlainText() == "evict 12 · TRIP TO PORTO"
    x, _ = dock.view.pool_plot._marks.getData()
    assert x[0] == pytest.approx(-16, abs=0.3)


def test_the_lamp_turns_red_when_a_sum_is_wrong(dock):
    dock.show()
    dock.bridge.step.emit(report(77, at=NOW, pool=PoolCounts(264, 100, 64, 99)))
    dock._paint()
    assert dock.lamp.problem.startswith("At step 77 the pool's books did not balance: 100 free + 64 cached + 99")


def test_another_model_starts_a_new_history(dock):
    play(dock, 5)
    dock.bridge.state.emit(EngineState("loading", 0.4, "reading weights"))
    assert dock.history.n_steps == 0
    dock.bridge.state.emit(EngineState("failed", error="The file ends too early."))
    assert dock.now.text() == "failed: The file ends too early."
    dock.bridge.state.emit(EngineState("loading", 0.4, "reading weights"))
    assert dock.now.text() == "loading 40% · reading weights"


def test_axis_ends_and_means():
    assert [nice_top(v) for v in (0, 0.9, 7, 31, 99, 214)] == [10, 1, 8, 40, 150, 300]
    assert [pool_top(u, c) for u, c in ((0, 264), (15, 4096), (145, 264), (4000, 4096), (0, 0))] == [
        20, 20, 264, 4096, 1,
    ]  # fmt: skip
    assert list(smooth(np.array([4.0, 0, 0, 4]), 2)) == [2, 2, 0, 2]


def test_names_for_every_button_and_plot(dock):
    for button in dock.findChildren(QAbstractButton):
        assert button.accessibleName() or button.text(), button
    for plot in (dock.view.pool_plot, dock.view.steps_plot, dock.view.speed_plot):
        assert plot.accessibleName()


def test_the_ribbon_says_its_counts_and_asks_why(qtbot, installed_theme):
    ribbon = Ribbon()
    qtbot.addWidget(ribbon)
    ribbon.set_counts(79, 48, 72, 16)
    assert len(ribbon.cells) == 10
    assert ribbon.accessibleDescription() == "48 of 79 prompt tokens reused, 31 computed, 72 generated; 10 pages"
    with qtbot.assertNotEmitted(ribbon.clicked):
        qtbot.mouseClick(ribbon, Qt.MouseButton.LeftButton)
    ribbon.set_counts(171, 144, 58, 16, Miss("diverged", 144, token_position=150))
    assert (DIVERGED, 1) in ribbon.cells
    assert "the stored text differs" in ribbon.toolTip()
    with qtbot.waitSignal(ribbon.clicked):
        qtbot.mouseClick(ribbon, Qt.MouseButton.LeftButton, pos=QPointF(5, 5).toPoint())
    with qtbot.waitSignal(ribbon.clicked):
        qtbot.keyClick(ribbon, Qt.Key.Key_Return)
    assert ribbon.grab().width() >= ribbon.sizeHint().width()
