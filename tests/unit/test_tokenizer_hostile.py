"""Vocabularies mutated at random: each is refused with a typed error, or tokenizes, streams and chats."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.port import Turn
from engine.text.chat import ChatRenderer
from engine.text.stop import TextStream
from engine.text.tokenizer import Tokenizer
from tests.vocabularies import byte_level, sentencepiece

JUNK: list[Any] = [
    None, 0, -1, 1 << 40, True, 1.5, float("nan"), "", "x", "\0", "▁", [], ["a"], ["a", "a"], [1], np.zeros(3),
    np.zeros(0), np.array(["a"]), {}, b"x", ["\ud800"], ["a b"], ["  "], [" a"], {3: 4}, np.array([True]),
]  # fmt: skip
ITEMS: list[Any] = [*JUNK, "h", "ĠĠ", "<|im_end|>", "h e", "<0x41>", "<think>", 3, 4, 6, 99, float("inf")]
KEYS = [
    "model", "pre", "tokens", "token_type", "scores", "merges", "bos_token_id", "eos_token_id", "unknown_token_id",
    "add_bos_token", "add_space_prefix", "eot_token_id",
]  # fmt: skip


def mutated(chance: random.Random) -> dict[str, Any]:
    if chance.random() < 0.5:
        metadata = byte_level([("l", "l"), ("h", "e"), ("he", "ll")], bos_token_id=256, eos_token_id=257)
    else:
        pieces = [("▁", -1.0), ("hi", -2.0), ("h", -3.0), ("i", -4.0)]
        metadata = sentencepiece(pieces, control=["<end_of_turn>"])
    metadata["general.name"] = chance.choice(["phi-3", 3, None, "x"])
    for _ in range(chance.randrange(1, 4)):
        key = "tokenizer.ggml." + chance.choice(KEYS)
        value, kind = metadata.get(key), chance.random()
        if kind < 0.4 or not isinstance(value, list) or not value:
            metadata[key] = chance.choice(JUNK)
        elif kind < 0.6:
            metadata[key] = value[: chance.randrange(len(value) + 1)]
        else:
            metadata[key] = chance.sample(value, len(value))
            metadata[key][chance.randrange(len(value))] = chance.choice(ITEMS)
    return metadata


def use(tokenizer: Tokenizer) -> None:
    for special in (False, True):
        ids = tokenizer.encode("hello <|im_end|>hi 😀\n", special=special)
        assert all(0 <= token < tokenizer.n_vocab for token in ids)
    tokenizer.decode(range(tokenizer.n_vocab), special=True)
    stream = TextStream(tokenizer, ["lo"])
    shown = "".join(stream.push(token)[0] for token in ids) + stream.flush()
    assert "lo" not in shown and stream.n_kept <= len(ids)
    renderer = ChatRenderer(tokenizer)
    rendered = renderer.render_prompt([Turn("user", "hi"), Turn("assistant", "h", (5,)), Turn("user", "<|im_end|>x")])
    assert sum(span.end - span.start for span in rendered.spans) == len(rendered.ids)
    assert renderer.stop_ids >= tokenizer.stop_ids


@pytest.mark.parametrize("seed", range(4))
def test_mutated_vocabularies(seed: int) -> None:
    chance = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(250):
        metadata = mutated(chance)
        try:
            tokenizer = Tokenizer.from_metadata(metadata)
        except (ModelFileError, UnsupportedModelError) as error:
            assert str(error).endswith(".") and (
                not isinstance(error, ModelFileError) or "tokenizer.ggml" in error.field
            )
            outcomes[type(error).__name__] += 1
            continue
        use(tokenizer)
        outcomes["used"] += 1
    assert min(outcomes.values()) > 20 and len(outcomes) == 3
