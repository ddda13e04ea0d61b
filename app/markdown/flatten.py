"""Block tokens to a flat list of leaves: nesting becomes an indent, a marker and a depth of quotes."""

from __future__ import annotations

from collections.abc import Sequence

from markdown_it.token import Token

from app.markdown.inline import rich_of
from app.markdown.leaves import CodeLeaf, Leaf, Rich, RuleLeaf, TableLeaf, TextLeaf

_BULLETS = ("•", "◦", "▪")


class Flattener:
    """Walks the tokens of one parse. ``line_starts`` are the source places of its lines (one past the last too)."""

    def __init__(self, tokens: Sequence[Token], line_starts: Sequence[int]) -> None:
        self._tokens = tokens
        self._starts = line_starts
        self._ordered: list[bool] = []
        self._marker = ""
        self._marker_at = 0
        self._quote = 0
        self.leaves: list[Leaf] = []

    def run(self) -> list[Leaf]:
        """All leaves in order."""
        index = 0
        while index < len(self._tokens):
            index = self._take(index)
        return self.leaves

    def _take(self, index: int) -> int:
        token = self._tokens[index]
        match token.type:
            case "paragraph_open" | "heading_open":
                level = int(token.tag[1]) if token.type == "heading_open" else 0
                rich = rich_of(self._tokens[index + 1].children or [])
                self._emit(TextLeaf, token, rich=rich, level=level)
                return index + 3
            case "fence" | "code_block":
                code = token.content.removesuffix("\n")
                language = token.info.split()[0] if token.info.strip() else ""
                self._emit(CodeLeaf, token, code=code, language=language)
            case "hr":
                self._emit(RuleLeaf, token)
            case "table_open":
                return self._table(index)
            case "bullet_list_open" | "ordered_list_open":
                self._ordered.append(token.type == "ordered_list_open")
            case "bullet_list_close" | "ordered_list_close":
                self._ordered.pop()
            case "list_item_open":
                self._open_item(token)
            case "list_item_close" if self._marker:
                self._emit(TextLeaf, token, rich=Rich())
            case "blockquote_open":
                self._quote += 1
            case "blockquote_close":
                self._quote -= 1
        return index + 1

    def _open_item(self, token: Token) -> None:
        self._marker_at = self._starts[token.map[0]] if token.map else 0
        if self._ordered[-1]:
            self._marker = f"{token.info or 1}."
        else:
            depth = self._ordered.count(False) - 1
            self._marker = _BULLETS[min(depth, len(_BULLETS) - 1)]

    def _emit(self, kind: type[Leaf], token: Token, **values: object) -> None:
        start, end = (self._starts[line] for line in token.map) if token.map else (self._marker_at, self._marker_at)
        common = {"indent": len(self._ordered), "marker": self._marker, "quote": self._quote}
        self._marker = ""
        self.leaves.append(kind(start=start, end=end, **common, **values))  # type: ignore[arg-type]

    def _table(self, index: int) -> int:
        opening = self._tokens[index]
        rows: list[tuple[Rich, ...]] = []
        aligns: list[str] = []
        row: list[Rich] = []
        while self._tokens[index].type != "table_close":
            token = self._tokens[index]
            if token.type == "tr_open":
                row = []
            elif token.type == "th_open":
                aligns.append(str(token.attrGet("style") or "").removeprefix("text-align:"))
            elif token.type == "inline":
                row.append(rich_of(token.children or []))
            elif token.type == "tr_close":
                rows.append(tuple(row))
            index += 1
        self._emit(TableLeaf, opening, header=rows[0], rows=tuple(rows[1:]), aligns=tuple(aligns))
        return index + 1
