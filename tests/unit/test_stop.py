"""Stop strings: never a part of one is shown, never anything else is lost, however the text was cut."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from engine.text.stop import StopMatcher, TextStream
from engine.text.tokenizer import Tokenizer
from tests.vocabularies import byte_level

STRINGS = st.lists(st.text("ab\n", max_size=5), max_size=4)
TEXTS = st.text("ab\n", max_size=40)
CUTS = st.lists(st.integers(0, 40))


def expected(text: str, strings: list[str]) -> tuple[str, bool]:
    """By definition: of all places where a stop string ends, the first; there, the longest."""
    for end in range(1, len(text) + 1):
        lengths = [len(s) for s in strings if s and text[:end].endswith(s)]
        if lengths:
            return text[: end - max(lengths)], True
    return text, False


def cut(text: str, places: list[int]) -> list[str]:
    borders = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(borders)]


@given(TEXTS, STRINGS, CUTS)
def test_any_cut_gives_what_the_definition_says(text: str, strings: list[str], places: list[int]) -> None:
    matcher = StopMatcher(strings)
    shown = ""
    for piece in cut(text, places):
        visible, stopped = matcher.push(piece)
        shown += visible
        assert stopped == matcher.stopped
    shown += matcher.flush()
    assert (shown, matcher.stopped) == expected(text, strings)


@given(TEXTS, STRINGS, CUTS)
def test_nothing_is_shown_that_a_stop_string_could_still_take_back(
    text: str, strings: list[str], places: list[int]
) -> None:
    matcher = StopMatcher(strings)
    read = shown = ""
    for piece in cut(text, places):
        read += piece
        visible, stopped = matcher.push(piece)
        shown += visible
        if stopped:
            break
        held = read[len(shown) :]
        assert shown + held == read
        # Exactly what begins a stop string is held back, no more.
        assert held == max((read[i:] for i in range(len(read)) for s in strings if s.startswith(read[i:])), default="")


def test_after_the_end_nothing_comes() -> None:
    matcher = StopMatcher(["END"])
    assert [matcher.push("aEN"), matcher.push("Db"), matcher.push("c"), matcher.flush()] == [
        ("a", False), ("", True), ("", True), "",
    ]  # fmt: skip


def test_no_stop_strings_pass_everything_on() -> None:
    matcher = StopMatcher(["", ""])
    assert matcher.push("any text") == ("any text", False) and matcher.flush() == ""


TOKENIZER = Tokenizer.from_metadata(
    byte_level([("l", "l"), ("h", "e"), ("he", "ll"), ("hell", "o"), ("E", "N"), ("EN", "D")])
)


def run(text: str, *strings: str) -> tuple[list[str], TextStream]:
    stream = TextStream(TOKENIZER, strings)
    pieces = []
    for token in TOKENIZER.encode(text):
        piece, stopped = stream.push(token)
        pieces.append(piece)
        if stopped:
            break
    return [*pieces, stream.flush()], stream


def test_a_stream_without_stop_keeps_all_tokens() -> None:
    pieces, stream = run("hello 😀")
    assert pieces == ["hello", " ", "", "", "", "😀", ""]
    assert stream.n_kept == 6 and not stream.stopped


def test_tokens_before_a_stop_string_are_kept() -> None:
    pieces, stream = run("hello. END and more", "END")
    assert "".join(pieces) == "hello. " and stream.stopped and stream.n_kept == 3


def test_a_token_that_the_stop_string_cuts_is_not_kept() -> None:
    pieces, stream = run("ab hello", "lo")
    assert "".join(pieces) == "ab hel" and stream.n_kept == 3


def test_a_stop_string_that_does_not_come_is_given_back() -> None:
    pieces, stream = run("say EN", "END")
    assert pieces == ["s", "a", "y", " ", "", "EN"] and stream.n_kept == 5


def test_a_character_cut_by_a_stop_string_keeps_none_of_its_tokens() -> None:
    _, stream = run("a😀", "😀")
    assert stream.stopped and stream.n_kept == 1


def test_a_character_held_by_a_stop_string_counts_once_it_is_visible() -> None:
    pieces, stream = run("a😀b!", "😀x")
    assert "".join(pieces) == "a😀b!" and stream.n_kept == 7


@given(st.text("heloEND 😀é", max_size=30), STRINGS | st.lists(st.sampled_from(["END", "lo", "😀", "l l"]), max_size=3))
def test_kept_tokens_are_exactly_those_that_are_wholly_visible(text: str, strings: list[str]) -> None:
    pieces, stream = run(text, *strings)
    visible = "".join(pieces)
    assert (visible, stream.stopped) == expected(text, strings)
    tokens = TOKENIZER.encode(text)
    sizes = list(itertools.accumulate(len(TOKENIZER.token_bytes(token)) for token in tokens))
    fits = [i for i, size in enumerate(sizes, 1) if _end_in_text(text, size) <= len(visible)]
    assert stream.n_kept == (max(fits, default=0) if stream.stopped else len(tokens))


def _end_in_text(text: str, size: int) -> int:
    """Characters of ``text`` that its first ``size`` bytes touch."""
    return next((n for n in range(len(text) + 1) if len(text[:n].encode()) >= size), len(text))
