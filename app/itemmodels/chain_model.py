"""The chains of the prefix cache as an item model: one row per chain, one column per figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.panels.words import clock, count, duration
from app.text import tr
from engine.port import ChainInfo

COLUMNS = ("Chain", "Chat", "Tokens", "Pages", "Hits", "Age")
LABEL, CHAT, TOKENS, PAGES, HITS, AGE = range(6)
ChainRole = Qt.ItemDataRole.UserRole + 1
"""The row's ``ChainInfo``."""

_Index = QModelIndex | QPersistentModelIndex


class ChainModel(QAbstractTableModel):
    """Sorted rows that keep their place while their figures change, so that a selection survives each refresh.

    It sorts itself: with some hundred chains a proxy would ask for every value at each refresh.
    """

    def __init__(self, parent: QObject | None = None, *, chat_title: Callable[[str], str] = str) -> None:
        super().__init__(parent)
        self._rows: list[ChainInfo] = []
        self._now = 0.0
        self._chat_title = chat_title
        self._column, self._descending = AGE, False
        self.updating = False
        """True while ``update`` runs: what views choose meanwhile is not the person's choice."""

    def update(self, chains: Sequence[ChainInfo], now: float) -> None:
        """Take over a snapshot's chains; ``now`` is its time in Unix seconds."""
        self._now = now
        self.updating = True
        self._replace(chains)
        self._put_in_order()
        self.updating = False

    def _replace(self, chains: Sequence[ChainInfo]) -> None:
        wanted = {c.id: c for c in chains}
        for row in range(len(self._rows) - 1, -1, -1):
            if self._rows[row].id not in wanted:
                self.beginRemoveRows(QModelIndex(), row, row)
                del self._rows[row]
                self.endRemoveRows()
        for row, old in enumerate(self._rows):
            new = wanted.pop(old.id)
            if new is not old and new != old:
                self._rows[row] = new
                self.dataChanged.emit(self.index(row, 0), self.index(row, len(COLUMNS) - 1))
        if wanted:
            first = len(self._rows)
            self.beginInsertRows(QModelIndex(), first, first + len(wanted) - 1)
            self._rows.extend(wanted.values())
            self.endInsertRows()

    def sort(self, column: int, order: Qt.SortOrder = Qt.SortOrder.AscendingOrder) -> None:
        """Order the rows by a column's value."""
        self._column, self._descending = column, order == Qt.SortOrder.DescendingOrder
        self._put_in_order()

    def _put_in_order(self) -> None:
        ordered = sorted(self._rows, key=self._sort_value, reverse=self._descending)
        if ordered == self._rows:
            return
        self.layoutAboutToBeChanged.emit()
        places = {chain.id: row for row, chain in enumerate(ordered)}
        before = self.persistentIndexList()
        after = [self.index(places[self._rows[i.row()].id], i.column()) for i in before]
        self._rows = ordered
        self.changePersistentIndexList(before, after)
        self.layoutChanged.emit()

    def _sort_value(self, chain: ChainInfo) -> tuple[Any, int]:
        values = (chain.label, chain.chat, chain.n_tokens, len(chain.pages), chain.hits, -chain.born)
        return values[self._column], chain.id

    def refresh_ages(self, now: float) -> None:
        """Let the ages go on while nothing else happens."""
        self._now = now
        if self._rows:
            self.dataChanged.emit(self.index(0, AGE), self.index(len(self._rows) - 1, AGE))

    def chain(self, row: int) -> ChainInfo:
        """The chain in a row."""
        return self._rows[row]

    def row_of(self, chain: int) -> int | None:
        """The row of a chain's id, None when it is gone."""
        return next((i for i, c in enumerate(self._rows) if c.id == chain), None)

    def rowCount(self, parent: _Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(self._rows)

    def columnCount(self, parent: _Index | None = None) -> int:
        return 0 if parent is not None and parent.isValid() else len(COLUMNS)

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation == Qt.Orientation.Horizontal and 0 <= section < len(COLUMNS):
            if role == Qt.ItemDataRole.DisplayRole:
                return tr(COLUMNS[section])
            if role == Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(section)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        chain, column = self._rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self._texts(chain)[column]
        if role == ChainRole:
            return chain
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole):
            return self._sentence(chain)
        return None

    def _texts(self, chain: ChainInfo) -> tuple[str, ...]:
        return (
            chain.label or tr("(no label)"),
            self._chat_title(chain.chat),
            f"{chain.n_tokens:,}",
            f"{len(chain.pages):,}",
            f"{chain.hits:,}",
            duration(self._now - chain.born),
        )

    def _sentence(self, chain: ChainInfo) -> str:
        used = tr("last hit {ago} ago", ago=duration(self._now - chain.last_hit)) if chain.last_hit else tr("never hit")
        words = tr(
            "{label}, {chat}: {tokens} on {pages}, {own:,} of them its own; {hits}, {used}, stored at {time}",
            label=chain.label or tr("(no label)"),
            chat=self._chat_title(chain.chat),
            tokens=count(chain.n_tokens, "token"),
            pages=count(len(chain.pages), "page"),
            own=chain.n_own,
            hits=count(chain.hits, "hit"),
            used=used,
            time=clock(chain.born),
        )
        return words + (", " + tr("pinned") if chain.pinned else "")


def _alignment(column: int) -> int:
    side = Qt.AlignmentFlag.AlignLeft if column in (LABEL, CHAT) else Qt.AlignmentFlag.AlignRight
    return int(side | Qt.AlignmentFlag.AlignVCenter)
