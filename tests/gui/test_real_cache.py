"""The Cache dock over the real engine: what a release frees, what stays, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest

from app.itemmodels.chain_model import LABEL
from app.panels.cache_dock import CacheDock
from engine.hosting.bundle import Loader
from engine.model.language_model import LanguageModel
from engine.port import ChainInfo, Snapshot
from tests.gui.real_engine import RealWindow, never_ends, real_window, wait_until, words

pytestmark = pytest.mark.usefixtures("installed_theme")

SYSTEM = "You are a terse assistant in a hardware shop. You sell tools, paint, timber and garden supplies, " * 3
"""Several whole pages that chats share."""


@pytest.fixture
def window(real_loader: Loader, smollm2_path: Path, tmp_path: Path) -> Iterator[RealWindow]:
    with real_window(tmp_path, real_loader, str(smollm2_path)) as window:
        yield window


def pages_of(chains: Iterable[ChainInfo]) -> dict[int, tuple[int, ...]]:
    """The live pages of chains, by id."""
    return {chain.id: chain.pages for chain in chains}


def shown_chains(dock: CacheDock) -> dict[str, ChainInfo]:
    """The chains in the list, by label."""
    model = dock.view.model
    rows = [dock.view.chains.chain_at(model.index(row, LABEL)) for row in range(model.rowCount())]
    return {chain.label: chain for chain in rows if chain is not None}


def select(window: RealWindow, label: str) -> ChainInfo:
    """Click on a chain in the list, and wait for its dry run."""
    dock = window.window.cache_dock
    wait_until(lambda: label in shown_chains(dock), f"the chain “{label}” is listed")
    chain = shown_chains(dock)[label]
    row = dock.view.model.row_of(chain.id)
    assert row is not None
    view = dock.view.chains
    place = view.visualRect(dock.view.model.index(row, LABEL)).center()
    QTest.mouseClick(view.viewport(), Qt.MouseButton.LeftButton, pos=place)
    wait_until(lambda: dock.view.card.isVisible() and dock.view.card.release.isEnabled(), "the dry run")
    return chain


def settled(window: RealWindow) -> Snapshot:
    """Everything at rest, and the dock shows it."""
    snapshot = window.rest()
    dock = window.window.cache_dock
    wait_until(lambda: pages_of(shown_chains(dock).values()) == pages_of(snapshot.chains), "the list is up to date")
    return snapshot


def test_releasing_a_chain_returns_its_pages(window: RealWindow) -> None:
    window.new_chat()
    window.ask("Name three colours of the rainbow.")
    before = settled(window)
    assert before.pool.cached > 0
    chain = select(window, "Name three colours of the rainbow.")
    card = window.window.cache_dock.view.card
    assert words(card.sentence.text()) == f"Release frees {len(chain.pages)} pages."
    assert card.release.text() == f"Release {len(chain.pages)} pages"
    QTest.mouseClick(card.release, Qt.MouseButton.LeftButton)
    wait_until(lambda: words(card.sentence.text()) == f"Freed {len(chain.pages)} pages.", "the outcome")
    after = settled(window)
    assert after.chains == () and after.pool.cached == before.pool.cached - len(chain.pages) == 0
    assert after.pool.free == after.pool.capacity
    reply = window.ask("And three more?")
    assert reply.stats is not None and reply.stats.n_cached == 0 and reply.stats.miss is not None
    assert reply.stats.miss.cause == "evicted" and reply.stats.miss.evicted_for == ""
    assert window.reply_view(reply).footer.why.isVisible()


def test_what_other_chains_need_stays(window: RealWindow) -> None:
    """Two chats over one system prompt: releasing one frees its own pages and says with whom the rest is shared."""
    for question in ("Do you sell drills for concrete and wood?", "When do you open on Saturdays and Sundays?"):
        window.new_chat(system_prompt=SYSTEM)
        window.ask(question)
        window.rest()
    before = settled(window)
    chain = select(window, "Do you sell drills for concrete and wood?")
    kept = len(chain.pages) - chain.n_own
    assert chain.n_own > 0 and kept >= 3
    card = window.window.cache_dock.view.card
    pages = "1 page" if chain.n_own == 1 else f"{chain.n_own} pages"
    told = words(card.sentence.text())
    assert told.startswith(f"Release frees {pages}; {kept} stay, shared with “When do you open")
    QTest.mouseClick(card.release, Qt.MouseButton.LeftButton)
    wait_until(lambda: words(card.sentence.text()).startswith(f"Freed {pages}; {kept} stayed"), "the outcome")
    after = settled(window)
    assert after.pool.free == before.pool.free + chain.n_own
    assert after.pool.cached == before.pool.cached - chain.n_own
    assert [c.label for c in after.chains] == ["When do you open on Saturdays and Sundays?"]


def test_a_release_never_takes_what_a_reply_uses(window: RealWindow, smollm2: LanguageModel) -> None:
    chat = window.new_chat(system_prompt=SYSTEM)
    window.ask("Do you sell drills?")
    settled(window)
    window.set_chat(chat, sampling=never_ends(smollm2), max_new=1500)
    reply = window.send("Tell me about each of them.")
    window.wait_for_phase("decoding")
    view = window.window.cache_dock.view
    QTest.mouseClick(view.release_all, Qt.MouseButton.LeftButton)
    wait_until(lambda: "leave when the replies that use them end" in words(view.card.sentence.text()), "the dry run")
    QTest.mouseClick(view.card.release, Qt.MouseButton.LeftButton)
    wait_until(lambda: words(view.card.sentence.text()).startswith("Freed"), "the outcome")
    assert "leave when the replies that use them end" in words(view.card.sentence.text())
    written = len(window.live().ids)
    wait_until(lambda: len(window.live().ids) > written + 3, "the reply goes on")
    window.press_escape()
    window.wait_for(reply)
    assert reply.status == "stopped" and reply.text
    after = settled(window)
    assert [c.label for c in after.chains] == ["Tell me about each of them."], "the reply's own pages are kept again"


def test_release_all_empties_the_cache(window: RealWindow) -> None:
    for question in ("Name a colour.", "Name an animal."):
        window.new_chat(system_prompt=SYSTEM)
        window.ask(question)
    before = settled(window)
    view = window.window.cache_dock.view
    QTest.mouseClick(view.release_all, Qt.MouseButton.LeftButton)
    wait_until(lambda: words(view.card.sentence.text()) == f"Release frees {before.pool.cached} pages.", "the dry run")
    QTest.mouseClick(view.card.release, Qt.MouseButton.LeftButton)
    wait_until(lambda: words(view.card.sentence.text()) == f"Freed {before.pool.cached} pages.", "the outcome")
    after = settled(window)
    assert after.pool.free == after.pool.capacity and after.chains == ()


def test_the_docks_show_the_engines_own_numbers(window: RealWindow) -> None:
    window.new_chat()
    window.ask("Name a colour.")
    snapshot = settled(window)
    pool = snapshot.pool
    dock = window.window.cache_dock
    figures = f"0 referenced · {pool.cached:,} cached · {pool.free:,} free"
    wait_until(lambda: dock.view.pages_header.figures.text() == figures, "the page counts are shown")
    assert all(step.pool.free + step.pool.cached + step.pool.referenced == pool.capacity for step in window.steps)
    assert {len(step.decoded) for step in window.steps} <= {0, 1}
    assert sum(n for step in window.steps for _, n in step.prefilled) >= snapshot.chains[0].n_tokens - 16
