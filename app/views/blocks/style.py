"""Fonts, colours and distances of message text, taken from the theme."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtGui import QColor, QFont, QFontMetricsF, QPalette, QTextCharFormat
from PySide6.QtWidgets import QApplication

from app.markdown.highlight import Kind
from app.markdown.leaves import Style
from app.theme.theme import Theme

INDENT = 26.0
QUOTE = 16.0
GAP = 10.0
ITEM_GAP = 4.0
LINE_FACTOR = 1.32
CODE_PAD = 12.0
CODE_HEAD = 30.0
CELL_PAD_X = 10.0
CELL_PAD_Y = 6.0
HEADING_SCALE = {1: 1.45, 2: 1.25, 3: 1.12, 4: 1.0, 5: 1.0, 6: 1.0}
_CODE_COLORS: dict[Kind, str] = {
    "keyword": "shared",
    "string": "cached",
    "comment": "muted",
    "number": "prefill",
    "name": "accent",
    "deleted": "diverged",
    "inserted": "cached",
}


@dataclass(slots=True)
class BlockStyle:
    """What blocks paint with; a new one is made when the theme changes."""

    body: QFont
    mono: QFont
    small: QFont
    text: QColor
    muted: QColor
    line: QColor
    raised: QColor
    accent: QColor
    code_text: QColor
    selection: QColor
    surface: QColor

    @classmethod
    def current(cls, theme: Theme, surface: str = "background") -> BlockStyle:
        """The style of this moment; ``surface`` is the token of what text stands on."""
        selection = QApplication.palette().color(QPalette.ColorRole.Highlight)
        selection.setAlphaF(0.28)
        return cls(
            body=theme.font("body"),
            mono=theme.font("mono"),
            small=theme.font("caption"),
            text=theme.color("text"),
            muted=theme.color("muted"),
            line=theme.color("line"),
            raised=theme.color("raised"),
            accent=theme.color("accent"),
            code_text=theme.color("text"),
            selection=selection,
            surface=theme.color(surface),
        )

    def heading(self, level: int) -> QFont:
        """The font of a heading (level 1..6) or of a paragraph (0)."""
        if not level:
            return self.body
        font = QFont(self.body)
        font.setPointSizeF(font.pointSizeF() * HEADING_SCALE[level])
        font.setWeight(QFont.Weight.DemiBold)
        return font

    def format(self, style: Style, base: QFont) -> QTextCharFormat:
        """The character format of a span."""
        made = QTextCharFormat()
        if style & Style.CODE:
            font = QFont(self.mono)
            font.setPointSizeF(base.pointSizeF() * 0.94)
            made.setFont(font)
        if style & Style.BOLD:
            made.setFontWeight(QFont.Weight.DemiBold)
        if style & Style.ITALIC:
            made.setFontItalic(True)
        if style & Style.STRIKE:
            made.setFontStrikeOut(True)
        if style & Style.LINK:
            made.setForeground(self.accent)
            made.setFontUnderline(True)
        return made

    def mono_metrics(self) -> QFontMetricsF:
        """Metrics of the code font."""
        return QFontMetricsF(self.mono)


def code_formats(theme: Theme) -> dict[Kind, QTextCharFormat]:
    """Colours of highlighted code."""
    made = {}
    for kind, token in _CODE_COLORS.items():
        made[kind] = QTextCharFormat()
        made[kind].setForeground(theme.color(token))
        if kind == "comment":
            made[kind].setFontItalic(True)
    return made
