"""Find whole tokens (control or user-defined) in a text: leftmost, then longest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

BLANKS = " \t\n\v\f\r"
"""What a token that strips takes away after itself."""

_END = ""
"""Key under which a node of the trie keeps the token that ends there (no character is the empty text)."""


class TokenMatcher:
    """A trie over the texts of some tokens. Time grows with the text, not with the number of tokens.

    ``strips`` tells whether a token takes away the blanks after it.
    """

    def __init__(self, tokens: Mapping[str, int], strips: Callable[[int], bool] = lambda token: False) -> None:
        self.tokens = tokens
        self._strips = strips
        self._root: dict[str, Any] = {}
        for text, token in tokens.items():
            node = self._root
            for char in text:
                node = node.setdefault(char, {})
            node[_END] = token
        firsts = "".join(re.escape(char) for char in self._root)
        self._first = re.compile(f"[{firsts}]") if firsts else None

    def split(self, text: str) -> list[str | int]:
        """The text as pieces in order: a token's id where one was found, else the text between (never empty)."""
        if self._first is None:
            return [text] if text else []
        pieces: list[str | int] = []
        done = 0
        match = self._first.search(text)
        while match:
            start = match.start()
            token, end = self._longest(text, start)
            if token is None:
                match = self._first.search(text, start + 1)
                continue
            if start > done:
                pieces.append(text[done:start])
            pieces.append(token)
            done = _after_blanks(text, end) if self._strips(token) else end
            match = self._first.search(text, done)
        if done < len(text):
            pieces.append(text[done:])
        return pieces

    def contains(self, text: str) -> bool:
        """Whether any token of this matcher is in ``text``."""
        return any(isinstance(piece, int) for piece in self.split(text))

    def _longest(self, text: str, start: int) -> tuple[int | None, int]:
        node, found, end = self._root, None, start
        for index in range(start, len(text)):
            if text[index] not in node:
                break
            node = node[text[index]]
            if _END in node:
                found, end = node[_END], index + 1
        return found, end


def _after_blanks(text: str, index: int) -> int:
    while index < len(text) and text[index] in BLANKS:
        index += 1
    return index
