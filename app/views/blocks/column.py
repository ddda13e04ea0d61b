"""A column of blocks in one widget: what a message's body is made of.

Blocks that are finished keep their layout; only the one that grows is laid out again. Painting touches the visible
blocks alone.
"""

from __future__ import annotations

import time
from bisect import bisect_right

from PySide6.QtCore import QRectF, QSize, Qt, Signal
from PySide6.QtGui import QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.markdown.inline import plain
from app.markdown.leaves import CodeLeaf, Leaf, RuleLeaf, TableLeaf, TextLeaf
from app.markdown.stream import MarkdownStream, Update
from app.theme.theme import Theme
from app.views.blocks.block import Block
from app.views.blocks.code_block import CodeBlock
from app.views.blocks.host import BlockHost
from app.views.blocks.style import GAP, ITEM_GAP, BlockStyle
from app.views.blocks.table_block import TableBlock
from app.views.blocks.text_block import RuleBlock, TextBlock
from app.views.blocks.text_run import Selection

SLICE_CHARS = 4096
REST = 4.0
"""After an update of t seconds the next one waits REST * t at least: a huge block cannot take over the thread."""


class BlockColumn(BlockHost):
    """Shows Markdown (or, with ``plain_text``, text as it is) that may grow at its end.

    Signals:
        height_changed: the height for its width is another now.
    """

    height_changed = Signal()

    def __init__(self, parent: QWidget | None = None, *, plain_text: bool = False, surface: str = "background") -> None:
        super().__init__(parent)
        self.blocks: list[Block] = []
        self._plain = plain_text
        self._surface = surface
        self._source = ""
        self._pending: list[str] = []
        self._stream = MarkdownStream()
        self._growing = False
        self._unfinished = False
        self._laid_out_for = -1
        self._height = 0.0
        self._next_update = 0.0
        self._tops: list[float] = []
        self._dirty_from = 0
        self._style = BlockStyle.current(Theme.current(), self._surface)
        Theme.current().changed.connect(self._on_theme)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        # Growing at the foot exposes only the new part, and scrolling moves pixels.
        self.setAttribute(Qt.WidgetAttribute.WA_StaticContents)
        self.setAttribute(Qt.WidgetAttribute.WA_OpaquePaintEvent)

    @property
    def source(self) -> str:
        """The text as it was given, what is not shown yet included."""
        return self._source + "".join(self._pending)

    @property
    def busy(self) -> bool:
        """Whether text waits for ``refresh``."""
        return bool(self._pending) or self._unfinished

    def set_text(self, text: str, *, growing: bool = False) -> None:
        """Show this text; ``growing``: more follows through ``append``. Long text appears in slices (``busy``)."""
        self._drop(0)
        self._stream = MarkdownStream()
        self._source, self._pending, self._growing = "", [text], growing
        self._unfinished = not growing
        self._next_update = 0.0
        if text:
            self.refresh()

    def set_plain(self, on: bool) -> None:
        """Show the text as it was written instead of as Markdown."""
        if on != self._plain:
            self._plain = on
            self.set_text(self.source, growing=self._growing)

    def append(self, text: str) -> None:
        """Add text; it is shown at the next ``refresh``."""
        self._pending.append(text)

    def finish(self) -> None:
        """Nothing more follows; what was held back as undecided is shown at the next ``refresh``."""
        if self._growing:
            self._growing, self._unfinished = False, True

    def refresh(self) -> None:
        """Show what was added, a slice of it at most, and nothing yet while a costly update is being paid off."""
        began = time.perf_counter()
        if not self.busy or began < self._next_update:
            return
        text = "".join(self._pending)
        text, rest = text[:SLICE_CHARS], text[SLICE_CHARS:]
        self._pending = [rest] if rest else []
        self._source += text
        final = self._unfinished and not rest
        self._unfinished = self._unfinished and not final
        self._take(text, final=final)
        self._next_update = began + (1 + REST) * (time.perf_counter() - began)

    def height_for(self, width: int) -> int:
        """The height of all blocks in this width; lays out what has no layout for it yet."""
        self._lay_out(width)
        return int(self._height)

    def natural_width(self) -> int:
        """The width the widest block would take, after ``height_for``."""
        return int(max((block.natural_width for block in self.blocks), default=0.0)) + 2

    def sizeHint(self) -> QSize:
        return QSize(200, int(self._height))

    def _take(self, text: str, *, final: bool) -> None:
        if self._plain:
            keep = max(len(self.blocks) - 1, 0)
            update = Update(keep, self._leaves()[keep:])
        else:
            update = self._stream.append(text, final=final)
        self._reconcile(update)
        first = min(update.keep, len(self.blocks) - 1)
        if self._laid_out_for > 0:
            self._lay_out(self._laid_out_for)
        top = self.blocks[first].top - 2 if first > 0 else 0.0
        self.update(0, int(top), self.width(), self.height())

    def _reconcile(self, update: Update) -> None:
        """Keep every block whose leaf is unchanged or grows in place; make the others anew."""
        self._dirty_from = min(self._dirty_from, update.keep)
        for number, leaf in enumerate(update.leaves, start=update.keep):
            if number < len(self.blocks):
                block = self.blocks[number]
                if type(block.leaf) is type(leaf) and block.update(leaf):
                    continue
                block.drop()
                self.blocks[number] = self._make(leaf)
            else:
                self.blocks.append(self._make(leaf))
        self._drop(update.keep + len(update.leaves))

    def _make(self, leaf: Leaf) -> Block:
        match leaf:
            case CodeLeaf():
                return CodeBlock(leaf, self._style, self)
            case TableLeaf():
                return TableBlock(leaf, self._style, self)
            case RuleLeaf():
                return RuleBlock(leaf, self._style, self)
            case TextLeaf():
                return TextBlock(leaf, self._style, self)
        raise TypeError(f"unknown leaf {leaf!r}")

    def _drop(self, first: int) -> None:
        for block in self.blocks[first:]:
            block.drop()
        del self.blocks[first:]
        self._dirty_from = min(self._dirty_from, first)

    def _lay_out(self, width: int) -> None:
        """Lay out and place the blocks from the first one that changed (in another width: all)."""
        changed_width = width != self._laid_out_for
        first = 0 if changed_width else self._dirty_from
        self._laid_out_for, self._dirty_from = width, len(self.blocks)
        previous = self.blocks[first - 1] if first else None
        y = previous.top + previous.height if previous is not None else 0.0
        del self._tops[first:]
        for block in self.blocks[first:]:
            y += _gap(previous.leaf if previous is not None else None, block.leaf, self._plain)
            stale = changed_width or block.height == 0.0
            if stale:
                block.lay_out(width)
            if stale or block.top != y:
                block.top = y
                block.place()
            self._tops.append(y)
            y += block.height
            previous = block
        if y != self._height:
            self._height = y
            self.height_changed.emit()

    def _on_theme(self) -> None:
        self._style = BlockStyle.current(Theme.current(), self._surface)
        self._drop(0)
        for leaf in self._leaves():
            self.blocks.append(self._make(leaf))
        width, self._laid_out_for = self._laid_out_for, -1
        if width > 0:
            self._lay_out(width)
        self.update()

    def _leaves(self) -> list[Leaf]:
        if not self._plain:
            return list(self._stream.leaves)
        return [TextLeaf(rich=plain(line)) for line in self._source.replace("\r\n", "\n").split("\n")]

    def selection_in(self, number: int) -> Selection | None:
        """The selected part of a block (none here: see ``Canvas``)."""
        return None

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(event.rect(), self._style.surface)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        exposed = QRectF(event.rect())
        first = max(bisect_right(self._tops, exposed.top()) - 1, 0)
        for number in range(first, len(self.blocks)):
            block = self.blocks[number]
            if block.top > exposed.bottom():
                break
            painter.save()
            painter.translate(0, block.top)
            block.paint(painter, exposed.translated(0, -block.top), self.selection_in(number))
            painter.restore()
        if self._growing:
            self._paint_cursor(painter)
        painter.end()

    def _paint_cursor(self, painter: QPainter) -> None:
        place = self.blocks[-1].cursor() if self.blocks else QRectF(0, 2, 0, 16)
        if place is not None:
            top = self.blocks[-1].top if self.blocks else 0.0
            bar = QRectF(place.x() + 1, place.y() + top + 1, 3, place.height() - 2)
            painter.fillRect(bar, self._style.text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._lay_out(event.size().width())


def _gap(previous: Leaf | None, leaf: Leaf, plain_text: bool) -> float:
    """The distance between two blocks: none in plain text, little inside a list, more above a heading."""
    if previous is None or plain_text or leaf.glued:
        return 0.0
    if previous.indent and leaf.indent and not isinstance(leaf, CodeLeaf) and not isinstance(previous, CodeLeaf):
        return ITEM_GAP
    if isinstance(leaf, TextLeaf) and leaf.level:
        return GAP + 6
    return GAP
