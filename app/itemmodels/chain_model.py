"""The chains of the prefix cache as an item model: one row per chain, one column per figure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.panels.words import clock, count, duration
from engine.port import ChainInfo

COLUMNS = ("Chain", "Chat", "Tokens", "Pages", "Hits", "Age")
LABEL, CHAT, TOKENS, PAGES, HITS, AGE = range(6)
ChainRole = Qt.ItemDataRole.UserRole + 1
"""The row's ``ChainInfo``."""
SortRole = Qt.ItemDataRole.UserRole + 2
"""The value a column sorts by."""

_Index = QModelIndex | QPersistentModelIndex


class ChainModel(QAbstractTableModel):
    """Rows keep their place while their figures change, so that a selection survives each refresh."""

    def __init__(self, parent: QObject | None = None, *, chat_title: Callable[[str], str] = str) -> None:
        super().__init__(parent)
        self._rows: list[ChainInfo] = []
        self._now = 0.0
        self._chat_title = chat_title

    def update(self, chains: Sequence[ChainInfo], now: float) -> None:
        """Take over a snapshot's chains; ``now`` is its time in Unix seconds."""
        self._now = now
        wanted = {c.id: c for c in chains}
        for row in range(len(self._rows) - 1, -1, -1):
            if self._rows[row].id not in wanted:
                self.beginRemoveRows(QModelIndex(), row, row)
                del self._rows[row]
                self.endRemoveRows()
        for row, old in enumerate(self._rows):
            if (new := wanted.pop(old.id)) != old:
                self._rows[row] = new
                self.dataChanged.emit(self.index(row, 0), self.index(row, len(COLUMNS) - 1))
        if wanted:
            first = len(self._rows)
            self.beginInsertRows(QModelIndex(), first, first + len(wanted) - 1)
            self._rows.extend(wanted.values())
            self.endInsertRows()

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
                return COLUMNS[section]
            if role == Qt.ItemDataRole.TextAlignmentRole:
                return _alignment(section)
        return None

    def data(self, index: _Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or not 0 <= index.row() < len(self._rows):
            return None
        chain, column = self._rows[index.row()], index.column()
        if role == Qt.ItemDataRole.DisplayRole:
            return self._texts(chain)[column]
        if role == SortRole:
            return (chain.label, chain.chat, chain.n_tokens, len(chain.pages), chain.hits, -chain.born)[column]
        if role == ChainRole:
            return chain
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(column)
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole):
            return self._sentence(chain)
        return None

    def _texts(self, chain: ChainInfo) -> tuple[str, ...]:
        return (
            chain.label or "(no label)",
            self._chat_title(chain.chat),
            f"{chain.n_tokens:,}",
            f"{len(chain.pages):,}",
            f"{chain.hits:,}",
            duration(self._now - chain.born),
        )

    def _sentence(self, chain: ChainInfo) -> str:
        used = f"last hit {duration(self._now - chain.last_hit)} ago" if chain.last_hit else "never hit"
        return (
            f"{chain.label or 'Chain'}, {self._chat_title(chain.chat)}: {count(chain.n_tokens, 'token')} on"
            f" {count(len(chain.pages), 'page')}, {chain.n_own:,} of them its own; {count(chain.hits, 'hit')}, {used},"
            f" stored at {clock(chain.born)}{', pinned' if chain.pinned else ''}"
        )


def _alignment(column: int) -> int:
    side = Qt.AlignmentFlag.AlignLeft if column in (LABEL, CHAT) else Qt.AlignmentFlag.AlignRight
    return int(side | Qt.AlignmentFlag.AlignVCenter)
