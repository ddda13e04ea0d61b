"""Small vocabularies as a model file would state them, for tests of text that need no model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from engine.text.byte_level import byte_alphabet
from engine.text.vocab import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED

_LETTERS = {byte: char for char, byte in byte_alphabet().items()}


def letters(text: str) -> str:
    """``text`` in the characters that stand for its bytes in a byte-level vocabulary."""
    return "".join(_LETTERS[byte] for byte in text.encode())


def byte_level(
    merges: Sequence[tuple[str, str]] = (),
    /,
    *,
    control: Sequence[str] = ("<|im_start|>", "<|im_end|>"),
    defined: Sequence[str] = (),
    **more: Any,
) -> dict[str, Any]:
    """All bytes (ids 0 to 255), one token per merge, then control tokens, then user-defined ones.

    ``more`` are further ``tokenizer.ggml.*`` values; ``None`` takes one away.
    """
    tokens = [_LETTERS[byte] for byte in range(256)]
    tokens += [letters(left + right) for left, right in merges]
    types = [NORMAL] * len(tokens) + [CONTROL] * len(control) + [USER_DEFINED] * len(defined)
    values = {
        "model": "gpt2",
        "pre": "gpt-2",
        "tokens": [*tokens, *control, *defined],
        "token_type": types,
        "merges": [f"{letters(left)} {letters(right)}" for left, right in merges],
    }
    return _metadata(values | more)


def sentencepiece(
    pieces: Sequence[tuple[str, float]], /, *, control: Sequence[str] = (), **more: Any
) -> dict[str, Any]:
    """``<unk>``, ``<s>``, ``</s>``, the 256 bytes (ids 3 to 258), the control tokens, then pieces with their scores."""
    fixed = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *control]
    types = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[CONTROL] * len(control), *[NORMAL] * len(pieces)]
    values = {
        "model": "llama",
        "tokens": [*fixed, *(piece for piece, _ in pieces)],
        "scores": [0.0] * len(fixed) + [score for _, score in pieces],
        "token_type": types,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "unknown_token_id": 0,
    }
    return _metadata(values | more)


def _metadata(values: dict[str, Any]) -> dict[str, Any]:
    return {f"tokenizer.ggml.{key}": value for key, value in values.items() if value is not None}
