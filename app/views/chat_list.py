"""The list of chats: an item model with headings by day, and how its rows are painted."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractListModel, QModelIndex, QPersistentModelIndex, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QPainter
from PySide6.QtWidgets import QStyle, QStyledItemDelegate, QStyleOptionViewItem, QWidget

from app.state.chat_controller import Activity, ChatController
from app.state.store import ChatHead
from app.text import tr
from app.theme.theme import Theme
from app.views.state_dot import activity_words, paint_dot

Index = QModelIndex | QPersistentModelIndex
CHAT_ROLE = Qt.ItemDataRole.UserRole + 1
ROW_ROLE = Qt.ItemDataRole.UserRole + 2


@dataclass(frozen=True, slots=True)
class Row:
    """A heading (``chat`` is "") or a chat; ``excerpt`` is text that was found."""

    title: str
    chat: str = ""
    activity: Activity = "idle"
    excerpt: str = ""


def day_heading(updated: float, today: dt.date) -> str:
    """Under which heading a chat stands."""
    day = dt.datetime.fromtimestamp(updated).date()
    if day >= today:
        return tr("Today")
    return tr("Yesterday") if day == today - dt.timedelta(days=1) else tr("Earlier")


class ChatListModel(QAbstractListModel):
    """All chats under their headings, or the ones that were searched for."""

    def __init__(self, controller: ChatController, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._controller = controller
        self._words = ""
        self._rows: list[Row] = []
        controller.chats_changed.connect(self.refresh)
        controller.activity_changed.connect(self._on_activity)
        self.refresh()

    def search(self, words: str) -> None:
        """Show only chats that contain these words; "" shows all."""
        self._words = words
        self.refresh()

    def refresh(self) -> None:
        """Read the chats anew; rows that stay the same keep their selection."""
        rows = self._found() if self._words.strip() else self._grouped(self._controller.heads())
        if rows == self._rows:
            return
        if [row.chat for row in rows] == [row.chat for row in self._rows]:
            self._rows = rows
            self.dataChanged.emit(self.index(0), self.index(len(rows) - 1))
            return
        self.beginResetModel()
        self._rows = rows
        self.endResetModel()

    def index_of(self, chat: str) -> QModelIndex:
        """The row of a chat, invalid without one."""
        found = next((number for number, row in enumerate(self._rows) if chat and row.chat == chat), None)
        return self.index(found) if found is not None else QModelIndex()

    def rowCount(self, parent: Index = QModelIndex()) -> int:  # noqa: B008
        return 0 if parent.isValid() else len(self._rows)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid() or index.row() >= len(self._rows):
            return None
        row = self._rows[index.row()]
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.EditRole:
                return row.title
            case Qt.ItemDataRole.AccessibleTextRole:
                return f"{row.title}, {activity_words(row.activity)}" if row.chat else row.title
            case Qt.ItemDataRole.ToolTipRole:
                return row.excerpt or row.title if row.chat else None
        return {CHAT_ROLE: row.chat, ROW_ROLE: row}.get(role)

    def flags(self, index: Index) -> Qt.ItemFlag:
        if not index.isValid():
            return Qt.ItemFlag.NoItemFlags
        if not self._rows[index.row()].chat:
            return Qt.ItemFlag.NoItemFlags
        return Qt.ItemFlag.ItemIsEnabled | Qt.ItemFlag.ItemIsSelectable | Qt.ItemFlag.ItemIsEditable

    def setData(self, index: Index, value: Any, role: int = Qt.ItemDataRole.EditRole) -> bool:
        chat = self.data(index, CHAT_ROLE)
        if role != Qt.ItemDataRole.EditRole or not chat or not str(value).strip():
            return False
        self._controller.rename(chat, str(value))
        return True

    def _row(self, head: ChatHead, excerpt: str = "") -> Row:
        return Row(self._controller.title(head.id), head.id, self._controller.activity(head.id), excerpt)

    def _grouped(self, heads: Sequence[ChatHead]) -> list[Row]:
        rows: list[Row] = []
        today = dt.date.today()
        previous = ""
        for head in heads:
            heading = day_heading(head.updated, today)
            if heading != previous:
                rows.append(Row(heading))
                previous = heading
            rows.append(self._row(head))
        return rows

    def _found(self) -> list[Row]:
        hits = {hit.chat: hit.excerpt for hit in self._controller.search(self._words)}
        rows = [self._row(head, hits[head.id]) for head in self._controller.heads() if head.id in hits]
        return [Row(tr("Found")), *rows] if rows else [Row(tr("Nothing found"))]

    def _on_activity(self, chat: str) -> None:
        index = self.index_of(chat)
        if not index.isValid():
            return
        row = self._rows[index.row()]
        activity = self._controller.activity(chat)
        if activity != row.activity:
            self._rows[index.row()] = Row(row.title, row.chat, activity, row.excerpt)
            self.dataChanged.emit(index, index)


class ChatDelegate(QStyledItemDelegate):
    """Headings small and quiet; chats with their dot at the right end."""

    def sizeHint(self, option: QStyleOptionViewItem, index: Index) -> QSize:
        row: Row = index.data(ROW_ROLE)
        line = option.fontMetrics.height()
        if not row.chat:
            return QSize(100, line + 16)
        return QSize(100, line + 12 + (line if row.excerpt else 0))

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        row: Row = index.data(ROW_ROLE)
        rect: QRect = option.rect
        painter.save()
        if row.chat:
            self._paint_chat(painter, option, rect, row)
        else:
            font = Theme.current().font("caption")
            font.setCapitalization(font.Capitalization.AllUppercase)
            painter.setFont(font)
            painter.setPen(Theme.current().color("muted"))
            place = rect.adjusted(6, 4, -6, -3)
            painter.drawText(place, Qt.AlignmentFlag.AlignBottom | Qt.AlignmentFlag.AlignLeft, row.title)
        painter.restore()

    def _paint_chat(self, painter: QPainter, option: QStyleOptionViewItem, rect: QRect, row: Row) -> None:
        theme = Theme.current()
        state: QStyle.StateFlag = option.state
        selected = bool(state & QStyle.StateFlag.State_Selected)
        hovered = bool(state & QStyle.StateFlag.State_MouseOver)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if selected or hovered:
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color("accent_soft" if selected else "hover"))
            painter.drawRoundedRect(QRectF(rect.adjusted(0, 1, 0, -1)), 6, 6)
        if selected and state & QStyle.StateFlag.State_HasFocus:
            painter.setPen(theme.color("accent"))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRoundedRect(QRectF(rect).adjusted(0.5, 1.5, -0.5, -1.5), 6, 6)
        font = theme.font("body")
        painter.setFont(font)
        metrics = painter.fontMetrics()
        room = rect.adjusted(8, 0, -28, 0)
        line = metrics.height()
        top = rect.top() + (rect.height() - line * (2 if row.excerpt else 1)) // 2
        painter.setPen(theme.color("text"))
        title = metrics.elidedText(row.title, Qt.TextElideMode.ElideRight, room.width())
        painter.drawText(QRect(room.left(), top, room.width(), line), Qt.AlignmentFlag.AlignLeft, title)
        if row.excerpt:
            painter.setFont(theme.font("caption"))
            painter.setPen(theme.color("muted"))
            found = painter.fontMetrics().elidedText(row.excerpt, Qt.TextElideMode.ElideRight, room.width() + 14)
            painter.drawText(QRect(room.left(), top + line, room.width() + 14, line), Qt.AlignmentFlag.AlignLeft, found)
        if row.activity != "idle":
            paint_dot(painter, QRectF(rect.right() - 16, rect.center().y() - 3.5, 8, 8), row.activity)
