"""Find whole tokens (control or user-defined) in a text: leftmost, then longest."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

BLANKS = " \t\n\v\f\r"
"""What a token that strips takes away after itself."""

LONGEST = 512
"""Texts of more characters are not looked for: no model has such tokens, and a damaged file may."""


class TokenMatcher:
    """Knows tokens by their first two characters and their lengths. ``tokens`` maps their texts to ids.

    ``strips`` tells whether a token takes away the blanks after it.
    """

    def __init__(self, tokens: Mapping[str, int], strips: Callable[[int], bool] = lambda token: False) -> None:
        self.tokens = tokens
        self._strips = strips
        lengths: dict[str, set[int]] = {}
        for text in tokens:
            if len(text) <= LONGEST:
                lengths.setdefault(text[:2], set()).add(len(text))
        self._lengths = {start: sorted(found, reverse=True) for start, found in lengths.items()}
        firsts = "".join(re.escape(char) for char in {start[0] for start in lengths})
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
            found = self._longest(text, start)
            if not found:
                match = self._first.search(text, start + 1)
                continue
            if start > done:
                pieces.append(text[done:start])
            token, end = self.tokens[found], start + len(found)
            pieces.append(token)
            done = _after_blanks(text, end) if self._strips(token) else end
            match = self._first.search(text, done)
        if done < len(text):
            pieces.append(text[done:])
        return pieces

    def _longest(self, text: str, start: int) -> str:
        """The text of the longest token at ``start``, empty if there is none."""
        for length in self._lengths.get(text[start : start + 2], ()):
            if text[start : start + length] in self.tokens:
                return text[start : start + length]
        return text[start] if text[start] in self._lengths else ""


def _after_blanks(text: str, index: int) -> int:
    while index < len(text) and text[index] in BLANKS:
        index += 1
    return index
