"""The blocks that a reply is laid out from: a flat list of leaves, each with its place in lists and quotes.

Offsets inside a text count UTF-16 units, as Qt does; ``start`` and ``end`` are places in the source and take no part
in comparisons: two leaves are equal when they look the same.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntFlag


class Style(IntFlag):
    """How a span of text looks."""

    PLAIN = 0
    BOLD = 1
    ITALIC = 2
    STRIKE = 4
    CODE = 8
    LINK = 16


@dataclass(frozen=True, slots=True)
class Span:
    """Units [start, end) of a text in one style; ``href`` for links."""

    start: int
    end: int
    style: Style
    href: str = ""


@dataclass(frozen=True, slots=True)
class Rich:
    """Text with styled spans; lines are parted by U+2028."""

    text: str = ""
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class Leaf:
    """Common to all blocks. ``indent``: depth in lists; ``marker``: the bullet or number before it; ``quote``: depth in
    quotes; ``glued``: goes on with the paragraph before it, which grew too long for one block."""

    start: int = field(default=0, compare=False)
    end: int = field(default=0, compare=False)
    indent: int = 0
    marker: str = ""
    quote: int = 0
    glued: bool = False


@dataclass(frozen=True, slots=True)
class TextLeaf(Leaf):
    """A paragraph (``level`` 0) or a heading (1..6)."""

    rich: Rich = Rich()
    level: int = 0


@dataclass(frozen=True, slots=True)
class CodeLeaf(Leaf):
    """A code block without its fences; ``closed``: nothing more can be added to it."""

    code: str = ""
    language: str = ""
    closed: bool = True


@dataclass(frozen=True, slots=True)
class TableLeaf(Leaf):
    """A table; ``aligns`` per column: "left", "center", "right" or ""."""

    header: tuple[Rich, ...] = ()
    rows: tuple[tuple[Rich, ...], ...] = ()
    aligns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RuleLeaf(Leaf):
    """A horizontal line."""


def units(text: str) -> int:
    """Length in UTF-16 units."""
    return len(text) + sum(ch > "\uffff" for ch in text) if not text.isascii() else len(text)


def cut_units(text: str, start: int, end: int) -> str:
    """The part [start, end) of a text, counted in UTF-16 units."""
    if units(text) == len(text):
        return text[start:end]
    raw = text.encode("utf-16-le", "surrogatepass")[2 * start : 2 * end]
    return raw.decode("utf-16-le", "replace")
