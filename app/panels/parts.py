"""Small pieces that the docks share: their title bar, a lamp, section headers, a row of segments."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import (
    QAbstractButton,
    QButtonGroup,
    QDockWidget,
    QHBoxLayout,
    QLabel,
    QSizePolicy,
    QToolButton,
    QWidget,
)

from app.text import tr
from app.theme import Theme, icon

_FIGURES = re.compile(r"\b(\d[\d,]*|no) (pages?|stay(s|ed)?|leaves?)\b")


def label(text: str = "", role: str = "", *, wrap: bool = False) -> QLabel:
    """A text label with a role of the stylesheet."""
    made = QLabel(text)
    made.setTextFormat(Qt.TextFormat.PlainText)
    if role:
        made.setProperty("role", role)
    made.setWordWrap(wrap)
    return made


def strong(sentence: str) -> str:
    """The sentence as rich text with its page counts in semibold."""
    return _FIGURES.sub(lambda m: semibold(m.group(0)), html.escape(sentence))


def semibold(escaped: str) -> str:
    """Escaped text in the weight that the window uses for emphasis."""
    return f'<span style="font-weight:600">{escaped}</span>'


def tool_button(name: str, words: str, *, checkable: bool = False) -> QToolButton:
    """A small icon button; its words are tooltip and accessible name."""
    button = QToolButton()
    button.setIcon(icon(name))
    button.setIconSize(QSize(16, 16))
    button.setToolTip(words)
    button.setAccessibleName(words)
    button.setCheckable(checkable)
    return button


def paint_focus(painter: QPainter, widget: QWidget) -> None:
    """The ring that shows where the keyboard is, inside a painted widget."""
    if widget.hasFocus():
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.setPen(QPen(Theme.current().color("accent", 0.7), 1))
        painter.drawRoundedRect(QRectF(widget.rect()).adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)


class QuietText(QWidget):
    """One line of small text that changes often: cut with an ellipsis, and never a reason to lay the dock out anew."""

    def __init__(self, text: str = "", align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignLeft) -> None:
        super().__init__()
        self._text, self._align = text, align
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(text)
        Theme.current().changed.connect(self.update)

    def text(self) -> str:
        """What it says."""
        return self._text

    def setText(self, text: str) -> None:
        """Say something else."""
        if text != self._text:
            self._text = text
            self.setAccessibleName(text)
            self.update()

    def sizeHint(self) -> QSize:
        metrics = QFontMetrics(Theme.current().font("caption"))
        return QSize(metrics.horizontalAdvance(self._text) + 2, metrics.height() + 2)

    def minimumSizeHint(self) -> QSize:
        return QSize(24, self.sizeHint().height())

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        font = Theme.current().font("caption")
        painter.setFont(font)
        painter.setPen(Theme.current().color("muted"))
        text = QFontMetrics(font).elidedText(self._text, Qt.TextElideMode.ElideRight, self.width())
        painter.drawText(self.rect(), self._align | Qt.AlignmentFlag.AlignVCenter, text)
        painter.end()


class Lamp(QWidget):
    """The integrity lamp: a green dot while the pool's books balance, a red one with a mark when they do not."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._problem: str | None = None
        self.setFixedSize(14, 14)
        self.set_state(None)
        Theme.current().changed.connect(self.update)

    @property
    def problem(self) -> str | None:
        """None: nothing known yet; empty: all is well; else what is wrong."""
        return self._problem

    def set_state(self, problem: str | None) -> None:
        """Show that nothing is known (None), that the books balance (empty), or what is wrong."""
        if problem == self._problem and self.toolTip():
            return
        self._problem = problem
        if problem is None:
            words = tr("Pool: no model is loaded")
        else:
            words = problem or tr("Pool: free + cached + referenced pages add up to its capacity")
        self.setToolTip(words)
        self.setAccessibleName(tr("Integrity lamp"))
        self.setAccessibleDescription(words)
        self.update()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        center = QPointF(self.rect().center()) + QPointF(0.5, 0.5)
        painter.setPen(Qt.PenStyle.NoPen)
        if self._problem:
            painter.setBrush(theme.color("diverged"))
            painter.drawEllipse(center, 6.5, 6.5)
            painter.setPen(QPen(theme.color("on_accent"), 1.6, c=Qt.PenCapStyle.RoundCap))
            painter.drawLine(center - QPointF(0, 3.2), center + QPointF(0, 0.6))
            painter.drawPoint(center + QPointF(0, 3.2))
        else:
            painter.setBrush(theme.color("free" if self._problem is None else "ok"))
            painter.drawEllipse(center, 4, 4)
        painter.end()


class SectionHeader(QWidget):
    """A section's name on the left, its figures on the right."""

    def __init__(self, title: str, figures: str = "") -> None:
        super().__init__()
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(label(title, "heading"))
        self.figures = QuietText(figures, Qt.AlignmentFlag.AlignRight)
        row.addWidget(self.figures, 1)
        self.row = row


class Segments(QWidget):
    """A row of exclusive choices.

    Signals:
        chosen(index): the person chose another one.
    """

    chosen = Signal(int)

    def __init__(self, name: str, words: Sequence[str], current: int = 0) -> None:
        super().__init__()
        self.setAccessibleName(name)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(2)
        self._group = QButtonGroup(self)
        for number, text in enumerate(words):
            button = QToolButton()
            button.setText(text)
            button.setAccessibleName(f"{name}: {text}")
            button.setProperty("variant", "segment")
            button.setCheckable(True)
            button.setChecked(number == current)
            self._group.addButton(button, number)
            row.addWidget(button)
        self._group.idClicked.connect(self.chosen)

    def button(self, index: int) -> QAbstractButton:
        """One of the buttons."""
        return self._group.button(index)

    def set_current(self, index: int) -> None:
        """Check one of them without telling anyone."""
        self._group.button(index).setChecked(True)


class DockTitleBar(QWidget):
    """A dock's own title bar: name, whatever the dock adds, float and close."""

    def __init__(self, dock: QDockWidget, title: str) -> None:
        super().__init__(dock)
        self.setProperty("surface", "bar")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self._outer = QHBoxLayout(self)
        self._outer.setContentsMargins(16, 8, 8, 4)
        self._outer.setSpacing(8)
        self._outer.addWidget(label(title, "title"))
        self.middle = QHBoxLayout()
        self.middle.setSpacing(8)
        self._outer.addLayout(self.middle, 1)
        self.float_button = tool_button("float", tr("Float or dock {dock}", dock=title))
        self.close_button = tool_button("close", tr("Hide {dock}", dock=title))
        self.float_button.clicked.connect(lambda: dock.setFloating(not dock.isFloating()))
        self.close_button.clicked.connect(dock.close)
        buttons = QHBoxLayout()
        buttons.setSpacing(0)
        for button in (self.float_button, self.close_button):
            button.setIconSize(QSize(14, 14))
            buttons.addWidget(button)
        self._outer.addLayout(buttons)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, super().minimumSizeHint().height())
