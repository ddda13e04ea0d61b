"""Small pieces that several views share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import QAbstractSpinBox, QLabel, QToolButton, QWidget

from app.theme import icon

FRAME = 24
"""Room around a dialog for the frame that the desktop adds, in pixels."""


def tool_button(name: str, words: str, run: Callable[[], object], parent: QWidget | None = None) -> QToolButton:
    """A quiet icon button; ``words`` are its tooltip and its accessible name."""
    button = QToolButton(parent)
    button.setIcon(icon(name))
    button.setIconSize(QSize(16, 16))
    button.setToolTip(words)
    button.setAccessibleName(words)
    button.setAutoRaise(True)
    button.clicked.connect(lambda: run())
    return button


def link_button(words: str, run: Callable[[], object], parent: QWidget | None = None) -> QToolButton:
    """A button that looks like a link."""
    button = QToolButton(parent)
    button.setText(words)
    button.setProperty("variant", "link")
    button.setCursor(Qt.CursorShape.PointingHandCursor)
    button.setAccessibleName(words)
    button.clicked.connect(lambda: run())
    return button


def label(text: str = "", role: str = "", parent: QWidget | None = None, *, wrap: bool = False) -> QLabel:
    """Plain text in one of the theme's roles."""
    made = QLabel(text, parent)
    made.setTextFormat(Qt.TextFormat.PlainText)
    if role:
        made.setProperty("role", role)
    made.setWordWrap(wrap)
    return made


def size_dialog(dialog: QWidget, width: int, height: int) -> None:
    """Give a dialog its size, or less where the screen is small."""
    room = dialog.screen().availableGeometry().size()
    dialog.resize(QSize(width, height).boundedTo(room - QSize(FRAME, 2 * FRAME)))


def padded(box: QAbstractSpinBox) -> None:
    """Give a number's text the same distance from the edge as that of other inputs (no stylesheet reaches it)."""
    box.lineEdit().setTextMargins(8, 0, 2, 0)


def flow(
    widgets: Sequence[QWidget], width: int, *, top: int = 0, left: int = 0, gap: int = 12, row_gap: int = 4
) -> int:
    """Place the visible widgets in rows from the left, each row centred on its tallest; returns the height used."""
    rows: list[list[tuple[QWidget, QSize]]] = [[]]
    x = 0
    for widget in widgets:
        if widget.isHidden():
            continue
        size = widget.sizeHint()
        if rows[-1] and x + size.width() > width:
            rows.append([])
            x = 0
        rows[-1].append((widget, size))
        x += size.width() + gap
    y = top
    for row in rows:
        tallest = max((size.height() for _, size in row), default=0)
        x = left
        for widget, size in row:
            used = min(size.width(), max(width, 1))
            widget.setGeometry(x, y + (tallest - size.height()) // 2, used, size.height())
            x += used + gap
        y += tallest + (row_gap if row else 0)
    return max(y - top - row_gap, 0)
