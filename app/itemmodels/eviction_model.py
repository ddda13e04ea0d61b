"""What the cache gave up for want of room, newest first, and which of it was asked for again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QObject, QPersistentModelIndex, Qt

from app.panels.words import chain_name, clock, count, duration
from app.text import tr
from engine.scheduling.events import Eviction, Finished

COLUMNS = ("Evicted", "Pages", "Idle", "At")
CHAIN, PAGES, IDLE, AT = range(4)
KEPT, _TOGETHER_S = 200, 30.0
RegretRole = Qt.ItemDataRole.UserRole + 1
"""Whether a later prompt asked for these pages."""
SubtitleRole = Qt.ItemDataRole.UserRole + 2
"""The second line of the first column."""

_Index = QModelIndex | QPersistentModelIndex


@dataclass
class _Row:
    """Evictions of one chain for one chat in quick succession: shown as one, found by each of their times."""

    eviction: Eviction
    times: set[float] = field(default_factory=set)
    regretted: bool = False


class EvictionModel(QAbstractTableModel):
    """The last evictions. A row is marked when its pages were wanted back: that eviction is regretted."""

    def __init__(self, parent: QObject | None = None, *, chat_title: Callable[[str], str] = str) -> None:
        super().__init__(parent)
        self._rows: list[_Row] = []
        self._chat_title = chat_title

    @property
    def n_regretted(self) -> int:
        """How many of the rows were asked for again."""
        return sum(row.regretted for row in self._rows)

    def add(self, evictions: Iterable[Eviction]) -> None:
        """Put new evictions on top; the oldest fall out at the bottom."""
        for eviction in evictions:
            top = self._rows[0] if self._rows else None
            if top is not None and _belongs(eviction, top.eviction):
                pages = top.eviction.pages + eviction.pages
                top.eviction = replace(top.eviction, pages=pages, at=eviction.at)
                top.times.add(eviction.at)
                self._changed(0)
                continue
            self.beginInsertRows(QModelIndex(), 0, 0)
            self._rows.insert(0, _Row(eviction, {eviction.at}))
            self.endInsertRows()
        if len(self._rows) > KEPT:
            self.beginRemoveRows(QModelIndex(), KEPT, len(self._rows) - 1)
            del self._rows[KEPT:]
            self.endRemoveRows()

    def regret(self, finished: Finished) -> None:
        """A reply ended: mark the eviction that its prompt suffered from, if it did from one."""
        miss = finished.miss
        if miss is None or miss.cause != "evicted" or miss.evicted_at is None:
            return
        for number, row in enumerate(self._rows):
            if miss.evicted_at in row.times and miss.chain in (None, row.eviction.chain):
                row.regretted = True
                self._changed(number)

    def clear(self) -> None:
        """Another model was loaded."""
        self.beginResetModel()
        self._rows.clear()
        self.endResetModel()

    def _changed(self, row: int) -> None:
        self.dataChanged.emit(self.index(row, 0), self.index(row, len(COLUMNS) - 1))

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
        row = self._rows[index.row()]
        eviction = row.eviction
        if role == Qt.ItemDataRole.DisplayRole:
            texts = (self._name(eviction), f"{eviction.pages:,}", duration(eviction.idle_s), clock(eviction.at))
            return texts[index.column()]
        if role == SubtitleRole:
            return self._subtitle(row)
        if role == RegretRole:
            return row.regretted
        if role == Qt.ItemDataRole.TextAlignmentRole:
            return _alignment(index.column())
        if role in (Qt.ItemDataRole.ToolTipRole, Qt.ItemDataRole.AccessibleTextRole):
            return self._sentence(row)
        return None

    def _name(self, eviction: Eviction) -> str:
        return chain_name(self._chat_title(eviction.chat), eviction.label)

    def _subtitle(self, row: _Row) -> str:
        chat = row.eviction.evicted_for
        whom = tr("for {chat}", chat=self._chat_title(chat)) if chat else tr("for want of room")
        return f"{whom}, {tr('asked for again')}" if row.regretted else whom

    def _sentence(self, row: _Row) -> str:
        eviction = row.eviction
        return tr(
            "{name}: {pages} evicted at {time} {whom}; {age} old, idle for {idle}, {hits}",
            name=self._name(eviction),
            pages=count(eviction.pages, "page"),
            time=clock(eviction.at),
            whom=self._subtitle(row),
            age=duration(eviction.age_s),
            idle=duration(eviction.idle_s),
            hits=count(eviction.hits, "hit"),
        )


def _belongs(new: Eviction, known: Eviction) -> bool:
    """Whether an eviction goes on with the one before it."""
    same = (new.chain, new.evicted_for) == (known.chain, known.evicted_for)
    return same and new.at - known.at < _TOGETHER_S


def _alignment(column: int) -> int:
    side = Qt.AlignmentFlag.AlignLeft if column == CHAIN else Qt.AlignmentFlag.AlignRight
    return int(side | Qt.AlignmentFlag.AlignVCenter)
