"""The list of chains: sortable figures, two lines per chain, a menu and keys for release and pin."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import QFont, QFontMetrics, QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QMenu,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from app.itemmodels.chain_model import AGE, CHAT, HITS, LABEL, PAGES, TOKENS, ChainModel, ChainRole
from app.text import tr
from app.theme import Theme, icon, pixmap
from engine.port import ChainInfo

_ROW = 40


class _TwoLines(QStyledItemDelegate):
    """Paints a chain's label over its chat, with a pin where it is pinned."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        chain: ChainInfo = index.data(ChainRole)
        self.initStyleOption(option, index)
        title = option.text
        option.text = ""
        style = option.widget.style()
        style.drawControl(QStyle.ControlElement.CE_ItemViewItem, option, painter, option.widget)
        theme = Theme.current()
        box = option.rect.adjusted(6, 4, -4, -4)
        half = box.height() // 2
        painter.save()
        upper = QRect(box.left(), box.top(), box.width(), half)
        if chain.pinned:
            ratio = painter.device().devicePixelRatioF()
            painter.drawPixmap(upper.left(), upper.top() + (half - 12) // 2, pixmap("pin", "pinned", 12, ratio))
            upper.adjust(16, 0, 0, 0)
        _line(painter, upper, title, theme.font("body"), "text")
        chat = index.model().index(index.row(), CHAT).data()
        _line(painter, QRect(box.left(), box.top() + half, box.width(), half), chat, theme.font("caption"), "muted")
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> QSize:
        return QSize(120, _ROW)


def _line(painter: QPainter, box: QRect, text: str, font: QFont, token: str) -> None:
    painter.setFont(font)
    painter.setPen(Theme.current().color(token))
    shown = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideRight, box.width())
    painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)


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
        self._delegate = _TwoLines(self)
        self.setItemDelegateForColumn(LABEL, self._delegate)
        self.setColumnHidden(CHAT, True)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setShowGrid(False)
        self.setWordWrap(False)
        self.setTabKeyNavigation(False)
        self.verticalHeader().hide()
        self.verticalHeader().setDefaultSectionSize(_ROW)
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        header = self.horizontalHeader()
        header.setMinimumSectionSize(32)
        header.setHighlightSections(False)
        header.setSectionResizeMode(LABEL, QHeaderView.ResizeMode.Stretch)
        for column, width in ((TOKENS, 54), (PAGES, 46), (HITS, 36), (AGE, 52)):
            header.setSectionResizeMode(column, QHeaderView.ResizeMode.Fixed)
            header.resizeSection(column, width)
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
