"""The list of chains: sortable figures, two lines per chain, a menu and keys for release and pin."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, Qt, Signal
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QMenu, QTableView, QWidget

from app.itemmodels.chain_model import AGE, CHAT, HITS, LABEL, PAGES, TOKENS, ChainModel, ChainRole
from app.panels.two_lines import TwoLines, set_up
from app.text import tr
from app.theme import Theme, icon
from engine.port import ChainInfo


def _details(index: QModelIndex | QPersistentModelIndex) -> tuple[str, tuple[str, str] | None]:
    chain: ChainInfo = index.data(ChainRole)
    return index.model().index(index.row(), CHAT).data(), ("pin", "pinned") if chain.pinned else None


class ChainList(QTableView):
    """The chains of the prefix cache.

    Signals:
        chain_selected(chain): another row was chosen.
        release_asked(chain): Delete, or Release in the menu.
        pin_asked(chain, pinned): P, or Pin in the menu.
        chat_asked(chat): Enter, a double click, or Show chat in the menu.
    """

    chain_selected = Signal(int)
    release_asked = Signal(int)
    pin_asked = Signal(int, bool)
    chat_asked = Signal(str)

    def __init__(self, model: ChainModel, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._chains = model
        self.setModel(model)
        self.setAccessibleName(tr("Chains of the prefix cache"))
        self.setAccessibleDescription(tr("Enter shows the chat, Delete releases, P pins"))
        self._delegate = TwoLines(_details, self)
        self.setItemDelegateForColumn(LABEL, self._delegate)
        self.setColumnHidden(CHAT, True)
        set_up(self, {TOKENS: 54, PAGES: 46, HITS: 36, AGE: 52})
        self.setSortingEnabled(True)
        self.sortByColumn(AGE, Qt.SortOrder.AscendingOrder)
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        self.customContextMenuRequested.connect(self._menu)
        self.selectionModel().currentRowChanged.connect(self._on_current)
        self.doubleClicked.connect(self._on_double)
        Theme.current().changed.connect(self.viewport().update)

    def chain_at(self, index: QModelIndex) -> ChainInfo | None:
        """The chain of a view index."""
        return index.data(ChainRole) if index.isValid() else None

    def select(self, chain: int | None) -> None:
        """Choose a chain's row without telling anyone; None clears."""
        blocked = self.selectionModel().blockSignals(True)
        row = None if chain is None else self._chains.row_of(chain)
        if row is None:
            self.clearSelection()
            self.setCurrentIndex(QModelIndex())
        else:
            self.selectRow(row)
            self.scrollTo(self._chains.index(row, LABEL))
        self.selectionModel().blockSignals(blocked)
        self.viewport().update()

    def _on_current(self, current: QModelIndex, _: QModelIndex) -> None:
        if not self._chains.updating and (chain := self.chain_at(current)) is not None:
            self.chain_selected.emit(chain.id)

    def _on_double(self, index: QModelIndex) -> None:
        if (chain := self.chain_at(index)) is not None:
            self.chat_asked.emit(chain.chat)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        chain = self.chain_at(self.currentIndex())
        if chain is None:
            super().keyPressEvent(event)
        elif event.key() == Qt.Key.Key_Delete:
            self.release_asked.emit(chain.id)
        elif event.key() == Qt.Key.Key_P:
            self.pin_asked.emit(chain.id, not chain.pinned)
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            self.chat_asked.emit(chain.chat)
        else:
            super().keyPressEvent(event)

    def menu_for(self, chain: ChainInfo) -> QMenu:
        """What can be done with a chain."""
        menu = QMenu(self)
        menu.addAction(icon("chat"), tr("Show chat"), lambda: self.chat_asked.emit(chain.chat))
        pin = tr("Unpin") if chain.pinned else tr("Pin")
        menu.addAction(icon("pin"), pin, lambda: self.pin_asked.emit(chain.id, not chain.pinned))
        menu.addSeparator()
        menu.addAction(icon("release"), tr("Release …"), lambda: self.release_asked.emit(chain.id))
        return menu

    def _menu(self, position: QPoint) -> None:
        if (chain := self.chain_at(self.indexAt(position))) is not None:
            menu = self.menu_for(chain)
            menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
            menu.popup(self.viewport().mapToGlobal(position))
