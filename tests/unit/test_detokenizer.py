"""Tokens to text: any cut of any text comes out whole, and never half a character."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.detokenizer import Detokenizer
from engine.text.tokenizer import Tokenizer
from tests.vocabularies import byte_level, sentencepiece


class Pieces:
    """A tokenizer whose token i is the i-th of the given byte strings."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def token_bytes(self, token: int) -> bytes:
        return self.pieces[token]


def pushes(pieces: list[bytes]) -> list[str]:
    detokenizer = Detokenizer(Pieces(pieces))
    return [*map(detokenizer.push, range(len(pieces))), detokenizer.flush()]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    borders = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(borders)]


TEXTS = st.text() | st.sampled_from(["👨‍👩‍👧‍👦 family", "👍🏽 ok", "e\u0301 ñ", "🇩🇪", "நி", "한국어", "a\ufe0f\u200d"])


@given(TEXTS, st.lists(st.integers(0, 400)))
def test_any_cut_gives_the_text_and_no_replacement_character(text: str, places: list[int]) -> None:
    pieces = pushes(cut(text.encode(), places))
    assert "".join(pieces) == text
    assert all("\ufffd" not in piece for piece in pieces) or "\ufffd" in text


@given(st.binary(), st.lists(st.integers(0, 400)))
def test_invalid_bytes_show_as_they_would_in_one_go(data: bytes, places: list[int]) -> None:
    shown = "".join(pushes(cut(data, places)))
    whole = data.decode(errors="replace")
    # An unfinished character at the very end is left out; anything else is the same.
    assert shown == whole or (whole.endswith("\ufffd") and shown == whole[:-1])


def test_joined_emoji_byte_by_byte() -> None:
    text = "👩‍🚀é"
    pieces = pushes([bytes([byte]) for byte in text.encode()])
    assert [piece for piece in pieces if piece] == list(text)


def test_invalid_bytes_appear_at_once_and_only_they() -> None:
    assert pushes([b"a\xe2\x82", b"b", b"\xff", b"c"]) == ["a", "\ufffdb", "\ufffd", "c", ""]


def test_a_reply_cut_within_a_character_shows_none_of_it_and_goes_on_whole() -> None:
    tokenizer = Tokenizer.from_metadata(byte_level())
    first = tokenizer.encode("ok 😀")[:-2]
    detokenizer = Detokenizer(tokenizer)
    assert "".join(map(detokenizer.push, first)) + detokenizer.flush() == "ok "
    rest = tokenizer.encode("😀!")[2:]
    resumed = Detokenizer(tokenizer, prompt=first)
    assert resumed.pending == "😀".encode()[:2]
    assert "".join(map(resumed.push, rest)) == "😀!"


@pytest.mark.parametrize("prompt", [(), (104, 105), (0xC3, 0xA9)])
def test_a_prompt_that_ends_with_a_character_changes_nothing(prompt: tuple[int, ...]) -> None:
    metadata = byte_level()
    tokenizer = Tokenizer.from_metadata(metadata)
    as_bytes = [tokenizer.encode("é")[0], tokenizer.encode("é")[1]] if 0xC3 in prompt else list(prompt)
    detokenizer = Detokenizer(tokenizer, prompt=as_bytes)
    assert detokenizer.pending == b"" and detokenizer.push(tokenizer.encode("x")[0]) == "x"


def test_byte_fallback_tokens_build_characters() -> None:
    tokenizer = Tokenizer.from_metadata(sentencepiece([("▁hi", -1.0)], control=["<end_of_turn>"]))
    detokenizer = Detokenizer(tokenizer)
    tokens = [tokenizer.token_id("▁hi"), *(3 + byte for byte in "你".encode()), tokenizer.token_id("<end_of_turn>")]
    assert [detokenizer.push(token) for token in tokens if token is not None] == [" hi", "", "", "你", ""]
