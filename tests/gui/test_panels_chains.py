"""The chains as an item model and their list."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import QPersistentModelIndex, Qt
from PySide6.QtTest import QAbstractItemModelTester

from app.itemmodels.chain_model import AGE, CHAT, HITS, LABEL, PAGES, TOKENS, ChainModel, ChainRole
from app.itemmodels.eviction_model import KEPT, EvictionModel, RegretRole, SubtitleRole
from app.panels.chain_list import ChainList
from app.panels.words import clock
from engine.scheduling.events import Eviction, Finished, Miss
from tests.gui.fakes_panels import NOW, big_scene, scene


@pytest.fixture
def model(qapp):
    made = ChainModel(chat_title=lambda chat: f"«{chat}»")
    tester = QAbstractItemModelTester(made, QAbstractItemModelTester.FailureReportingMode.Fatal)
    made.update(scene().chains, NOW)
    yield made
    tester.deleteLater()
    made.deleteLater()


def texts(model: ChainModel, row: int) -> list[str]:
    return [model.index(row, column).data() for column in range(model.columnCount())]


def test_a_row_tells_label_chat_tokens_pages_hits_and_age(model):
    row = model.row_of(4)
    assert row is not None
    assert texts(model, row) == ["turn 3", "«Rust borrow checker»", "208", "13", "3", "2 min"]
    assert model.index(row, HITS).data(ChainRole).id == 4
    said = model.index(row, LABEL).data(Qt.ItemDataRole.AccessibleTextRole)
    assert said.startswith("turn 3, «Rust borrow checker»: 208 tokens on 13 pages, 2 of them its own; 3 hits, last hit")
    header = [model.headerData(c, Qt.Orientation.Horizontal) for c in range(6)]
    assert header == ["Chain", "Chat", "Tokens", "Pages", "Hits", "Age"]


def test_updates_keep_places_and_survive_the_tester(model):
    chains = scene().chains
    kept = QPersistentModelIndex(model.index(model.row_of(4), LABEL))
    model.update([*chains[2:], replace(chains[0], hits=9)], NOW + 100)
    assert model.rowCount() == 4
    assert kept.isValid()
    assert kept.data(ChainRole).id == 4
    assert texts(model, model.row_of(1))[HITS] == "9"
    model.update(big_scene(400, 3, 4).chains, NOW)
    assert model.rowCount() == 12
    model.update((), NOW)
    assert model.rowCount() == 0
    assert not kept.isValid()


@pytest.mark.parametrize("column", [LABEL, CHAT, TOKENS, PAGES, HITS, AGE])
def test_each_column_sorts_both_ways(model, column):
    values = {
        LABEL: lambda c: c.label, CHAT: lambda c: c.chat, TOKENS: lambda c: c.n_tokens,
        PAGES: lambda c: len(c.pages), HITS: lambda c: c.hits, AGE: lambda c: -c.born,
    }[column]  # fmt: skip
    for order, down in ((Qt.SortOrder.AscendingOrder, False), (Qt.SortOrder.DescendingOrder, True)):
        model.sort(column, order)
        shown = [values(model.chain(row)) for row in range(model.rowCount())]
        assert shown == sorted(shown, reverse=down)


def test_a_new_chain_is_sorted_in(model):
    model.sort(TOKENS, Qt.SortOrder.AscendingOrder)
    extra = replace(scene().chains[0], id=99, n_tokens=5)
    model.update([*scene().chains, extra], NOW)
    assert model.chain(0).id == 99


def test_keys_of_the_list(model, qtbot):
    view = ChainList(model)
    qtbot.addWidget(view)
    view.resize(320, 300)
    view.select(4)
    said: list[tuple] = []
    view.release_asked.connect(lambda c: said.append(("release", c)))
    view.pin_asked.connect(lambda c, on: said.append(("pin", c, on)))
    view.chat_asked.connect(lambda c: said.append(("chat", c)))
    for key in (Qt.Key.Key_Delete, Qt.Key.Key_P, Qt.Key.Key_Return):
        qtbot.keyClick(view, key)
    assert said == [("release", 4), ("pin", 4, True), ("chat", "Rust borrow checker")]
    with qtbot.waitSignal(view.chain_selected) as chosen:
        qtbot.keyClick(view, Qt.Key.Key_Down)
    assert chosen.args[0] != 4


def test_the_menu_offers_what_can_be_done(model, qtbot):
    view = ChainList(model)
    qtbot.addWidget(view)
    pinned = model.chain(model.row_of(5))
    menu = view.menu_for(pinned)
    assert [a.text() for a in menu.actions() if a.text()] == ["Show chat", "Unpin", "Release …"]
    with qtbot.waitSignal(view.pin_asked) as asked:
        menu.actions()[1].trigger()
    assert asked.args == [5, False]
    menu.deleteLater()


def evicted(chain: int, at: float, pages: int = 1, whom: str = "b") -> Eviction:
    return Eviction(at, chain, f"turn {chain}", "a", pages, 600.0, 90.0, 2, whom)


def missed(at: float | None, chain: int | None) -> Finished:
    return Finished(1, "stop", 100, 0, 5, 0, 0, 0, miss=Miss("evicted", 0, chain=chain, evicted_at=at))


@pytest.fixture
def ledger(qapp):
    made = EvictionModel(chat_title={"a": "Chat A", "b": "Chat B", "": ""}.__getitem__)
    tester = QAbstractItemModelTester(made, QAbstractItemModelTester.FailureReportingMode.Fatal)
    yield made
    tester.deleteLater()
    made.deleteLater()


def test_the_ledger_tells_victim_beneficiary_and_idle_time(ledger):
    ledger.add([evicted(1, NOW), evicted(2, NOW + 1, pages=12, whom="")])
    first = [ledger.index(0, column).data() for column in range(4)]
    assert first == ["Chat A · turn 2", "12", "1 min", clock(NOW + 1)]
    assert [ledger.index(row, 0).data(SubtitleRole) for row in range(2)] == ["for want of room", "for Chat B"]
    said = ledger.index(1, 0).data(Qt.ItemDataRole.AccessibleTextRole)
    assert said == f"Chat A · turn 1: 1 page evicted at {clock(NOW)} for Chat B; 10 min old, idle for 1 min, 2 hits"


def test_evictions_in_quick_succession_are_one_row_and_all_can_be_regretted(ledger):
    ledger.add([evicted(1, NOW), evicted(1, NOW + 2), evicted(1, NOW + 4, pages=3)])
    assert ledger.rowCount() == 1
    assert ledger.index(0, 1).data() == "5"
    ledger.add([evicted(1, NOW + 90)])
    assert ledger.rowCount() == 2
    ledger.regret(missed(NOW + 2, 9))
    ledger.regret(missed(None, 1))
    assert ledger.n_regretted == 0
    ledger.regret(missed(NOW + 2, 1))
    assert [ledger.index(row, 0).data(RegretRole) for row in range(2)] == [False, True]
    assert ledger.index(1, 0).data(SubtitleRole) == "for Chat B, asked for again"


def test_the_ledger_forgets_the_oldest(ledger):
    ledger.add([evicted(i, NOW + i) for i in range(KEPT + 50)])
    assert ledger.rowCount() == KEPT
    assert ledger.index(KEPT - 1, 0).data() == "Chat A · turn 50"
    ledger.clear()
    assert ledger.rowCount() == 0
