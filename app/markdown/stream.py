"""Markdown that grows at its end: only the block being written is parsed again.

The source before ``_fixed`` is settled: its leaves never change. Behind it lies the tail, which starts at the last
top-level block (inside a list: at its last item), the only place that later text can still change. Two kinds of tail
may be long and have a shorter way: an open code fence takes new lines as they are, and an open table parses its new
rows under its own header.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import accumulate

from markdown_it import MarkdownIt
from markdown_it.token import Token

from app.markdown.flatten import Flattener
from app.markdown.leaves import CodeLeaf, Leaf, TableLeaf

_UNDECIDED = re.compile(r"[ \t]*(?:[-=+*>#`~|:]+[ \t]*)+|[ \t]*(?:`{3,}|~{3,})[^`\n]*")
_BREAK = re.compile(r"(?<= )[^\W\d_]")
PARAGRAPH_CHARS = 4000
"""A paragraph that grows longer is broken up, so that its beginning need not be parsed and laid out for ever."""


@dataclass(frozen=True, slots=True)
class Update:
    """The leaves from number ``keep`` on are now ``leaves``."""

    keep: int
    leaves: list[Leaf]


@dataclass(frozen=True, slots=True)
class _OpenFence:
    closing: re.Pattern[str]
    mark: str
    body: int
    checked: int


@dataclass(frozen=True, slots=True)
class _OpenTable:
    head: str
    last_row: int


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


class MarkdownStream:
    """The leaves of a text that is appended to. ``parsed_chars`` counts what the parser was given, for tests."""

    def __init__(self) -> None:
        self._md = _parser()
        self._env: dict[str, object] = {}
        self.source = ""
        self.leaves: list[Leaf] = []
        self.parsed_chars = 0
        self._fixed = 0
        self._n_fixed = 0
        self._fence: _OpenFence | None = None
        self._table: _OpenTable | None = None
        self._in_paragraph = False
        self._glued = False

    def append(self, text: str, *, final: bool = False) -> Update:
        """Add text; ``final``: nothing follows, so that what was held back as undecided is shown too."""
        self.source += text.replace("\r\n", "\n").replace("\r", "\n")
        update = self._grow_fence(final) or self._grow_table(final) or self._parse_tail(final)
        self.leaves[update.keep :] = update.leaves
        return update

    def _end(self, final: bool) -> int:
        """Where parsing stops: a last line of nothing but marks may become anything, so it waits."""
        if final:
            return len(self.source)
        start = self.source.rfind("\n") + 1
        return start if _UNDECIDED.fullmatch(self.source, start) else len(self.source)

    def _parse(self, text: str) -> list[Token]:
        self.parsed_chars += len(text)
        return self._md.parse(text, self._env)

    def _parse_tail(self, final: bool) -> Update:
        keep = self._n_fixed
        broken = self._break_paragraph()
        tail = self.source[self._fixed : self._end(final)]
        lines = tail.split("\n")
        starts = list(accumulate((len(line) + 1 for line in lines), initial=self._fixed))
        tokens = self._parse(tail)
        leaves = Flattener(tokens, starts).run()
        if self._glued and leaves:
            leaves[0] = replace(leaves[0], glued=True)
        top = [token for token in tokens if token.level == 0 and token.nesting >= 0 and token.map]
        self._fence = self._table = None
        self._in_paragraph = bool(top) and top[-1].type == "paragraph_open"
        if top and not final:
            self._note_open(top[-1], tokens, lines, starts)
            if self._fence is not None and isinstance(leaves[-1], CodeLeaf):
                leaves[-1] = replace(leaves[-1], closed=False)
            self._settle(starts[_restart_line(tokens, top[-1])], leaves)
        return Update(keep, broken + leaves)

    def _settle(self, boundary: int, leaves: list[Leaf]) -> None:
        if boundary > self._fixed:
            self._fixed, self._glued = boundary, False
        self._n_fixed += sum(leaf.start < boundary for leaf in leaves)

    def _break_paragraph(self) -> list[Leaf]:
        """Settle the beginning of a tail that is one endless paragraph."""
        made: list[Leaf] = []
        while self._in_paragraph and len(self.source) - self._fixed > PARAGRAPH_CHARS + 200:
            place = _BREAK.search(self.source, self._fixed + PARAGRAPH_CHARS)
            if place is None or "\n\n" in self.source[self._fixed : place.start()]:
                break
            starts = [self._fixed, *(self._fixed + m.end() for m in re.finditer("\n|$", self._head(place.start())))]
            leaves = Flattener(self._parse(self._head(place.start())), starts).run()
            made += [replace(leaf, glued=self._glued) for leaf in leaves]
            self._n_fixed += len(leaves)
            self._fixed, self._glued = place.start(), True
        return made

    def _head(self, end: int) -> str:
        return self.source[self._fixed : end]

    def _note_open(self, last: Token, tokens: list[Token], lines: list[str], starts: list[int]) -> None:
        assert last.map is not None
        first, end = last.map
        if last.type == "fence" and lines[first].startswith(last.markup):
            mark = last.markup
            closing = re.compile(rf" {{0,3}}{re.escape(mark[0])}{{{len(mark)},}}[ \t]*")
            closed = end - 1 > first and closing.fullmatch(lines[end - 1]) is not None
            if not closed and first + 1 < len(lines):
                body = starts[first + 1]
                self._fence = _OpenFence(closing, mark[0], body, body)
        elif last.type == "table_open":
            rows = [token.map[0] for token in tokens if token.type == "tr_open" and token.map]
            if len(rows) > 1:
                self._table = _OpenTable("\n".join(lines[first : first + 2]) + "\n", starts[rows[-1]])

    def _grow_fence(self, final: bool) -> Update | None:
        fence = self._fence
        if fence is None or final:
            return None
        last_line = self.source.rfind("\n") + 1
        for line in self.source[fence.checked :].split("\n"):
            if fence.closing.fullmatch(line):
                return None
        end = last_line if not self.source[last_line:].strip(" " + fence.mark) else len(self.source)
        self._fence = replace(fence, checked=max(last_line, fence.body))
        code = self.source[fence.body : end].removesuffix("\n")
        last = self.leaves[-1]
        assert isinstance(last, CodeLeaf)
        return Update(len(self.leaves) - 1, [replace(last, code=code, end=end)])

    def _grow_table(self, final: bool) -> Update | None:
        table = self._table
        last = self.leaves[-1] if self.leaves else None
        if table is None or final or not isinstance(last, TableLeaf):
            return None
        tail = self.source[table.last_row : self._end(final)]
        text = table.head + tail
        lines = text.split("\n")
        starts = list(accumulate((len(line) + 1 for line in lines), initial=table.last_row - len(table.head)))
        tokens = self._parse(text)
        leaves = Flattener(tokens, starts).run()
        if len(leaves) != 1 or not isinstance(leaves[0], TableLeaf):
            return None
        rows = [token.map[0] for token in tokens if token.type == "tr_open" and token.map]
        grown = replace(last, rows=(*last.rows[:-1], *leaves[0].rows), end=leaves[0].end)
        self._table = replace(table, last_row=starts[rows[-1]])
        return Update(len(self.leaves) - 1, [grown])


def _restart_line(tokens: list[Token], last: Token) -> int:
    """The line from which the tail can be parsed again on its own: the last block, or the last item of a list."""
    assert last.map is not None
    if last.type in ("bullet_list_open", "ordered_list_open"):
        items = [token.map[0] for token in tokens if token.type == "list_item_open" and token.level == 1 and token.map]
        return max([last.map[0], *items])
    return last.map[0]
