"""What the cells of the page map mean: painted words that wrap in a narrow dock."""

from __future__ import annotations

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QFontMetricsF, QPainter, QPaintEvent
from PySide6.QtWidgets import QSizePolicy, QWidget

from app.panels import page_atlas
from app.panels.page_atlas import draw_cell
from app.text import tr
from app.theme import Theme

ENTRIES = (
    ("active", page_atlas.ACTIVE),
    ("shared", page_atlas.SHARED),
    ("cached", page_atlas.CACHED),
    ("pinned", page_atlas.CACHED | page_atlas.PINNED),
    ("part", page_atlas.PART + 2),
    ("free", page_atlas.FREE),
)
_MARK, _LINE, _GAP = 10.0, 17.0, 5.0


class PageLegend(QWidget):
    """Marks and words in as many lines as the width needs."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        self.setAccessibleName(tr("Legend of the page map"))
        self.setAccessibleDescription(", ".join(tr(words) for words, _ in ENTRIES))
        Theme.current().changed.connect(self.update)

    def _places(self, width: float) -> list[tuple[float, float, str, int]]:
        metrics = QFontMetricsF(Theme.current().font("caption"))
        places, x, y = [], 0.0, 0.0
        for words, code in ENTRIES:
            needed = _MARK + 4 + metrics.horizontalAdvance(tr(words))
            if x and x + needed > width:
                x, y = 0.0, y + _LINE
            places.append((x, y, tr(words), code))
            x += needed + _GAP
        return places

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return round(self._places(width)[-1][1] + _LINE)

    def sizeHint(self) -> QSize:
        return QSize(288, self.heightForWidth(max(120, self.width())))

    def minimumSizeHint(self) -> QSize:
        return QSize(80, round(_LINE))

    def paintEvent(self, event: QPaintEvent) -> None:
        theme = Theme.current()
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(theme.font("caption"))
        for x, y, words, code in self._places(self.width()):
            draw_cell(painter, QRectF(x, y + (_LINE - _MARK) / 2, _MARK, _MARK), code, theme)
            painter.setPen(theme.color("muted"))
            box = QRectF(x + _MARK + 4, y, self.width(), _LINE)
            painter.drawText(box, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, words)
        painter.end()
