"""A model's vocabulary as its file states it, checked before anything relies on it.

Token types are those of the GGUF format (``gguf.TokenType``). Two views of "control" exist on purpose: what the file
says decides what is shown, while a list of well-known names decides what is recognised in a template's text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from engine.errors import ModelFileError, UnsupportedModelError

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
"""Token types of the GGUF format."""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


END_NAMES = _names(
    "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> </s> <|eom_id|> "
    "<EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> <|tool_response> <｜end▁of▁sentence｜> "
    "[e~["
)
"""Tokens with these names end a reply, whatever type the file gives them (as llama.cpp has it)."""

FILL_NAMES = _names(
    "<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|> "
    "<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|> "
    "<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>"
)
"""Fill-in-the-middle markers: control tokens that do not end a reply."""

FILL_END_NAMES = _names(
    "<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD] <|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame> <|file_sep|>"
)
"""Fill-in-the-middle markers that mean "this file is finished": they end a reply too."""

CHANNEL_NAMES = frozenset(("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"))
"""Markers inside a reply that are text to whoever reads it, though some files call them control tokens."""

_PREFIX = "tokenizer.ggml."
_KINDS: dict[str, Literal["byte_level", "sentencepiece"]] = {"gpt2": "byte_level", "llama": "sentencepiece"}


@dataclass(frozen=True, slots=True, eq=False)
class Vocabulary:
    """Tokens with their types and scores. ``ids`` maps a text to its first id; an empty text has none."""

    kind: Literal["byte_level", "sentencepiece"]
    pre: str
    tokens: Sequence[str]
    types: Sequence[int]
    scores: Sequence[float]
    merges: Sequence[str]
    ids: Mapping[str, int]
    special: Mapping[str, int]
    """``bos``, ``eos``, ``eot``, ``eom``, ``unk``: only those that the file names and the vocabulary holds."""
    flags: Mapping[str, bool]
    """``add_bos``, ``add_space_prefix``: only those that the file states."""
    strips_after_control: bool = False

    def __len__(self) -> int:
        return len(self.tokens)

    def scan_type(self, token: int) -> int:
        """Type by which ``token`` is recognised in text: a well-known name counts more than the file's type."""
        name = self.tokens[token]
        if name in CHANNEL_NAMES:
            return USER_DEFINED
        if name in END_NAMES or name in FILL_NAMES or name in FILL_END_NAMES:
            return CONTROL
        return self.types[token]

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Vocabulary:
        """Read and check the ``tokenizer.ggml.*`` values. Errors: ``ModelFileError``, ``UnsupportedModelError``."""
        model = metadata.get(_PREFIX + "model")
        if not isinstance(model, str) or model not in _KINDS:
            raise UnsupportedModelError(
                f"This model's tokenizer is of the kind {model!r}, which this engine does not know. "
                "Choose a model with a gpt2 or llama tokenizer."
            )
        tokens = _strings(metadata, "tokens", required=True)
        kind = _KINDS[model]
        scores = _numbers(metadata, "scores", len(tokens), default=0.0, required=kind == "sentencepiece")
        if any(math.isnan(score) for score in scores):
            raise ModelFileError("A score of the tokenizer is not a number.", field=_PREFIX + "scores")
        ids: dict[str, int] = {}
        for index, text in enumerate(tokens):
            if text:
                ids.setdefault(text, index)
        name = str(metadata.get("general.name", "")).lower()
        return cls(
            kind=kind,
            pre=str(metadata.get(_PREFIX + "pre") or "default"),
            tokens=tokens,
            types=[int(t) for t in _numbers(metadata, "token_type", len(tokens), default=NORMAL)],
            scores=scores,
            merges=_strings(metadata, "merges", required=kind == "byte_level") if kind == "byte_level" else (),
            ids=ids,
            special=_special_ids(metadata, len(tokens)),
            flags=_flags(metadata),
            strips_after_control="phi-3" in name or "phi3" in name,
        )


def _strings(metadata: Mapping[str, Any], key: str, *, required: bool) -> Sequence[str]:
    """A list of texts, each valid Unicode (a lone surrogate would stop the tokenizer library)."""
    values = metadata.get(_PREFIX + key)
    field = _PREFIX + key
    if values is None and not required:
        return ()
    if not isinstance(values, (list, tuple)) or not all(isinstance(value, str) for value in values):
        raise ModelFileError(f"The model file has no usable list {field}.", field=field)
    if required and key == "tokens" and not values:
        raise ModelFileError("The model file's vocabulary is empty.", field=field)
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        raise ModelFileError(f"An entry of {field} is not valid text.", field=field) from error
    return values


def _numbers(
    metadata: Mapping[str, Any], key: str, count: int, *, default: float, required: bool = False
) -> Sequence[float]:
    """One number per token, or the default for each where the file has none."""
    field = _PREFIX + key
    values = metadata.get(field)
    if values is None and not required:
        return [default] * count
    if values is not None and hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, (list, tuple)) or len(values) < count:
        n = len(values) if isinstance(values, (list, tuple)) else "no"
        raise ModelFileError(f"The model file has {n} values in {field} for {count} tokens.", field=field)
    if not all(isinstance(value, (int, float)) for value in values):
        raise ModelFileError(f"A value of {field} is not a number.", field=field)
    return values[:count]


def _special_ids(metadata: Mapping[str, Any], count: int) -> dict[str, int]:
    names = {"bos": "bos", "eos": "eos", "eot": "eot", "eom": "eom", "unknown": "unk"}
    found = {}
    for key, name in names.items():
        value = metadata.get(f"{_PREFIX}{key}_token_id")
        if isinstance(value, int) and 0 <= value < count:
            found[name] = value
    return found


def _flags(metadata: Mapping[str, Any]) -> dict[str, bool]:
    keys = {"add_bos_token": "add_bos", "add_space_prefix": "add_space_prefix"}
    return {name: bool(metadata[_PREFIX + key]) for key, name in keys.items() if _PREFIX + key in metadata}
