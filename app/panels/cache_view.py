"""What stands in the Cache dock, from top to bottom: pages, prefix tree, the selected chain, why not all, chains."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.itemmodels.chain_model import ChainModel
from app.panels.asks import Asks
from app.panels.chain_card import ChainCard
from app.panels.chain_list import ChainList
from app.panels.page_legend import PageLegend
from app.panels.page_map import PageMap
from app.panels.parts import SectionHeader, label
from app.panels.prefix_tree import PrefixTree
from app.panels.why_card import WhyCard


class CacheView(QScrollArea):
    """The parts of the dock, laid out; the dock gives them their behaviour."""

    def __init__(self, bridge: Asks, chat_title: Callable[[str], str]) -> None:
        super().__init__()
        self.setProperty("flat", True)
        self.setWidgetResizable(True)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.pages_header = SectionHeader("Pages")
        self.pages = PageMap()
        self.tree_header = SectionHeader("Prefix tree", "width = tokens")
        self.tree = PrefixTree(chat_title=chat_title)
        self.empty = label(
            "Nothing is stored yet. When a reply ends, its pages stay here and the next turn reuses them.",
            "muted",
            wrap=True,
        )
        self.card = ChainCard()
        self.why = WhyCard(bridge)
        self.chains_header = SectionHeader("Chains")
        self.release_all = QPushButton("Release all …")
        self.release_all.setProperty("variant", "link")
        self.release_all.setAccessibleName("Release all chains")
        self.chains_header.row.addWidget(self.release_all)
        self.model = ChainModel(self, chat_title=chat_title)
        self.chains = ChainList(self.model)
        self.chains.setMinimumHeight(188)
        self.setWidget(self._stack())

    def _stack(self) -> QWidget:
        inner = QWidget()
        inner.setProperty("surface", "panel")
        inner.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        column = QVBoxLayout(inner)
        column.setContentsMargins(16, 8, 16, 8)
        column.setSpacing(8)
        upper: tuple[QWidget, ...] = (self.pages_header, self.pages, PageLegend())
        middle: tuple[QWidget, ...] = (self.tree_header, self.empty, self.tree, self.card, self.why)
        for group in (upper, middle):
            for part in group:
                column.addWidget(part)
            column.addSpacing(8)
        column.addWidget(self.chains_header)
        column.addWidget(self.chains, 1)
        return inner

    def reveal(self, part: QWidget) -> None:
        """Scroll down or up, never sideways, until a part is visible."""
        top = part.y()
        for y in (top + part.height() + 8, top - 8):
            self.ensureVisible(0, y, 0, 0)

    def show_stored(self, n_chains: int) -> None:
        """Show the tree and the list, or the hint that nothing is stored."""
        self.empty.setVisible(not n_chains)
        self.tree.setVisible(bool(n_chains))
        self.chains_header.setVisible(bool(n_chains))
        self.chains.setVisible(bool(n_chains))
