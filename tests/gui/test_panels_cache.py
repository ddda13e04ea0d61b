"""The Cache dock over a small fake engine: numbers, selection, release, pin, why not all, and what it costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from PySide6.QtWidgets import QAbstractButton, QMainWindow

from app.panels import page_atlas
from app.panels.cache_dock import CacheDock
from app.panels.page_tip import page_html
from app.theme import Theme
from engine.errors import UnknownChainError
from engine.port import EngineState, Prepared, Span, Turn
from engine.scheduling.events import Eviction, Finished, Miss, PoolCounts
from tests.gui.fakes_panels import FakeBridge, FakePort, big_scene, report, scene


class Bench:
    """A window with the dock in it."""

    def __init__(self, qtbot, snapshot) -> None:
        self.port = FakePort(snapshot)
        self.bridge = FakeBridge(self.port)
        self.window = QMainWindow()
        qtbot.addWidget(self.window)
        self.dock = CacheDock(self.bridge, self.window, chat_title=lambda chat: chat.replace("email", "mail"))
        self.window.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self.dock)
        self.window.resize(340, 1200)
        self.view = self.dock.view

    def show(self) -> Bench:
        self.window.show()
        return self


@pytest.fixture
def bench(qtbot, installed_theme: Theme) -> Bench:
    made = Bench(qtbot, scene())
    yield made.show()
    made.window.close()


def test_the_header_counts_pages(bench):
    assert bench.dock.summary.text() == "264 pages × 16 · 97 MB"
    assert bench.view.pages_header.figures.text() == "38 referenced · 31 cached · 195 free"
    assert bench.view.model.rowCount() == 5
    assert bench.dock.lamp.problem == ""


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"integrity": "Page 7 has 2 holders, the books say 1."}, "Page 7"),
        ({"pool": PoolCounts(264, 1, 1, 1)}, "not 264"),
    ],
)
def test_the_lamp_turns_red_when_the_books_are_wrong(bench, change, said):
    bench.port.current = replace(bench.port.current, **change)
    bench.dock.feed.mark()
    bench.dock.feed._tick()
    assert said in bench.dock.lamp.problem
    assert said in bench.dock.lamp.toolTip()


def test_without_a_model_it_says_so(bench):
    bench.bridge.state.emit(EngineState("empty"))
    assert bench.dock.summary.text() == "no model loaded"
    assert bench.view.model.rowCount() == 0
    assert bench.view.empty.isVisible()
    assert bench.dock.lamp.problem is None


def test_selecting_a_chain_shows_its_dry_run_first(bench):
    bench.dock.select_chain(4)
    card = bench.view.card
    assert card.title.text() == "Rust borrow checker · turn 3"
    assert card.facts.text().startswith("32 tokens here, 208 with its prefix\nhit 3 × · last 40 s ago · born ")
    assert "frees" in card.sentence.text()
    assert card.release.text() == "Release 2 pages"
    assert bench.port.released == []
    assert bench.port.calls["dry_run"] == 1
    assert bench.view.chains.currentIndex().row() == bench.view.model.row_of(4)


def test_release_tells_what_went_and_what_stayed(bench, qtbot):
    bench.dock.select_chain(4)
    with qtbot.waitSignal(bench.dock.said) as said:
        qtbot.mouseClick(bench.view.card.release, Qt.MouseButton.LeftButton)
    assert said.args == ["2 pages freed, 11 kept"]
    assert bench.view.card.title.text() == "Rust borrow checker · turn 3 released"
    assert "11 stayed" in bench.view.card.sentence.text()
    assert bench.port.released == [4]
    assert bench.view.card.isVisible()
    assert not bench.view.card.release.isVisible()
    qtbot.waitUntil(lambda: bench.view.model.rowCount() == 4)
    assert bench.dock.selected_chain is None
    assert bench.view.pages_header.figures.text() == "38 referenced · 29 cached · 197 free"


def test_release_all_is_asked_and_can_be_given_up(bench, qtbot):
    bench.view.release_all.click()
    card = bench.view.card
    assert card.title.text() == "Release all chains"
    assert card.release.text() == "Release 31 pages"
    card.dismiss.click()
    assert not card.isVisible()
    assert bench.port.released == []
    bench.view.release_all.click()
    card.release.click()
    assert sorted(bench.port.released) == [1, 2, 3, 4, 5]
    qtbot.waitUntil(lambda: bench.view.model.rowCount() == 0)
    assert bench.view.pages_header.figures.text() == "38 referenced · 0 cached · 226 free"


def test_delete_in_the_list_leads_to_the_button_not_past_it(bench, qtbot):
    bench.view.chains.select(5)
    qtbot.keyClick(bench.view.chains, Qt.Key.Key_Delete)
    assert bench.dock.selected_chain == 5
    assert bench.port.released == []
    bench.window.activateWindow()
    qtbot.waitUntil(lambda: bench.view.card.release.hasFocus())


def test_pin_and_unpin(bench):
    bench.dock.select_chain(5)
    assert bench.view.card.pin.text() == "Unpin"
    bench.view.card.pin.click()
    bench.dock.select_chain(1)
    bench.view.card.pin.click()
    assert bench.port.pinned == [(5, False), (1, True)]


def test_an_error_of_the_engine_is_said_in_the_card(bench, monkeypatch):
    bench.dock.select_chain(4)

    def refuse(chain, *, dry_run=False):
        from concurrent.futures import Future

        future: Future = Future()
        future.set_exception(UnknownChainError("The cache has no chain 4 any more; it was evicted meanwhile."))
        return future

    monkeypatch.setattr(bench.port, "release", refuse)
    bench.view.card.release.click()
    assert "evicted meanwhile" in bench.view.card.sentence.text()
    assert not bench.view.card.release.isVisible()


def test_what_is_selected_goes_when_it_is_gone(bench):
    bench.dock.select_chain(4)
    bench.port.release(4)
    bench.dock.feed.mark()
    bench.dock.feed._tick()
    assert bench.dock.selected_chain is None
    assert not bench.view.card.isVisible()


def test_a_click_on_a_page_lights_its_chains_and_names_its_chat(bench, qtbot):
    page = scene().segments[6].pages[0]
    center = QPointF(bench.view.pages.cell_rect(page).center())
    assert bench.view.pages.page_at(center) == page
    with qtbot.waitSignal(bench.dock.chat_activated) as chat:
        qtbot.mouseClick(bench.view.pages, Qt.MouseButton.LeftButton, pos=center.toPoint())
    assert chat.args == ["Rust borrow checker"]
    assert bench.dock.selected_chain == 4
    assert bench.view.pages.current == page
    lit = {i for i in range(264) if not bench.view.pages._lit[i]}
    assert lit == set(scene().chains[3].pages)


def test_a_page_of_a_running_reply_alone_leads_to_its_chat(bench, qtbot):
    page = scene().stream_pages[12][-1]
    with qtbot.waitSignal(bench.dock.chat_activated) as chat:
        bench.dock._on_page(page)
    assert chat.args == ["Contract review"]
    assert bench.dock.selected_chain is None
    bench.dock._on_page(263)
    assert bench.view.pages._lit is None


def test_the_map_by_keyboard(bench, qtbot):
    pages = bench.view.pages
    columns = pages._layout(pages.width())[0]
    for key in (Qt.Key.Key_Home, Qt.Key.Key_Right, Qt.Key.Key_Down, Qt.Key.Key_Left):
        qtbot.keyClick(pages, key)
    assert pages.current == columns
    assert pages.accessibleDescription() == f"Page {columns}: {pages.state_of(columns)}"
    qtbot.keyClick(pages, Qt.Key.Key_Home)
    qtbot.keyClick(pages, Qt.Key.Key_Return)
    assert bench.view.card.isVisible()
    qtbot.keyClick(pages, Qt.Key.Key_Escape)
    assert pages.current == -1
    assert not bench.view.card.isVisible()
    height = pages.heightForWidth(300)
    qtbot.keyClick(pages, Qt.Key.Key_Plus)
    assert pages.heightForWidth(300) > height


def test_the_tree_by_keyboard(bench, qtbot):
    tree = bench.view.tree
    for key in (Qt.Key.Key_Down, Qt.Key.Key_Down, Qt.Key.Key_Right):
        qtbot.keyClick(tree, key)
    assert tree.accessibleDescription().startswith("48 tokens from 48 on, 160 tokens with what follows")
    qtbot.keyClick(tree, Qt.Key.Key_Return)
    assert bench.dock.selected_chain in (3, 4)
    qtbot.keyClick(tree, Qt.Key.Key_Plus)
    assert set(tree.layout_now.nodes) == {4, 5, 6}
    qtbot.keyClick(tree, Qt.Key.Key_Escape)
    assert len(tree.layout_now.nodes) == 8


def test_tree_labels_say_text_chat_or_turn(bench):
    tree = bench.view.tree
    labels = [tree.label_of(s) for s in scene().segments]
    assert labels[:3] == ["You are a concise assistant for office work.", "Invoice mail", "turn 2"]
    assert labels[4:7] == ["Rust borrow checker", "turn 2", "turn 3"]


def test_hovering_asks_for_the_page_once_the_cursor_rests(bench, qtbot, monkeypatch):
    shown: list[str] = []
    monkeypatch.setattr("app.panels.page_tip.QToolTip.showText", lambda _place, text, _of: shown.append(text))
    for page in range(8):
        bench.view.pages.hovered.emit(page)
    assert bench.port.calls["page_detail"] == 0
    qtbot.waitUntil(lambda: bool(shown))
    assert bench.port.calls["page_detail"] == 1
    assert "Page 7" in shown[0]
    bench.view.pages.hovered.emit(-1)


def test_a_pages_tooltip(bench):
    detail = bench.port.page_detail(4).result()
    text = page_html(detail, "shared", scene().at, str.upper)
    assert "Page 4" in text
    assert "· shared · 2 holders" in text
    assert "Chats: INVOICE EMAIL" in text
    assert "1 running reply" in text
    assert "3 hits · 1 min old" in text
    assert "&lt;assistant&gt;" in text


def test_why_not_all_shows_cause_and_both_texts(bench, qtbot):
    bench.port.vocabulary = {1: "reminder ", 2: "30 days late", 5: "firmer", 4: " and add"}
    miss = Miss("diverged", 144, token_position=150, chain=1, stored_tokens=(1, 2, 4), prompt_tokens=(1, 5, 4))
    spans = (Span(0, 48, 0), Span(48, 171, 1))
    bench.dock.show_miss(
        Finished(1, "stop", 171, 144, 58, 0, 0, 0, miss=miss),
        Prepared(1, (), spans, None, 1, 1),
        (Turn("system", "s"), Turn("user", "u")),
        chat="Invoice email",
        whose="Invoice mail, last reply",
    )
    why = bench.view.why
    assert why.isVisible()
    assert "Message edited." in why.sentence.text()
    assert "token 151 differs from the chain" in why.sentence.text()
    shown = why.difference.text()
    assert "reminder" in shown
    assert ">30 days late</span>" in shown
    assert ">firmer</span>" in shown
    assert shown.endswith("and add")
    assert why.note.text() == "The last 11 tokens fill only part of a page."
    assert why.header.figures.text() == "Invoice mail, last reply"
    assert bench.dock.selected_chain == 1


def test_evictions_appear_and_are_marked_when_regretted(bench):
    assert not bench.view.evictions.isVisible()
    gone = Eviction(5000.0, 3, "turn 1", "Trip to Porto", 12, 300.0, 120.0, 2, "Invoice email")
    bench.bridge.step.emit(report(1, evictions=(gone,)))
    assert bench.view.evictions.isVisible()
    assert bench.view.evictions_header.figures.text() == ""
    again = Miss("evicted", 0, chain=3, evicted_at=5000.0, evicted_for="Invoice email")
    bench.bridge.finished.emit(Finished(1, "stop", 100, 0, 5, 0, 0, 0, miss=again))
    assert bench.view.evictions_header.figures.text() == "1 asked for again"
    bench.view.evictions.grab()
    bench.bridge.state.emit(EngineState("ready", model=object()))
    assert not bench.view.evictions.isVisible()


def test_hidden_it_asks_for_nothing(qtbot, installed_theme):
    hidden = Bench(qtbot, scene())
    for number in range(50):
        hidden.bridge.step.emit(report(number))
    assert hidden.port.calls["snapshot"] == 0
    assert not hidden.dock.feed._timer.isActive()
    hidden.show()
    assert hidden.port.calls["snapshot"] == 1
    hidden.dock.hide()
    for number in range(50):
        hidden.bridge.step.emit(report(number))
    assert hidden.port.calls["snapshot"] == 1
    assert not hidden.dock.feed._timer.isActive()
    hidden.window.close()


def test_snapshots_come_one_at_a_time_and_stop_when_nothing_changes(bench, qtbot):
    asked = bench.port.calls["snapshot"]
    bench.bridge.held = True
    for number in range(20):
        bench.bridge.step.emit(report(number))
    qtbot.waitUntil(lambda: bench.port.calls["snapshot"] == asked + 1)
    for _ in range(5):
        bench.dock.feed._tick()
    assert bench.port.calls["snapshot"] == asked + 1
    bench.bridge.held = False
    bench.bridge.flush()
    qtbot.waitUntil(lambda: not bench.dock.feed._timer.isActive())


def test_cells_tell_partly_filled_and_pinned_pages(bench):
    snapshot = scene()
    cells = page_atlas.codes(snapshot)
    last = snapshot.stream_pages[12][360 // 16]
    assert cells[last] == page_atlas.PART + 2
    assert cells[snapshot.stream_pages[12][-1]] == page_atlas.ACTIVE or cells[last + 1] == page_atlas.FREE
    pinned = snapshot.chains[4].pages[-1]
    assert cells[pinned] == page_atlas.CACHED | page_atlas.PINNED
    assert bench.view.pages.state_of(pinned) == "cached, pinned"
    assert bench.view.pages.state_of(last) == "active, partly filled"


@pytest.mark.parametrize("pitch", [4, 12, 24])
def test_each_kind_of_cell_has_a_picture_and_a_shape_of_its_own(installed_theme, pitch):
    atlas = page_atlas.build(pitch, installed_theme)
    kinds = [page_atlas.FREE, page_atlas.ACTIVE, page_atlas.SHARED, page_atlas.CACHED]
    pictures = {atlas[k].tobytes() for k in kinds} | {atlas[k | page_atlas.PINNED].tobytes() for k in kinds}
    assert len(pictures) == 8
    assert not atlas[page_atlas.BLANK].any()
    solid = [(atlas[k] >> 24 > 200).tobytes() for k in (page_atlas.ACTIVE, page_atlas.CACHED)]
    assert solid[0] != solid[1] or pitch < 5


def test_the_unused_end_of_a_large_pool_is_left_out_until_asked_for(qtbot, installed_theme):
    large = Bench(qtbot, scene(4096)).show()
    assert large.view.pages.n_folded == 4096 - 288
    assert large.view.fold.text() == "and 3,808 free pages not used so far"
    large.view.fold.click()
    assert large.view.pages.n_folded == 0
    large.view.fold.click()
    assert large.view.pages.n_folded == 4096 - 288
    snapshot = scene(4096)
    snapshot.page_states[1000] = 1
    large.view.pages.set_snapshot(snapshot)
    assert large.view.pages.n_folded < 4096 - 1000
    large.window.close()


def test_ten_thousand_pages_redraw_only_the_rows_that_changed(qtbot, installed_theme):
    snapshot = big_scene()
    large = Bench(qtbot, snapshot).show()
    pages = large.view.pages
    assert large.view.model.rowCount() == 320
    columns, pitch = pages._layout(300)
    assert columns * pitch <= 301
    assert pages.heightForWidth(300) == -(-10_000 // columns) * pitch
    image = page_atlas.MapImage()
    cells = page_atlas.codes(snapshot)
    image.compose(cells, 96, 3, installed_theme)
    assert image.rows_drawn == 105
    image.compose(cells, 96, 3, installed_theme)
    assert image.rows_drawn == 0
    cells[5000:5010] = page_atlas.CACHED
    picture = image.compose(cells, 96, 3, installed_theme)
    assert image.rows_drawn == 1
    row, column = divmod(5000, 96)
    assert picture.pixelColor(column * 3, row * 3).name() == installed_theme.color("cached").name()
    large.window.close()


def test_painting_again_without_a_change_composes_nothing(bench):
    bench.view.pages.grab()
    assert bench.view.pages._image.rows_drawn in (0, -(-264 // bench.view.pages._layout(bench.view.pages.width())[0]))
    bench.view.pages.grab()
    assert bench.view.pages._image.rows_drawn == 0
    same = scene()
    before = bench.view.pages._cells
    bench.view.pages.set_snapshot(same)
    assert bench.view.pages._cells is before
    assert np.array_equal(before, page_atlas.codes(same))


def test_everything_that_can_be_pressed_has_a_name(bench):
    for button in bench.dock.findChildren(QAbstractButton):
        if button.objectName() != "qt_toolbar_ext_button" and not button.objectName().startswith("qt_"):
            assert button.accessibleName() or button.text(), button
    for part in (bench.view.pages, bench.view.tree, bench.view.chains, bench.view.card, bench.view.why):
        assert part.accessibleName()
