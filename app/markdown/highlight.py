"""Colours for code: pygments' tokens reduced to a few kinds, line by line, so that long code can grow cheaply.

While a block is being written only its last stretch is lexed, from a line that looks like a fresh start; when it is
complete it is lexed once from the top, in slices of time, which corrects what the shortcut may have got wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Literal

from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token, _TokenType
from pygments.util import ClassNotFound

from app.markdown.leaves import units

Kind = Literal["keyword", "string", "comment", "number", "name", "deleted", "inserted"]
Line = tuple[tuple[int, int, Kind], ...]
"""(start, length, kind) in UTF-16 units."""

STRETCH_LINES = 32
_KINDS: tuple[tuple[_TokenType, Kind], ...] = (
    (Token.Keyword, "keyword"),
    (Token.Operator.Word, "keyword"),
    (Token.Literal.String, "string"),
    (Token.Comment, "comment"),
    (Token.Literal.Number, "number"),
    (Token.Name.Function, "name"),
    (Token.Name.Class, "name"),
    (Token.Name.Decorator, "name"),
    (Token.Name.Tag, "keyword"),
    (Token.Name.Attribute, "name"),
    (Token.Generic.Deleted, "deleted"),
    (Token.Generic.Inserted, "inserted"),
    (Token.Generic.Heading, "keyword"),
)


@lru_cache(maxsize=64)
def lexer_for(language: str) -> Lexer | None:
    """pygments' lexer for a fence's language, or None where there is none."""
    if not language:
        return None
    try:
        return get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
    except ClassNotFound:
        return None


@lru_cache(maxsize=512)
def kind_of(token: _TokenType) -> Kind | None:
    """Our kind for a token type; None: plain text."""
    return next((kind for known, kind in _KINDS if token in known), None)


def lines_of(lexer: Lexer, code: str) -> Iterator[Line]:
    """Lex ``code`` and yield the coloured spans of each of its lines, as soon as the line is complete."""
    spans: list[tuple[int, int, Kind]] = []
    at = 0
    for token, text in lexer.get_tokens(code):
        kind = kind_of(token)
        for number, part in enumerate(text.split("\n")):
            if number:
                yield tuple(spans)
                spans, at = [], 0
            length = units(part)
            if kind is not None and part.strip():
                spans.append((at, length, kind))
            at += length
    yield tuple(spans)


def fresh_start(lines: list[str], begin: int) -> int:
    """A line after ``begin`` from which lexing can start anew: one that is not indented and follows a blank one; where
    there is none in the last stretch, ``begin`` itself, or a line inside when the stretch grew too long."""
    for index in range(len(lines) - 1, begin, -1):
        if lines[index][:1].strip() and not lines[index - 1].strip():
            return index
    return begin if len(lines) - begin < 4 * STRETCH_LINES else len(lines) - STRETCH_LINES
