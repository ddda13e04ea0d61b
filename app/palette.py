"""The command palette: everything the window can do, found by typing, with its shortcut beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QEvent, QModelIndex, QObject, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QKeyEvent, QPainter
from PySide6.QtWidgets import (
    QAbstractItemView,
    QDialog,
    QLineEdit,
    QListView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

from app.fuzzy import score
from app.text import tr
from app.theme import Theme, icon
from app.views.parts import label

ROW_HEIGHT = 32
WIDTH = 560
SHOWN_ROWS = 12
ONLY_SEARCHED = 30
"""How much better an entry must fit that is listed only when something was typed."""
ENTRY_ROLE = Qt.ItemDataRole.UserRole + 1
_MOVES: dict[int, int] = {
    Qt.Key.Key_Up: -1,
    Qt.Key.Key_Down: 1,
    Qt.Key.Key_PageUp: -SHOWN_ROWS,
    Qt.Key.Key_PageDown: SHOWN_ROWS,
}

Index = QModelIndex | QPersistentModelIndex


@dataclass(frozen=True, slots=True)
class Entry:
    """Something that can be done. ``hint`` stands at the right: a shortcut, or what kind of thing it is.

    With ``only_searched`` it is listed only when something was typed.
    """

    words: str
    run: Callable[[], object]
    hint: str = ""
    icon_name: str = ""
    only_searched: bool = False


class EntryModel(QAbstractListModel):
    """The entries that fit what was typed, the best first."""

    def __init__(self, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._all: list[Entry] = []
        self._shown: list[Entry] = []

    def set_entries(self, entries: Sequence[Entry]) -> None:
        """Everything there is, in the order in which it is shown while nothing is typed."""
        self._all = list(entries)
        self.search("")

    def search(self, typed: str) -> None:
        """Show what fits."""
        self.beginResetModel()
        if typed.strip():
            rated = [(score(typed, f"{entry.words} {entry.hint}"), entry) for entry in self._all]
            fitting = [
                (points - ONLY_SEARCHED * entry.only_searched, entry) for points, entry in rated if points is not None
            ]
            self._shown = [entry for _, entry in sorted(fitting, key=lambda pair: -pair[0])]
        else:
            self._shown = [entry for entry in self._all if not entry.only_searched]
        self.endResetModel()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._shown)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self._shown):
            return None
        entry = self._shown[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return entry.words
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{entry.words}, {entry.hint}" if entry.hint else entry.words
        return entry if role == ENTRY_ROLE else None


class _Delegate(QStyledItemDelegate):
    """An icon, the words, and the hint at the right."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        return QSize(0, ROW_HEIGHT)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        entry: Entry = index.data(ENTRY_ROLE)
        theme = Theme.current()
        rect: QRect = option.rect.adjusted(4, 1, -4, -1)
        if option.state & QStyle.StateFlag.State_Selected:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color("accent_soft"))
            painter.drawRoundedRect(rect, 6, 6)
        if entry.icon_name:
            icon(entry.icon_name).paint(painter, QRect(rect.left() + 8, rect.center().y() - 7, 16, 16))
        painter.setFont(theme.font("caption"))
        painter.setPen(theme.color("muted"))
        hint_width = painter.fontMetrics().horizontalAdvance(entry.hint)
        middle = Qt.AlignmentFlag.AlignVCenter
        painter.drawText(rect.adjusted(0, 0, -10, 0), int(middle | Qt.AlignmentFlag.AlignRight), entry.hint)
        painter.setFont(theme.font("body"))
        painter.setPen(theme.color("text"))
        room = rect.adjusted(34, 0, -(hint_width + 24), 0)
        words = painter.fontMetrics().elidedText(entry.words, Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(room, int(middle | Qt.AlignmentFlag.AlignLeft), words)


class Palette(QDialog):
    """Type, choose with the arrow keys, run with Enter."""

    def __init__(self, entries: Sequence[Entry], parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setWindowTitle(tr("Commands"))
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setProperty("surface", "palette")
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Type what you want to do"))
        self.search.setAccessibleName(tr("Search commands and chats"))
        self.search.installEventFilter(self)
        self.list = QListView()
        self.model = EntryModel(self)
        self.model.set_entries(entries)
        self.list.setModel(self.model)
        self.list.setItemDelegate(_Delegate(self.list))
        self.list.setUniformItemSizes(True)
        self.list.setMouseTracking(True)
        self.list.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.list.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.list.setAccessibleName(tr("Commands"))
        self.nothing = label(tr("Nothing of that name."), "muted")
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        self.nothing.setFixedHeight(ROW_HEIGHT)
        box = QVBoxLayout(self)
        box.setContentsMargins(10, 10, 10, 8)
        box.setSpacing(8)
        for widget in (self.search, self.list, self.nothing):
            box.addWidget(widget)
        self.setFixedWidth(WIDTH)
        self.search.textChanged.connect(self._on_typed)
        self.search.returnPressed.connect(self._run_current)
        self.list.clicked.connect(self._run)
        self._on_typed("")

    def open_over(self, window: QWidget) -> None:
        """Show near the top of the window, in its middle."""
        corner = window.mapToGlobal(window.rect().topLeft())
        self.adjustSize()
        self.move(corner.x() + (window.width() - WIDTH) // 2, corner.y() + max(window.height() // 9, 40))
        self.show()
        self.search.setFocus()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress and event.key() in _MOVES:
            self._move_by(_MOVES[event.key()])
            return True
        return False

    def _move_by(self, step: int) -> None:
        last = self.model.rowCount() - 1
        if last < 0:
            return
        row = self.list.currentIndex().row() + step
        if abs(step) == 1:
            row %= last + 1
        self.list.setCurrentIndex(self.model.index(min(max(row, 0), last)))

    def _on_typed(self, typed: str) -> None:
        self.model.search(typed)
        found = self.model.rowCount()
        self.list.setFixedHeight(min(max(found, 1), SHOWN_ROWS) * ROW_HEIGHT)
        self.list.setVisible(found > 0)
        self.nothing.setVisible(found == 0)
        self.list.setCurrentIndex(self.model.index(0))
        self.list.scrollToTop()
        self.adjustSize()

    def _run_current(self) -> None:
        self._run(self.list.currentIndex())

    def _run(self, index: QModelIndex) -> None:
        entry: Entry | None = index.data(ENTRY_ROLE)
        if entry is not None:
            self.close()
            entry.run()
