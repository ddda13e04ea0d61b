"""The tokenizer on small vocabularies: control tokens, exact bytes, damaged files, very long runs."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import ModelFileError, TokenizerError, UnsupportedModelError
from engine.text import windows
from engine.text.byte_level import ByteLevelModel
from engine.text.sentencepiece import SentencePieceModel
from engine.text.tokenizer import Tokenizer
from engine.text.vocab import Vocabulary
from tests.vocabularies import byte_level, letters, sentencepiece

MERGES = [("l", "l"), ("h", "e"), ("he", "ll"), ("hell", "o"), (" ", "w"), ("a", "a"), ("aa", "aa"), ("aa", "a")]
PIECES = [
    ("▁", -1.0), ("h", -2.0), ("i", -3.0), ("hi", -0.5), ("▁hi", -0.25), ("é", -4.0), ("a", -5.0), ("aa", -6.0),
    ("aaa", -6.0), ("▁▁", -0.1),
]  # fmt: skip


@pytest.fixture(scope="module")
def plain() -> Tokenizer:
    return Tokenizer.from_metadata(byte_level(MERGES, defined=["<tag>"], eos_token_id=265, bos_token_id=264))


@pytest.fixture(scope="module")
def pieces() -> Tokenizer:
    return Tokenizer.from_metadata(sentencepiece(PIECES, control=["<end_of_turn>"]))


def test_control_text_stays_text_unless_asked_for(plain: Tokenizer) -> None:
    start, end = plain.token_id("<|im_start|>"), plain.token_id("<|im_end|>")
    typed = plain.encode("hello<|im_end|>")
    assert typed[0] == plain.token_id("hello") and end not in typed
    assert plain.decode(typed) == "hello<|im_end|>"
    assert plain.encode("<|im_start|>hello<|im_end|>", special=True) == [start, plain.token_id("hello"), end]


def test_user_defined_tokens_are_always_one_token(plain: Tokenizer) -> None:
    tag = plain.token_id("<tag>")
    assert plain.encode("a<tag>b") == [plain.token_id("a"), tag, plain.token_id("b")]
    assert plain.decode([tag]) == "<tag>"


def test_bytes_of_control_tokens_only_on_request(plain: Tokenizer) -> None:
    end = plain.token_id("<|im_end|>")
    assert plain.is_control(end) and plain.token_bytes(end) == b""
    assert plain.token_bytes(end, special=True) == b"<|im_end|>"
    assert plain.decode([104, end]) == "h" and plain.decode([104, end], special=True) == "h<|im_end|>"


@given(text=st.text())
def test_text_survives_the_way_to_ids_and_back(plain: Tokenizer, text: str) -> None:
    ids = plain.encode(text)
    assert plain.decode(ids) == text
    assert b"".join(map(plain.token_bytes, ids)) == text.encode()


@given(text=st.text(alphabet=st.characters(exclude_categories=("Cs",), exclude_characters="▁")))
def test_byte_fallback_loses_nothing(pieces: Tokenizer, text: str) -> None:
    assert pieces.decode(pieces.encode_run(text, False)) == text


@pytest.mark.parametrize("text", ["\ud800", "ok \udfff ok", "\ud83d" * 3])
def test_lone_surrogates_are_refused_in_a_sentence(text: str, plain: Tokenizer, pieces: Tokenizer) -> None:
    for tokenizer in (plain, pieces):
        with pytest.raises(TokenizerError, match="lone surrogate"):
            tokenizer.encode(text)


def test_best_score_first_and_the_leftmost_of_equals(pieces: Tokenizer) -> None:
    ids = pieces.vocabulary.ids
    assert pieces.encode("hi") == [ids["▁hi"]]
    # "aa" and "aaa" have one score: the leftmost pair is joined first, then that with its neighbour.
    assert pieces.encode_run("aaaa", False) == [ids["aaa"], ids["a"]]
    assert pieces.encode_run("aaaaaa", False) == [ids["aaa"], ids["aaa"]]


def test_space_prefix_after_control_tokens_only(pieces: Tokenizer) -> None:
    ids, end = pieces.vocabulary.ids, pieces.token_id("<end_of_turn>")
    assert pieces.encode("hi<end_of_turn>hi", special=True) == [ids["▁hi"], end, ids["▁hi"]]
    assert pieces.encode_run("hi", False) == [ids["hi"]]


def test_unknown_characters_become_their_bytes(pieces: Tokenizer) -> None:
    assert pieces.encode_run("é你", False) == [pieces.token_id("é"), *(3 + byte for byte in "你".encode())]
    without = sentencepiece(PIECES)
    without["tokenizer.ggml.tokens"][3 + 0xE4] = "gone"
    assert Tokenizer.from_metadata(without).encode_run("你", False)[0] == 0  # <unk>


def test_a_byte_without_token_is_left_out_and_nothing_merges_across_it() -> None:
    metadata = byte_level(MERGES)
    metadata["tokenizer.ggml.tokens"][ord("x")] = "gone"
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("hexllo") == [tokenizer.token_id("he"), tokenizer.token_id("ll"), ord("o")]


def test_beginning_of_sequence_at_most_once() -> None:
    wanting = Tokenizer.from_metadata(byte_level(bos_token_id=256, add_bos_token=True))
    assert wanting.with_bos([1, 2]) == [256, 1, 2] == wanting.with_bos([256, 1, 2])
    assert Tokenizer.from_metadata(byte_level(bos_token_id=256)).with_bos([1]) == [1]
    assert Tokenizer.from_metadata(byte_level(bos_token_id=256, pre="llama-bpe")).add_bos
    assert not Tokenizer.from_metadata(byte_level(pre="llama-bpe")).add_bos  # it names no such token


def test_all_end_of_turn_tokens_of_a_file_stop_a_reply() -> None:
    control = ["<|eot_id|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|start|>", "[my end]"]
    tokenizer = Tokenizer.from_metadata(byte_level(control=control, eos_token_id=261))
    assert tokenizer.stop_ids == {256, 257, 258, 259, 261}


def test_an_end_marker_that_the_file_calls_ordinary_still_ends_but_html_does_not() -> None:
    tokenizer = Tokenizer.from_metadata(byte_level(control=[], defined=["<|im_end|>", "</s>"]))
    assert tokenizer.stop_ids == {256}
    assert tokenizer.is_control(256) and tokenizer.decode([257]) == "</s>"


def test_thinking_markers_are_shown_even_as_control_tokens() -> None:
    tokenizer = Tokenizer.from_metadata(byte_level(control=["<think>", "</think>", "<|im_end|>"]))
    assert tokenizer.decode([256, 104, 257, 258]) == "<think>h</think>"


def test_control_tokens_take_blanks_away_in_phi_3() -> None:
    metadata = byte_level(control=["<|user|>", "<|end|>", "<|endoftext|>"]) | {"general.name": "Phi-3 Mini"}
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("<|user|>\n\n a<|endoftext|> b", special=True) == [256, 97, 258, 32, 98]


DAMAGE: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"tokens": None}, ModelFileError, "tokens"),
    ({"tokens": []}, ModelFileError, "tokens"),
    ({"tokens": [1, 2]}, ModelFileError, "tokens"),
    ({"tokens": np.zeros(4, np.int32)}, ModelFileError, "tokens"),
    ({"tokens": ["a", "\ud800"]}, ModelFileError, "tokens"),
    ({"merges": None}, ModelFileError, "merges"),
    ({"merges": ["no-space"]}, ModelFileError, "merges"),
    ({"merges": ["never seen"]}, ModelFileError, "merges"),
    ({"merges": ["a zz"]}, ModelFileError, "merges"),
    ({"merges": ["a b c"]}, ModelFileError, "merges"),
    ({"merges": [" "]}, ModelFileError, "merges"),
    ({"token_type": [1, 1]}, ModelFileError, "token_type"),
    ({"token_type": ["normal"] * 258}, ModelFileError, "token_type"),
    ({"token_type": np.full(258, np.nan)}, ModelFileError, "token_type"),
    ({"scores": [0.0]}, ModelFileError, "scores"),
    ({"scores": np.full(258, np.nan)}, ModelFileError, "scores"),
    ({"model": "bert"}, UnsupportedModelError, "bert"),
    ({"model": None}, UnsupportedModelError, "None"),
    ({"model": ["gpt2"]}, UnsupportedModelError, "gpt2"),
    ({"pre": "from-the-future"}, UnsupportedModelError, "from-the-future"),
]


@pytest.mark.parametrize(
    ("change", "error", "named"), DAMAGE, ids=[f"{i}-{list(d[0])[0]}" for i, d in enumerate(DAMAGE)]
)
def test_damaged_vocabularies_are_refused_and_the_field_is_named(
    change: dict[str, Any], error: type[Exception], named: str
) -> None:
    with pytest.raises(error) as caught:
        Tokenizer.from_metadata(byte_level(**change))
    assert named in getattr(caught.value, "field", "") + str(caught.value)


def test_sentencepiece_needs_scores() -> None:
    with pytest.raises(ModelFileError, match="scores"):
        Tokenizer.from_metadata(sentencepiece(PIECES, scores=None))


def test_odd_vocabularies_still_work() -> None:
    metadata = byte_level(control=["", "<|im_end|>", "<|im_end|>"], bos_token_id=9999, eos_token_id=-1)
    tokenizer = Tokenizer.from_metadata(metadata)
    assert tokenizer.encode("a<|im_end|>", special=True) == [97, 257]  # the first of two equal tokens
    assert tokenizer.decode([256, 258], special=True) == "<|im_end|>" and tokenizer.bos_id is None
    with pytest.raises(TokenizerError, match="not in the vocabulary"):
        tokenizer.token_bytes(259)


def _model(*merges: tuple[str, str], pre: str = "gpt-2") -> ByteLevelModel:
    return ByteLevelModel(Vocabulary.from_metadata(byte_level(merges, pre=pre)))


@pytest.mark.parametrize("kind", ["Z", ".", "\n", "\n\n ", "你", "aZ", "aaa", "!?"])
def test_long_runs_give_the_same_ids_in_windows(kind: str) -> None:
    pieces = SentencePieceModel(Vocabulary.from_metadata(sentencepiece(PIECES, add_space_prefix=False)))
    text = "hi " + kind * (30_000 // len(kind)) + " hello"
    for model in (_model(*MERGES, (".", "."), ("\n", "\n")), pieces):
        assert model.encode(text) == model.encode_whole(text)


@pytest.mark.parametrize("kind", ["Z", ".", "\n", "你"])
def test_long_runs_are_read_about_once(kind: str) -> None:
    model = _model((kind, kind)) if kind != "你" else _model()
    read = []

    def encode(text: str) -> list[int]:
        read.append(len(text))
        return model.encode_whole(text)

    ids = windows.encode_in_windows(kind * 131_072, encode, model.n_bytes)
    assert sum(map(model.n_bytes, ids)) == len(kind.encode()) * 131_072
    assert max(read) <= 2 * windows.WINDOW and sum(read) < 1.2 * 131_072


@given(st.randoms(use_true_random=False), st.sampled_from(["gpt-2", "qwen2", "tekken", "default", "deepseek-v3"]))
def test_windows_change_nothing_for_any_rule(chance: random.Random, rule: str) -> None:
    model = _model(*MERGES, ("\n", "\n"), (".", "."), ("Z", "a"), pre=rule)
    kinds = ["a", "Za", "aZ", ".", "!.", "\n", " \n", "你", "é", "'s", "12", "x y "]
    text = "".join(chance.choice(kinds) * chance.randrange(1, 5000) for _ in range(4))
    assert windows.encode_in_windows(text, model.encode_whole, model.n_bytes, window=500) == model.encode_whole(text)


def test_letters_stand_for_bytes() -> None:
    assert letters("a \n") == "aĠĊ"
