"""The prefix tree of the cache as an icicle: shared beginnings on top, each chain's own part below."""

from __future__ import annotations

from collections.abc import Callable, Collection

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QAccessibleEvent,
    QBrush,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from app.panels.markup import plain
from app.panels.parts import paint_focus
from app.panels.tree_layout import Node, TreeLayout, preferred_chain
from app.panels.words import chain_name, count, listed, shorten
from app.text import tr
from app.theme import Theme
from engine.port import PAGE_ACTIVE, PAGE_CACHED, PAGE_SHARED, ChainInfo, Segment, Snapshot

_GAP, _MAX_ROW, _MIN_ROW, _FIT_HEIGHT = 2.0, 24.0, 5.0, 208.0


class PrefixTree(QWidget):
    """Segments as bars, width = tokens. Click or Enter selects a chain, double click zooms, Escape zooms out.

    Signals:
        chain_selected(chain): the chain that a chosen segment stands for.
    """

    chain_selected = Signal(int)

    def __init__(self, parent: QWidget | None = None, *, chat_title: Callable[[str], str] = str) -> None:
        super().__init__(parent)
        self._layout_of = TreeLayout()
        self._chains: dict[int, ChainInfo] = {}
        self._segments: tuple[Segment, ...] = ()
        self._states: dict[int, int] = {}
        self._pinned: set[int] = set()
        self._selected: tuple[int, ...] = ()
        self._path: set[int] = set()
        self._current: int | None = None
        self._chat_title = chat_title
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Prefix tree"))
        self.setAccessibleDescription(tr("Stored prompts by their shared beginnings; arrow keys move, Enter selects"))
        Theme.current().changed.connect(self.update)

    def set_snapshot(self, snapshot: Snapshot) -> None:
        """Show a new state of the cache."""
        segments = snapshot.segments
        first = [s.pages[0] if s.pages else -1 for s in segments]
        codes = snapshot.page_states[first].tolist() if first else []
        states = {s.id: code or PAGE_CACHED for s, code in zip(segments, codes, strict=True)}
        chains = {c.id: c for c in snapshot.chains}
        pinned_chains = {c.id for c in snapshot.chains if c.pinned}
        pinned = {s.id for s in segments if pinned_chains.intersection(s.chains)} if pinned_chains else set()
        same = states == self._states and pinned == self._pinned and self._segments == segments
        self._chains = chains
        if same:
            return
        self._states, self._pinned, self._segments = states, pinned, segments
        self._layout_of = TreeLayout(segments, self._layout_of.root)
        if self._current not in self._layout_of.by_id:
            self._current = None
        self._find_path()
        self.updateGeometry()
        self.update()

    def select(self, chains: Collection[int]) -> None:
        """Mark chains: their segments from the root on stand out."""
        self._selected = tuple(chains)
        self._find_path()
        ends = [self._layout_of.end_of(c) for c in self._selected]
        self._current = next((e for e in ends if e is not None), self._current if chains else None)
        self.update()

    def _find_path(self) -> None:
        wanted = set(self._selected)
        self._path = {i for i, s in self._layout_of.by_id.items() if wanted.intersection(s.chains)}

    @property
    def layout_now(self) -> TreeLayout:
        """The placed segments."""
        return self._layout_of

    def zoom_to(self, segment: int | None) -> None:
        """Give a segment the whole width; None shows everything."""
        self._layout_of = TreeLayout(tuple(self._layout_of.by_id.values()), segment)
        self.updateGeometry()
        self.update()

    def _row_height(self) -> float:
        return max(_MIN_ROW, min(_MAX_ROW, _FIT_HEIGHT / max(1, self._layout_of.n_levels)))

    def sizeHint(self) -> QSize:
        return QSize(288, round(max(1, self._layout_of.n_levels) * self._row_height()) + 2)

    def minimumSizeHint(self) -> QSize:
        return QSize(120, self.sizeHint().height())

    def rect_of(self, node: Node) -> QRectF:
        """Where a segment is painted."""
        height, width = self._row_height(), self.width() - 2
        gap = _GAP if node.width * width > 8 else 0.5
        return QRectF(1 + node.x * width, 1 + node.level * height, max(1.0, node.width * width - gap), height - _GAP)

    def node_at(self, position: QPointF) -> Node | None:
        """The segment under a point."""
        level = int((position.y() - 1) // self._row_height())
        share = (position.x() - 1) / max(1, self.width() - 2)
        return next(
            (n for n in self._layout_of.nodes.values() if n.level == level and n.x <= share < n.x + n.width), None
        )

    def label_of(self, segment: Segment) -> str:
        """What stands on a segment: its text where it is a shared beginning, else its chat, then its turn."""
        chains = [self._chains[c] for c in segment.chains if c in self._chains]
        chats = {c.chat for c in chains}
        if len(chats) != 1 or (segment.parent is None and len(chains) > 1):
            return plain(segment.text) or tr("shared")
        parent = self._layout_of.by_id.get(segment.parent) if segment.parent is not None else None
        above = {self._chains[c].chat for c in parent.chains if c in self._chains} if parent else set()
        if above != chats:
            return self._chat_title(chains[0].chat) or plain(segment.text)
        best = preferred_chain(segment, self._layout_of, self._chains)
        return self._chains[best].label if best is not None else plain(segment.text)

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font("caption"))
        metrics = QFontMetricsF(painter.font())
        brushes = {
            state: (QBrush(theme.color(f"{name}_soft")), QBrush(theme.color(name, 0.55)), QBrush(theme.color(name)))
            for state, name in ((PAGE_ACTIVE, "active"), (PAGE_SHARED, "shared"), (PAGE_CACHED, "cached"))
        }
        shown = event.rect()
        for node in self._layout_of.nodes.values():
            box = self.rect_of(node)
            if box.top() <= shown.bottom() and box.bottom() >= shown.top():
                self._paint_node(painter, metrics, node, box, brushes[self._states[node.segment.id]])
        paint_focus(painter, self)
        painter.end()

    def _paint_node(
        self, painter: QPainter, metrics: QFontMetricsF, node: Node, box: QRectF, brushes: tuple[QBrush, ...]
    ) -> None:
        segment = node.segment
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(brushes[1] if segment.id in self._path else brushes[0])
        radius = min(4.0, box.height() / 4, box.width() / 3)
        if radius < 1.5:
            painter.drawRect(box)
        else:
            painter.drawRoundedRect(box, radius, radius)
        self._paint_marks(painter, segment, box, brushes[2])
        if segment.id == self._current:
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.setPen(QPen(Theme.current().color("text"), 1.5))
            painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), radius, radius)
        if box.width() > 26 and box.height() >= metrics.height() - 1:
            painter.setPen(Theme.current().color("text"))
            room = box.adjusted(6, 0, -4, 0)
            text = f"{shorten(self.label_of(segment), 60)} {segment.n_tokens:,}"
            flags = Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter
            painter.drawText(room, flags, metrics.elidedText(text, Qt.TextElideMode.ElideRight, room.width()))

    def _paint_marks(self, painter: QPainter, segment: Segment, box: QRectF, full: QBrush) -> None:
        """What tells the states apart without colour: an edge where in use, a line under pinned chains."""
        if self._states[segment.id] != PAGE_CACHED and box.width() > 8:
            painter.setBrush(full)
            painter.drawRect(QRectF(box.left(), box.top() + 1, 3, box.height() - 2))
        if segment.id in self._pinned and box.width() > 4:
            painter.setBrush(Theme.current().color("pinned"))
            painter.drawRect(QRectF(box.left() + 2, box.bottom() - 2, box.width() - 4, 2))

    def _choose(self, segment: int | None) -> None:
        self._current = segment
        if segment is not None:
            chain = preferred_chain(self._layout_of.by_id[segment], self._layout_of, self._chains)
            if chain is not None:
                self.chain_selected.emit(chain)
                self._current = segment
        self.update()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and (node := self.node_at(event.position())) is not None:
            self._choose(node.segment.id)

    def mouseDoubleClickEvent(self, event: QMouseEvent) -> None:
        node = self.node_at(event.position())
        again = node is not None and node.segment.id == self._layout_of.root
        self.zoom_to(None if node is None or again else node.segment.id)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        names = {
            Qt.Key.Key_Left: "left",
            Qt.Key.Key_Right: "right",
            Qt.Key.Key_Up: "up",
            Qt.Key.Key_Down: "down",
        }
        key = Qt.Key(event.key())
        if key in names and self._layout_of.nodes:
            start = self._current if self._current in self._layout_of.nodes else None
            found = (
                self._layout_of.neighbour(start, names[key]) if start is not None else next(iter(self._layout_of.nodes))
            )
            if found is not None:
                self._current = found
                self._announce()
                self.update()
        elif key in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space) and self._current is not None:
            self._choose(self._current)
        elif key in (Qt.Key.Key_Plus, Qt.Key.Key_Equal) and self._current is not None:
            self.zoom_to(self._current)
        elif key in (Qt.Key.Key_Escape, Qt.Key.Key_Minus) and self._layout_of.root is not None:
            self.zoom_to(None)
        else:
            super().keyPressEvent(event)

    def sentence(self, node: Node) -> str:
        """One segment in words, for tooltips and screen readers."""
        segment = node.segment
        chains = [self._chains[c] for c in segment.chains if c in self._chains]
        names = listed([chain_name(self._chat_title(c.chat), c.label) for c in chains])
        parts = [tr("{n} from {start:,} on", n=count(segment.n_tokens, "token"), start=segment.depth)]
        if node.total > segment.n_tokens:
            parts.append(tr("{n} with what follows", n=count(node.total, "token")))
        if segment.in_use:
            parts.append(tr("in use now"))
        return ", ".join(parts) + "; " + (names or tr("no chain"))

    def _announce(self) -> None:
        if self._current is not None and self._current in self._layout_of.nodes:
            self.setAccessibleDescription(self.sentence(self._layout_of.nodes[self._current]))
            if QAccessible.isActive():
                QAccessible.updateAccessibility(QAccessibleEvent(self, QAccessible.Event.DescriptionChanged))

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            node = self.node_at(QPointF(event.pos()))
            if node is None:
                QToolTip.hideText()
            else:
                text = shorten(plain(node.segment.text), 240)
                QToolTip.showText(event.globalPos(), f"{self.sentence(node)}\n{text}", self)
            return True
        return super().event(event)
