"""Find whole tokens (control or user-defined) in a text: leftmost, then longest."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_END = ""
"""Key under which a node of the trie keeps the token that ends there (no character is the empty text)."""


class TokenMatcher:
    """A trie over the texts of some tokens. Time grows with the text, not with the number of tokens."""

    def __init__(self, tokens: Mapping[str, int]) -> None:
        self.tokens = tokens
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
            done = end
            match = self._first.search(text, end)
        if done < len(text):
            pieces.append(text[done:])
        return pieces

    def contains(self, text: str) -> bool:
        """Whether any token of this matcher is in ``text``."""
        return any(isinstance(piece, int) for piece in self.split(text))

    def _longest(self, text: str, start: int) -> tuple[int | None, int]:
        found, end = None, start
        node: dict[str, Any] | None = self._root
        for index in range(start, len(text)):
            node = node.get(text[index])
            if node is None:
                break
            if _END in node:
                found, end = node[_END], index + 1
        return found, end
