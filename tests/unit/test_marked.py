"""Marked text does what ``str`` does, and every character still knows where it came from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.marked import TEMPLATE, Marked, join

OPERATIONS: list[Callable[[Any], Any]] = [
    lambda s: s.strip(), lambda s: s.lstrip("\n"), lambda s: s.rstrip("ab"), lambda s: s[1:], lambda s: s[-3:-1],
    lambda s: s[::2], lambda s: s.split("</t>")[-1], lambda s: s.split("</t>", 1), lambda s: s.rsplit("ab", 1),
    lambda s: s.split(), lambda s: s.rsplit(None, 2), lambda s: s.splitlines(), lambda s: s.splitlines(True),
    lambda s: s.partition("b"), lambda s: s.rpartition("b"), lambda s: s.replace("a", "--"),
    lambda s: s.replace("", "-"),
    lambda s: s.replace("ab", "", 1), lambda s: s.removeprefix("a"), lambda s: s.removesuffix("b"), lambda s: s.upper(),
    lambda s: s.title(), lambda s: "<" + s + ">", lambda s: s + s, lambda s: s * 2, lambda s: 2 * s, lambda s: list(s),
    lambda s: s.join(["x", "y", s]), lambda s: s.center(50), lambda s: s.split("ab"), lambda s: s.rsplit("a"),
    lambda s: s % (), lambda s: s.replace("b", "a" + s),
]  # fmt: skip


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]


@given(
    st.text("ab \n", max_size=12) | st.sampled_from(["ab</t>a b", "</t>", "xabb", " a\r\nb "]),
    st.sampled_from(OPERATIONS),
)
def test_same_text_as_str_and_marks_that_cover_it(text: str, operation: Callable[[Any], Any]) -> None:
    source = Marked.message(text, 7)
    results, plain = flat(operation(source)), flat(operation(text))
    assert results == plain
    for result in results:
        if not isinstance(result, Marked):
            assert result == ""
            continue
        assert sum(length for length, _, _ in result.marks) == len(result)
        for piece, number, offset in result.segments():
            assert offset < 0 or (number == 7 and text[offset : offset + len(piece)] == piece)
        assert str(result) is result


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=5))
def test_neighbours_that_continue_each_other_become_one(cuts: list[tuple[int, int]]) -> None:
    text = Marked.message("abcdefgh", 2)
    joined = join([text[start:end] for start, end in cuts] + [text[:3], text[3:5], "xy", text[5:]])
    assert joined == "".join("abcdefgh"[start:end] for start, end in cuts) + "abcdexyfgh"
    assert list(joined.segments())[-3:][1:] == [("xy", TEMPLATE, -1), ("fgh", 2, 5)]


def test_what_a_reasoning_template_does() -> None:
    said = Marked.message("<think>\nwhy\n</think>\n\nyes ", 3)
    answer = said.split("</think>")[-1].lstrip("\n").strip()
    assert list(("<|im_start|>" + answer + "<|im_end|>").segments()) == [
        ("<|im_start|>", TEMPLATE, -1), ("yes", 3, 22), ("<|im_end|>", TEMPLATE, -1),
    ]  # fmt: skip


def test_changed_text_keeps_its_message_but_no_offset() -> None:
    assert list(Marked.message("hi", 4).upper().segments()) == [("HI", 4, -1)]
    assert Marked.message("HI", 4).upper().marks == ((2, 4, 0),)


def test_characters_by_number() -> None:
    text = Marked.message("abc", 1)
    assert [(char, char.marks) for char in (text[0], text[-1])] == [("a", ((1, 1, 0),)), ("c", ((1, 1, 2),))]
    with pytest.raises(IndexError):
        text[3]
