"""Whole tokens in a text: leftmost, then longest."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.text.matcher import LONGEST, TokenMatcher

WORDS = st.dictionaries(st.text("ab<", min_size=1, max_size=4), st.integers(0, 99), max_size=6)


def expected(tokens: dict[str, int], text: str) -> list[str | int]:
    pieces: list[str | int] = []
    at = 0
    while at < len(text):
        found = max((word for word in tokens if text.startswith(word, at)), key=len, default="")
        if found:
            pieces.append(tokens[found])
        elif pieces and isinstance(pieces[-1], str):
            pieces[-1] += text[at]
        else:
            pieces.append(text[at])
        at += len(found) or 1
    return pieces


@given(WORDS, st.text("ab< ", max_size=20))
def test_leftmost_then_longest(tokens: dict[str, int], text: str) -> None:
    assert TokenMatcher(tokens).split(text) == expected(tokens, text)


def test_blanks_after_a_token_that_strips() -> None:
    matcher = TokenMatcher({"<a>": 1, "<b>": 2}, strips=lambda token: token == 1)
    assert matcher.split("x <a> \n y<b> z") == ["x ", 1, "y", 2, " z"]
    assert matcher.split("<a>  ") == [1]


def test_texts_that_are_too_long_for_a_token_are_not_looked_for() -> None:
    tokens = {"x" * LONGEST: 1, "y" * (LONGEST + 1): 2}
    assert TokenMatcher(tokens).split("y" * (LONGEST + 1) + "x" * LONGEST) == ["y" * (LONGEST + 1), 1]


def test_nothing_to_find() -> None:
    assert TokenMatcher({}).split("abc") == ["abc"] and TokenMatcher({"a": 1}).split("") == []
