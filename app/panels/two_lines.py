"""List rows with two lines in their first column, and an icon before the first where something is marked."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QModelIndex, QObject, QPersistentModelIndex, QRect, QSize, Qt
from PySide6.QtGui import QFont, QFontMetrics, QPainter
from PySide6.QtWidgets import QHeaderView, QStyle, QStyledItemDelegate, QStyleOptionViewItem, QTableView

from app.theme import Theme, pixmap

ROW = 40

_Index = QModelIndex | QPersistentModelIndex
Details = Callable[[_Index], tuple[str, tuple[str, str] | None]]
"""From a row: its second line, and (icon, colour token) or None."""


class TwoLines(QStyledItemDelegate):
    """Paints a row's text over its second line."""

    def __init__(self, details: Details, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._details = details

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: _Index) -> None:
        self.initStyleOption(option, index)
        title, option.text = option.text, ""
        option.widget.style().drawControl(QStyle.ControlElement.CE_ItemViewItem, option, painter, option.widget)
        theme = Theme.current()
        below, mark = self._details(index)
        box = option.rect.adjusted(6, 4, -4, -4)
        half = box.height() // 2
        painter.save()
        upper = QRect(box.left(), box.top(), box.width(), half)
        if mark is not None:
            ratio = painter.device().devicePixelRatioF()
            painter.drawPixmap(upper.left(), upper.top() + (half - 12) // 2, pixmap(*mark, 12, ratio))
            upper.adjust(16, 0, 0, 0)
        _line(painter, upper, title, theme.font("body"), "text")
        lower = QRect(box.left(), box.top() + half, box.width(), half)
        _line(painter, lower, below, theme.font("caption"), "muted")
        painter.restore()

    def sizeHint(self, option: QStyleOptionViewItem, index: _Index) -> QSize:
        return QSize(120, ROW)


def _line(painter: QPainter, box: QRect, text: str, font: QFont, token: str) -> None:
    painter.setFont(font)
    painter.setPen(Theme.current().color(token))
    shown = QFontMetrics(font).elidedText(text, Qt.TextElideMode.ElideRight, box.width())
    painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, shown)


def set_up(view: QTableView, widths: dict[int, int]) -> None:
    """The look that the dock's lists share: whole rows, no grid, the first column takes what ``widths`` leave."""
    view.setSelectionBehavior(QTableView.SelectionBehavior.SelectRows)
    view.setSelectionMode(QTableView.SelectionMode.SingleSelection)
    view.setShowGrid(False)
    view.setWordWrap(False)
    view.setTabKeyNavigation(False)
    view.verticalHeader().hide()
    view.verticalHeader().setDefaultSectionSize(ROW)
    view.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
    header = view.horizontalHeader()
    header.setMinimumSectionSize(32)
    header.setHighlightSections(False)
    header.setSectionResizeMode(0, QHeaderView.ResizeMode.Stretch)
    for column, width in widths.items():
        header.setSectionResizeMode(column, QHeaderView.ResizeMode.Fixed)
        header.resizeSection(column, width)
