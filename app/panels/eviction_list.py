"""The eviction ledger: what went, how long it had been idle, for whom, and a mark where it was wanted back."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPersistentModelIndex
from PySide6.QtWidgets import QTableView

from app.itemmodels.eviction_model import AT, CHAIN, IDLE, PAGES, EvictionModel, RegretRole, SubtitleRole
from app.panels.two_lines import ROW, TwoLines, set_up
from app.text import tr
from app.theme import Theme

_SHOWN_ROWS = 3


def _details(index: QModelIndex | QPersistentModelIndex) -> tuple[str, tuple[str, str] | None]:
    return index.data(SubtitleRole), ("undo", "diverged") if index.data(RegretRole) else None


class EvictionList(QTableView):
    """The last evictions, newest first."""

    def __init__(self, model: EvictionModel) -> None:
        super().__init__()
        self.setModel(model)
        self.setAccessibleName(tr("Evictions from the prefix cache"))
        self._delegate = TwoLines(_details, self)
        self.setItemDelegateForColumn(CHAIN, self._delegate)
        set_up(self, {PAGES: 46, IDLE: 52, AT: 48})
        self.setFixedHeight(_SHOWN_ROWS * ROW + 28)
        Theme.current().changed.connect(self.viewport().update)
