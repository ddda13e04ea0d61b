"""The config from metadata: what is read, and which contradictions are refused with the field's name."""

from __future__ import annotations

from typing import Any

import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf import Metadata
from engine.model.config import read_config

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "llama.block_count": 2,
    "llama.context_length": 512,
    "llama.embedding_length": 64,
    "llama.feed_forward_length": 96,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
}


def config(**changes: Any) -> Any:
    """The config of ``LLAMA`` with some keys set (``__`` stands for a dot) or, with None, removed."""
    values = LLAMA | {f"llama.{key.replace('__', '.')}": value for key, value in changes.items()}
    return read_config(Metadata({key: value for key, value in values.items() if value is not None}), 260)


def test_defaults() -> None:
    c = config()
    assert (c.head_size, c.q_width, c.kv_width, c.rope.rotated, c.rope.base) == (16, 64, 32, 16, 10_000.0)
    assert (c.window, c.experts, c.attention_softcap, c.name) == (0, 0, 0.0, "llama")


def test_heads_may_be_wider_than_the_model() -> None:
    c = config(attention__key_length=32, attention__value_length=32)
    assert (c.head_size, c.q_width) == (32, 128)


def test_arrays_of_equal_numbers_count_as_one() -> None:
    assert config(feed_forward_length=[96, 96], attention__head_count_kv=[2, 2]).n_ff == 96


def test_kv_heads_default_to_heads() -> None:
    assert config(attention__head_count_kv=None).n_kv_heads == 4


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"block_count": 0}, "llama.block_count"),
        ({"block_count": 1 << 40}, "llama.block_count"),
        ({"block_count": None}, "llama.block_count"),
        ({"context_length": -1}, "llama.context_length"),
        ({"embedding_length": "64"}, "llama.embedding_length"),
        ({"embedding_length": 65}, "llama.attention.key_length"),
        ({"attention__head_count": 0}, "llama.attention.head_count"),
        ({"attention__head_count_kv": 3}, "llama.attention.head_count_kv"),
        ({"attention__layer_norm_rms_epsilon": float("nan")}, "llama.attention.layer_norm_rms_epsilon"),
        ({"attention__layer_norm_rms_epsilon": None}, "llama.attention.layer_norm_rms_epsilon"),
        ({"rope__dimension_count": 15}, "llama.rope.dimension_count"),
        ({"rope__dimension_count": 18}, "llama.rope.dimension_count"),
        ({"rope__freq_base": float("inf")}, "llama.rope.freq_base"),
        ({"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0}, "llama.rope.scaling.original_context_length"),
        ({"expert_count": 4}, "llama.expert_used_count"),
        ({"expert_count": 4, "expert_used_count": 5}, "llama.expert_used_count"),
        ({"vocab_size": 261}, "llama.vocab_size"),
        ({"attention__head_count_kv": [2, 2, 2]}, "llama.attention.head_count_kv"),
    ],
)
def test_refused(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        config(**changes)
    assert caught.value.field == field
    assert field in str(caught.value)


def test_vocabulary_that_contradicts_the_embeddings() -> None:
    with pytest.raises(ModelFileError, match="260 rows") as caught:
        read_config(Metadata(LLAMA | {"tokenizer.ggml.tokens": ["a", "b"]}), 260)
    assert caught.value.field == "tokenizer.ggml.tokens"


@pytest.mark.parametrize(
    "changes",
    [
        {"attention__key_length": 32, "attention__value_length": 16},
        {"feed_forward_length": [96, 128]},
        {"rope__scaling__type": "spiral"},
        {"attention__sliding_window_pattern": [True, True]},
    ],
)
def test_unsupported(changes: dict[str, Any]) -> None:
    if "attention__sliding_window_pattern" in changes:
        changes = {"block_count": 4, "attention__sliding_window_pattern": [True, False, False, True]}
    with pytest.raises(UnsupportedModelError):
        config(**changes)


def test_window_pattern_as_flags() -> None:
    c = config(block_count=6, attention__sliding_window_pattern=[True, True, False, True, True, False])
    assert c.window_pattern == 3


def test_no_architecture() -> None:
    with pytest.raises(ModelFileError) as caught:
        read_config(Metadata({}), 260)
    assert caught.value.field == "general.architecture"
