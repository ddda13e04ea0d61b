"""What stands in the Cache dock, from top to bottom: pages, prefix tree, the selected chain, why not all, chains."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.itemmodels.chain_model import ChainModel
from app.itemmodels.eviction_model import EvictionModel
from app.panels.asks import Asks
from app.panels.chain_card import ChainCard
from app.panels.chain_list import ChainList
from app.panels.eviction_list import EvictionList
from app.panels.page_legend import PageLegend
from app.panels.page_map import PageMap
from app.panels.parts import SectionHeader, label
from app.panels.prefix_tree import PrefixTree
from app.panels.why_card import WhyCard
from app.panels.words import count
from app.text import tr


class CacheView(QScrollArea):
    """The parts of the dock, laid out; the dock gives them their behaviour."""

    def __init__(self, bridge: Asks, chat_title: Callable[[str], str]) -> None:
        super().__init__()
        self.setProperty("flat", True)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.pages_header = SectionHeader(tr("Pages"))
        self.pages = PageMap()
        self.fold = QPushButton()
        self.fold.setProperty("variant", "link")
        self.fold.setCheckable(True)
        self.fold.toggled.connect(self._on_fold)
        self.tree_header = SectionHeader(tr("Prefix tree"), tr("width = tokens"))
        self.tree = PrefixTree(chat_title=chat_title)
        self.empty = label(
            tr("Nothing is stored yet. When a reply ends, its pages stay here and the next turn reuses them."),
            "muted",
            wrap=True,
        )
        self.card = ChainCard()
        self.why = WhyCard(bridge)
        self.chains_header = SectionHeader(tr("Chains"))
        self.release_all = QPushButton(tr("Release all …"))
        self.release_all.setProperty("variant", "link")
        self.release_all.setAccessibleName(tr("Release all chains"))
        self.chains_header.row.addWidget(self.release_all)
        self.model = ChainModel(self, chat_title=chat_title)
        self.chains = ChainList(self.model)
        self.chains.setMinimumHeight(188)
        self.evictions_header = SectionHeader(tr("Evictions"))
        self.ledger = EvictionModel(self, chat_title=chat_title)
        self.evictions = EvictionList(self.ledger)
        self.legend = PageLegend()
        self.filler = QWidget()
        self.setWidget(self._stack())

    def _stack(self) -> QWidget:
        inner = QWidget()
        inner.setProperty("surface", "panel")
        inner.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        column = self._column = QVBoxLayout(inner)
        column.setContentsMargins(16, 8, 16, 8)
        column.setSpacing(8)
        upper: tuple[QWidget, ...] = (self.pages_header, self.pages, self.fold, self.legend)
        middle: tuple[QWidget, ...] = (self.tree_header, self.empty, self.tree, self.card, self.why)
        for group in (upper, middle):
            for part in group:
                column.addWidget(part, 0, Qt.AlignmentFlag.AlignLeft if part is self.fold else Qt.AlignmentFlag(0))
            column.addSpacing(8)
        column.addWidget(self.chains_header)
        column.addWidget(self.chains, 1)
        column.addWidget(self.filler, 1)
        column.addWidget(self.evictions_header)
        column.addWidget(self.evictions)
        return inner

    def show_folded(self) -> None:
        """Say how many pages the map leaves out, or offer to leave them out again."""
        n, all_shown = self.pages.n_folded, self.fold.isChecked()
        self.fold.setVisible(n > 0 or all_shown)
        self.fold.setText(
            tr("Leave out the unused end")
            if all_shown
            else tr("and {pages} not used so far", pages=count(n, "free page"))
        )
        self.fold.setAccessibleName(self.fold.text())

    def _on_fold(self, all_shown: bool) -> None:
        self.pages.set_folding(not all_shown)
        self.show_folded()

    def reveal(self, part: QWidget) -> None:
        """Scroll down or up, never sideways, until a part is visible."""
        self._column.activate()
        top = part.y()
        for y in (top + part.height() + 8, top - 8):
            self.ensureVisible(0, y, 0, 0)

    def show_evictions(self) -> None:
        """Show the ledger once something was evicted."""
        n = self.ledger.rowCount()
        self.evictions_header.setVisible(n > 0)
        self.evictions.setVisible(n > 0)
        regretted = self.ledger.n_regretted
        self.evictions_header.figures.setText(tr("{n:,} asked for again", n=regretted) if regretted else "")

    def show_stored(self, n_chains: int, *, model: bool = True) -> None:
        """Show the tree and the list, or the hint that nothing is stored; without a model only the hint."""
        for part in (self.pages_header, self.pages, self.legend, self.tree_header):
            part.setVisible(model)
        if not model:
            self.fold.hide()
        self.empty.setVisible(not n_chains)
        self.filler.setVisible(not n_chains)
        self.tree.setVisible(bool(n_chains))
        self.chains_header.setVisible(bool(n_chains))
        self.chains.setVisible(bool(n_chains))
