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

CONTROL_NAMES = END_NAMES | FILL_NAMES | FILL_END_NAMES
"""Recognised as control tokens whatever type the file gives them."""

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

    def recognised(self) -> tuple[dict[str, int], dict[str, int]]:
        """Texts that are whole tokens: control tokens (in a template's text) and user-defined ones (in any text).

        A well-known name counts more than the type in the file.
        """
        control: dict[str, int] = {}
        defined: dict[str, int] = {}
        special = (UNKNOWN, CONTROL, USER_DEFINED)
        for token in [token for token, kind in enumerate(self.types) if kind in special]:
            text = self.tokens[token]
            if text:
                (defined if self.types[token] == USER_DEFINED else control).setdefault(text, token)
        for names, texts, others in ((CONTROL_NAMES, control, defined), (CHANNEL_NAMES, defined, control)):
            for text in names & self.ids.keys():
                texts.setdefault(text, others.pop(text, self.ids[text]))
        return control, defined

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Vocabulary:
        """Read and check the ``tokenizer.ggml.*`` values. Errors: ``ModelFileError``, ``UnsupportedModelError``."""
        model = metadata.get(_PREFIX + "model")
        if not isinstance(model, str) or model not in _KINDS:
            raise UnsupportedModelError(
                f"This model's tokenizer is of the kind {str(model)[:40]!r}, which this engine does not know. "
                "Choose a model with a gpt2 or llama tokenizer."
            )
        tokens = _strings(metadata, "tokens", required=True)
        kind = _KINDS[model]
        scores = _numbers(metadata, "scores", len(tokens), default=0.0, required=kind == "sentencepiece")
        ids = dict(zip(reversed(tokens), range(len(tokens) - 1, -1, -1), strict=True))
        ids.pop("", None)
        name = metadata.get("general.name")
        name = name.lower() if isinstance(name, str) else ""
        return cls(
            kind=kind,
            pre=_rule(metadata),
            tokens=tokens,
            types=list(map(int, _numbers(metadata, "token_type", len(tokens), default=NORMAL))),
            scores=scores,
            merges=_strings(metadata, "merges", required=kind == "byte_level") if kind == "byte_level" else (),
            ids=ids,
            special=_special_ids(metadata, len(tokens)),
            flags=_flags(metadata),
            strips_after_control="phi-3" in name or "phi3" in name,
        )


def unusable(key: str, what: str) -> ModelFileError:
    """The error for ``tokenizer.ggml.<key>``: ``what`` is wrong with it."""
    advice = "Download the model again or choose another one."
    return ModelFileError(f"The model file's {_PREFIX}{key} {what}. {advice}", field=_PREFIX + key)


def _rule(metadata: Mapping[str, Any]) -> str:
    """Name of the rule for cutting words; files from before there were several have none."""
    value = metadata.get(_PREFIX + "pre")
    if value is not None and not isinstance(value, str):
        raise unusable("pre", "is not a name")
    return value or "default"


def _strings(metadata: Mapping[str, Any], key: str, *, required: bool) -> Sequence[str]:
    """A list of texts, each valid Unicode (a lone surrogate would stop the tokenizer library)."""
    values = metadata.get(_PREFIX + key)
    if values is None and not required:
        return ()
    if not isinstance(values, (list, tuple)) or not set(map(type, values)) <= {str}:
        raise unusable(key, "is not a list of texts")
    if required and key == "tokens" and not values:
        raise unusable(key, "is empty")
    try:
        "".join(values).encode()
    except UnicodeEncodeError as error:
        raise unusable(key, "has an entry that is no text") from error
    return values


def _numbers(
    metadata: Mapping[str, Any], key: str, count: int, *, default: float, required: bool = False
) -> Sequence[float]:
    """One number per token, or the default for each where the file has none."""
    values = metadata.get(_PREFIX + key)
    if values is None and not required:
        return [default] * count
    if values is not None and hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, (list, tuple)) or len(values) < count:
        n = len(values) if isinstance(values, (list, tuple)) else "no"
        raise unusable(key, f"has {n} values for {count} tokens")
    values = values[:count]
    kinds = set(map(type, values))
    if not kinds <= {int, type(default)} or (float in kinds and any(map(math.isnan, values))):
        raise unusable(key, "has a value that is no number")
    return values


def _special_ids(metadata: Mapping[str, Any], count: int) -> dict[str, int]:
    names = {"bos": "bos", "eos": "eos", "eot": "eot", "eom": "eom", "unknown": "unk"}
    found = {}
    for key, name in names.items():
        value = metadata.get(f"{_PREFIX}{key}_token_id")
        if isinstance(value, int) and 0 <= value < count:
            found[name] = value
    return found


def _flags(metadata: Mapping[str, Any]) -> dict[str, bool]:
    flags = {}
    for key, name in (("add_bos_token", "add_bos"), ("add_space_prefix", "add_space_prefix")):
        value = metadata.get(_PREFIX + key)
        if value is None:
            continue
        if not isinstance(value, int):
            raise unusable(key, "is neither true nor false")
        flags[name] = bool(value)
    return flags
