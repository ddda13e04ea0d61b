"""A code block: any number of lines, of which only the visible ones are laid out."""

from __future__ import annotations

import time
from collections.abc import Iterator

from PySide6.QtCore import QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QTextCharFormat, QTextLayout
from PySide6.QtWidgets import QApplication, QScrollBar, QToolButton

from app.markdown.highlight import Line, fresh_start, lexer_for, lines_of
from app.markdown.leaves import CodeLeaf, units
from app.text import tr
from app.theme import icon
from app.theme.theme import Theme
from app.views.blocks.block import Block
from app.views.blocks.host import BlockHost
from app.views.blocks.style import CODE_HEAD, CODE_PAD, BlockStyle, code_formats
from app.views.blocks.text_run import Selection, format_range

SLICE_S = 0.004
"""How long one slice of lexing may take, in seconds."""
TAB = "    "


class CodeBlock(Block[CodeLeaf]):
    """Code with its language, a copy button and colours; long lines scroll sideways."""

    def __init__(self, leaf: CodeLeaf, style: BlockStyle, host: BlockHost) -> None:
        super().__init__(leaf, style, host)
        self._formats = code_formats(Theme.current())
        self._lexer = lexer_for(leaf.language)
        self._metrics = style.mono_metrics()
        self._line_height = round(self._metrics.height() * 1.22)
        self._lines: list[str] = []
        self._colors: dict[int, Line] = {}
        self._stretch = 0
        self._lexing: Iterator[Line] | None = None
        self._lexed = 0
        self._widest = 0.0
        self._offset = 0.0
        self._width = 0.0
        self._copy = self._make_copy_button()
        self._bar: QScrollBar | None = None
        self._overflows = False
        self._take_lines(leaf.code)

    @property
    def text(self) -> str:
        return "\n".join(self._lines)

    @property
    def length(self) -> int:
        return units(self.text)

    @property
    def natural_width(self) -> float:
        return self.left + self._widest + 2 * CODE_PAD

    def update(self, leaf: CodeLeaf) -> bool:
        old = self.leaf
        if leaf.language != old.language or not leaf.code.startswith(old.code):
            return False
        if (leaf.indent, leaf.marker, leaf.quote) != (old.indent, old.marker, old.quote):
            return False
        self.leaf = leaf
        if leaf.code != old.code or leaf.closed != old.closed:
            self._take_lines(leaf.code)
            self.height = 0.0
        return True

    def lay_out(self, width: float) -> None:
        self._width = max(width - self.left, 60.0)
        self._overflows = self._widest > self._inner_width
        bar = 10 if self._overflows else 0
        self.height = CODE_HEAD + max(len(self._lines), 1) * self._line_height + CODE_PAD + bar
        self.layouts += 1
        self._sync_bar()

    def paint(self, painter: QPainter, clip: QRectF, selection: Selection | None) -> None:
        self.paint_frame(painter)
        style = self.style
        frame = QRectF(self.left + 0.5, 0.5, self._width - 1, self.height - 1)
        painter.setPen(style.line)
        painter.setBrush(style.raised)
        painter.drawRoundedRect(frame, 6, 6)
        painter.setPen(style.muted)
        painter.setFont(style.small)
        head = QRectF(self.left + CODE_PAD, 0, self._width, CODE_HEAD)
        painter.drawText(head, Qt.AlignmentFlag.AlignVCenter, self.leaf.language or tr("text"))
        painter.save()
        painter.setClipRect(frame.adjusted(CODE_PAD - 4, 0, -CODE_PAD + 4, 0), Qt.ClipOperation.IntersectClip)
        painter.setPen(style.code_text)
        self._paint_lines(painter, clip, selection)
        painter.restore()

    def hit(self, point: QPointF) -> int:
        row = min(max(int((point.y() - CODE_HEAD) // self._line_height), 0), len(self._lines) - 1)
        layout = self._line_layout(row)
        column = layout.lineAt(0).xToCursor(point.x() - self.left - CODE_PAD + self._offset)
        return self._starts()[row] + column

    def word_at(self, offset: int) -> Selection:
        starts = self._starts()
        row = max(index for index, start in enumerate(starts) if start <= offset)
        return starts[row], starts[row] + units(self._lines[row])

    def cursor(self) -> QRectF:
        width = self._metrics.horizontalAdvance(self._lines[-1].replace("\t", TAB)) if self._lines else 0
        y = CODE_HEAD + (max(len(self._lines), 1) - 1) * self._line_height
        x = min(self.left + CODE_PAD + width - self._offset, self.left + self._width - CODE_PAD)
        return QRectF(x, y, 0, self._line_height)

    def place(self) -> None:
        self._copy.adjustSize()
        right = int(self.left + self._width) - 4
        self._copy.move(right - self._copy.width(), int(self.top) + 3)
        self._copy.show()
        if self._bar is not None:
            y = int(self.top + self.height) - 12
            self._bar.setGeometry(int(self.left) + 6, y, int(self._width) - 12, 10)
            self._bar.setVisible(self._overflows)

    def drop(self) -> None:
        self._lexing = None
        self.host.forget_work(self)
        self._copy.hide()
        self._copy.deleteLater()
        if self._bar is not None:
            self._bar.hide()
            self._bar.deleteLater()
            self._bar = None

    def marker_baseline(self) -> float:
        return CODE_HEAD / 2 + 5

    def lex_slice(self) -> bool:
        """Go on with the lexing of a complete block for a few milliseconds; True while more is to do."""
        if self._lexing is None:
            return False
        until = time.perf_counter() + SLICE_S
        for colors in self._lexing:
            self._colors[self._lexed] = colors
            self._lexed += 1
            if time.perf_counter() > until:
                return True
        self._lexing = None
        return False

    def scroll_by(self, pixels: float) -> bool:
        """Scroll sideways; False where there is nothing to scroll."""
        if self._bar is None:
            return False
        self._bar.setValue(round(self._bar.value() + pixels))
        return True

    @property
    def _inner_width(self) -> float:
        return self._width - 2 * CODE_PAD

    def _take_lines(self, code: str) -> None:
        lines = code.split("\n")
        first = max(len(self._lines) - 1, 0)
        for line in lines[first:]:
            self._widest = max(self._widest, self._metrics.horizontalAdvance(line.replace("\t", TAB)))
        self._lines = lines
        if self._lexer is None:
            return
        if self.leaf.closed:
            self._lexing, self._lexed = lines_of(self._lexer, code), 0
            self.host.work_later(self)
        elif len(lines) - 1 > first or not self._colors:
            begin = fresh_start(lines[: first + 1], self._stretch)
            self._stretch = begin
            for number, colors in enumerate(lines_of(self._lexer, "\n".join(lines[begin:]))):
                self._colors[begin + number] = colors

    def _paint_lines(self, painter: QPainter, clip: QRectF, selection: Selection | None) -> None:
        first = max(int((clip.top() - CODE_HEAD) // self._line_height), 0)
        last = min(int((clip.bottom() - CODE_HEAD) // self._line_height) + 1, len(self._lines))
        starts = self._starts() if selection is not None else []
        x = self.left + CODE_PAD - self._offset
        for row in range(first, last):
            marked = []
            if selection is not None:
                start = max(selection[0] - starts[row], 0)
                end = min(selection[1] - starts[row], units(self._lines[row]))
                if start < end:
                    background = QTextCharFormat()
                    background.setBackground(self.style.selection)
                    marked.append(format_range(start, end, background))
            self._line_layout(row).draw(painter, QPointF(x, CODE_HEAD + row * self._line_height), marked)

    def _line_layout(self, row: int) -> QTextLayout:
        layout = QTextLayout(self._lines[row], self.style.mono)
        option = layout.textOption()
        option.setTabStopDistance(self._metrics.horizontalAdvance(TAB))
        layout.setTextOption(option)
        spans = self._colors.get(row, ())
        layout.setFormats([format_range(at, at + length, self._formats[kind]) for at, length, kind in spans])
        layout.beginLayout()
        layout.createLine().setLineWidth(1e6)
        layout.endLayout()
        return layout

    def _starts(self) -> list[int]:
        starts, at = [], 0
        for line in self._lines:
            starts.append(at)
            at += units(line) + 1
        return starts

    def _make_copy_button(self) -> QToolButton:
        button = QToolButton(self.host)
        button.setText(tr("Copy"))
        button.setIcon(icon("copy"))
        button.setIconSize(QSize(14, 14))
        button.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        button.setProperty("quiet", True)
        button.setFont(self.style.small)
        button.setAccessibleName(tr("Copy code"))
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.clicked.connect(lambda: QApplication.clipboard().setText(self.leaf.code))
        return button

    def _sync_bar(self) -> None:
        if self._overflows and self._bar is None:
            self._bar = QScrollBar(Qt.Orientation.Horizontal, self.host)
            self._bar.setFocusPolicy(Qt.FocusPolicy.NoFocus)
            self._bar.valueChanged.connect(self._on_scrolled)
        if self._bar is not None:
            self._bar.setRange(0, max(int(self._widest - self._inner_width) + 8, 0))
            self._bar.setPageStep(int(self._inner_width))
            self._bar.setSingleStep(24)
            self._bar.setVisible(self._overflows)

    def _on_scrolled(self, value: int) -> None:
        self._offset = float(value)
        self.host.update(QRectF(0, self.top, self.host.width(), self.height).toAlignedRect())
