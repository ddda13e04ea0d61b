"""The page ribbon under a reply: one cell per page, reused, computed or generated, and where reuse ended."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.panels.parts import paint_focus
from app.panels.words import count
from app.text import tr
from app.theme import Theme
from engine.scheduling.events import Miss

REUSED, COMPUTED, GENERATED, DIVERGED, EVICTED = "reused", "computed", "generated", "diverged", "evicted"
_COLORS = {REUSED: "cached", COMPUTED: "prefill", GENERATED: "active", DIVERGED: "diverged", EVICTED: "diverged"}
_CELL, _GAP, _HEIGHT, _MAX_CELLS = 13.0, 2.0, 9.0, 32


def cells_of(n_prompt: int, n_cached: int, n_gen: int, page_rows: int, miss: Miss | None) -> tuple[str, ...]:
    """The kind of each page of a reply, in order. A page that holds both kinds counts as computed."""
    n_pages = -(-(n_prompt + n_gen) // page_rows)
    reused, prompt = n_cached // page_rows, -(-n_prompt // page_rows)
    cells = [REUSED if i < reused else COMPUTED if i < prompt else GENERATED for i in range(n_pages)]
    if miss is not None and miss.cause in ("diverged", "evicted"):
        kind = DIVERGED if miss.cause == "diverged" else EVICTED
        at = miss.token_position if kind == DIVERGED and miss.token_position >= 0 else miss.position
        if 0 <= at // page_rows < len(cells):
            cells[at // page_rows] = kind
    return tuple(cells)


def squeeze(cells: Sequence[str], limit: int) -> tuple[tuple[str, int], ...]:
    """At most ``limit`` cells as (kind, pages); where pages share a cell, the rarer news wins."""
    rank = (GENERATED, REUSED, COMPUTED, EVICTED, DIVERGED)
    per_cell = max(1, -(-len(cells) // limit))
    groups = [cells[i : i + per_cell] for i in range(0, len(cells), per_cell)]
    return tuple((max(g, key=rank.index), len(g)) for g in groups)


class Ribbon(QWidget):
    """A reply's pages as a row of cells; with a miss it can be clicked (or Enter pressed) to ask why.

    Signals:
        clicked: why was not all of it reused?
    """

    clicked = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._cells: tuple[tuple[str, int], ...] = ()
        self._asks = False
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)
        self.setAccessibleName(tr("Pages of this reply"))
        Theme.current().changed.connect(self.update)

    @property
    def cells(self) -> tuple[tuple[str, int], ...]:
        """(kind, pages) of each cell that is shown."""
        return self._cells

    def set_counts(self, n_prompt: int, n_cached: int, n_gen: int, page_rows: int, miss: Miss | None = None) -> None:
        """Show a reply's token counts as pages of ``page_rows`` tokens; ``miss`` marks where reuse ended."""
        cells = squeeze(cells_of(n_prompt, n_cached, n_gen, page_rows, miss), _MAX_CELLS)
        self._asks = miss is not None
        words = tr(
            "{cached:,} of {prompt} reused, {computed:,} computed, {generated:,} generated; {pages}",
            cached=n_cached,
            prompt=count(n_prompt, "prompt token"),
            computed=n_prompt - n_cached,
            generated=n_gen,
            pages=count(-(-(n_prompt + n_gen) // page_rows), "page"),
        )
        if any(kind == DIVERGED for kind, _ in cells):
            words += "; " + tr("the stored text differs at the red cell")
        elif any(kind == EVICTED for kind, _ in cells):
            words += "; " + tr("pages from the crossed cell on were evicted")
        self.setToolTip(f"{words}. " + (tr("Click to see why.") if self._asks else ""))
        self.setAccessibleDescription(words)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus if self._asks else Qt.FocusPolicy.NoFocus)
        self.setCursor(Qt.CursorShape.PointingHandCursor if self._asks else Qt.CursorShape.ArrowCursor)
        if cells != self._cells:
            grown = len(cells) != len(self._cells)
            self._cells = cells
            if grown:
                self.updateGeometry()
            self.update()

    def sizeHint(self) -> QSize:
        return QSize(round(len(self._cells) * (_CELL + _GAP)) + 2, round(_HEIGHT) + 6)

    def minimumSizeHint(self) -> QSize:
        return self.sizeHint()

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        top = (self.height() - _HEIGHT) / 2
        for number, (kind, _) in enumerate(self._cells):
            box = QRectF(1 + number * (_CELL + _GAP), top, _CELL, _HEIGHT)
            if kind == GENERATED:
                box.adjust(0, 2, 0, -2)
            painter.setPen(Qt.PenStyle.NoPen)
            painter.setBrush(theme.color(_COLORS[kind]))
            if kind == EVICTED:
                _paint_evicted(painter, box, theme)
            else:
                painter.drawRoundedRect(box, 2.5, 2.5)
            if kind == DIVERGED:
                _paint_fork(painter, box, theme)
        paint_focus(painter, self)
        painter.end()

    def _activate(self) -> None:
        if self._asks:
            self.clicked.emit()

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        if event.button() == Qt.MouseButton.LeftButton and self.rect().contains(event.position().toPoint()):
            self._activate()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self._activate()
        else:
            super().keyPressEvent(event)

    def changeEvent(self, event: QEvent) -> None:
        if event.type() == QEvent.Type.FontChange:
            self.updateGeometry()
        super().changeEvent(event)


def _paint_evicted(painter: QPainter, box: QRectF, theme: Theme) -> None:
    """An empty cell with a stroke through it: the page was here once."""
    painter.setBrush(theme.color("diverged_soft"))
    painter.setPen(QPen(theme.color("diverged"), 1.2))
    painter.drawRoundedRect(box.adjusted(0.6, 0.6, -0.6, -0.6), 2.5, 2.5)
    inset = box.width() * 0.22
    painter.drawLine(QPointF(box.left() + inset, box.bottom() - 1.5), QPointF(box.right() - inset, box.top() + 1.5))


def _paint_fork(painter: QPainter, box: QRectF, theme: Theme) -> None:
    """Two strokes that part: the texts differ here."""
    painter.setPen(QPen(theme.color("on_accent"), 1.2))
    middle = box.center()
    for sign in (-1.0, 1.0):
        painter.drawLine(middle - QPointF(3, 0), middle + QPointF(3, sign * 2.6))
