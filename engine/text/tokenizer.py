"""A model's tokenizer, built from the vocabulary in its file alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Protocol

from engine.errors import TokenizerError
from engine.text.byte_level import ByteLevelModel
from engine.text.matcher import TokenMatcher
from engine.text.sentencepiece import SentencePieceModel
from engine.text.thinking import MARKER_NAMES
from engine.text.vocab import CONTROL, END_NAMES, FILL_END_NAMES, UNKNOWN, Vocabulary


class _Model(Protocol):
    """What the two families share."""

    add_bos: bool
    add_space_prefix: bool

    def encode(self, text: str, *, after_special: bool = True) -> list[int]: ...
    def token_bytes(self, token: int) -> bytes: ...
    def n_bytes(self, token: int) -> int: ...


class Tokenizer:
    """Text to token ids and back. Safe to use from several threads at once.

    Control tokens (``<|im_end|>``) are recognised in text only with ``special=True``; user-defined ones always are.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        model: _Model = (
            ByteLevelModel(vocabulary) if vocabulary.kind == "byte_level" else SentencePieceModel(vocabulary)
        )
        self._model = model
        self.n_vocab = len(vocabulary)
        self.add_space_prefix = model.add_space_prefix
        self.bos_id = vocabulary.special.get("bos")
        self.eos_id = vocabulary.special.get("eos")
        self.add_bos = vocabulary.flags.get("add_bos", model.add_bos) and self.bos_id is not None
        self.stop_ids = _stop_ids(vocabulary)
        self._hidden = _hidden_ids(vocabulary, self.stop_ids)
        self._bytes: dict[int, bytes] = {}
        self._control, defined = vocabulary.recognised()
        self._user_defined = TokenMatcher(defined, self.strips_after)

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Build from a model file's metadata. Errors: ``ModelFileError``, ``UnsupportedModelError``."""
        return cls(Vocabulary.from_metadata(metadata))

    @cached_property
    def control_matcher(self) -> TokenMatcher:
        """Finds control tokens in a template's text, and leaves all else of it as it is."""
        return TokenMatcher(self._control)

    @cached_property
    def _all_matcher(self) -> TokenMatcher:
        return TokenMatcher({**self._control, **self._user_defined.tokens}, self.strips_after)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """Ids of ``text`` without a beginning-of-sequence token. Errors: ``TokenizerError`` for lone surrogates."""
        _check(text)
        pieces = (self._all_matcher if special else self._user_defined).split(text)
        return [token for token in self._encode_pieces(pieces, True) if token < self.n_vocab]

    def encode_run(self, text: str, after_special: bool) -> list[int]:
        """Ids of plain text that follows other tokens (``after_special``: control tokens, or nothing).

        An id at or above ``n_vocab`` stands for a byte that has no token: it must be dropped, and is one byte long.
        """
        _check(text)
        return self._encode_pieces(self._user_defined.split(text), after_special)

    def with_bos(self, ids: list[int]) -> list[int]:
        """``ids`` with exactly one beginning-of-sequence token in front where the model wants one."""
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            return [self.bos_id, *ids]
        return ids

    def token_bytes(self, token: int, *, special: bool = False) -> bytes:
        """The exact bytes that ``token`` adds to a text; a control token adds none unless ``special``."""
        if not special and token in self._hidden:
            return b""
        known = self._bytes.get(token)
        if known is None:
            if not 0 <= token < self.n_vocab:
                raise TokenizerError(f"Token {token} is not in the vocabulary of {self.n_vocab} tokens.")
            known = self._bytes[token] = self._model.token_bytes(token)
        return known

    def n_bytes(self, token: int) -> int:
        """Bytes of text that an id of ``encode_run`` stands for."""
        return self._model.n_bytes(token)

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """The text of ``ids``; bytes that are not UTF-8 become U+FFFD."""
        return b"".join(self.token_bytes(token, special=special) for token in ids).decode(errors="replace")

    def is_control(self, token: int) -> bool:
        """Whether ``token`` adds no text to a reply."""
        return token in self._hidden

    def token_id(self, text: str) -> int | None:
        """The id of the token whose text in the file is ``text``, if there is one."""
        return self.vocabulary.ids.get(text)

    def strips_after(self, token: int) -> bool:
        """Whether blanks after this token are not part of a text (Phi-3's control tokens take them away)."""
        vocabulary = self.vocabulary
        return vocabulary.strips_after_control and vocabulary.tokens[token] not in ("<unk>", "<s>", "<|endoftext|>")

    def _encode_pieces(self, pieces: list[str | int], after_special: bool) -> list[int]:
        ids: list[int] = []
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
                after_special = True
                continue
            ids += self._model.encode(piece, after_special=after_special)
            after_special = False
        return ids


def _check(text: str) -> None:
    """Refuse what is not text: half of a character has no bytes."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            "The text holds half of a character (a lone surrogate) and cannot be read. Remove it and try again."
        ) from error


def _stop_ids(vocabulary: Vocabulary) -> frozenset[int]:
    """Every token of the file that ends a reply."""
    stops = {vocabulary.special[name] for name in ("eos", "eot", "eom") if name in vocabulary.special}
    for name in END_NAMES | FILL_END_NAMES:
        token = vocabulary.ids.get(name)
        # "</s>" is also the end of struck-through text in HTML: there the file calls it an ordinary token.
        if token is not None and (name != "</s>" or vocabulary.types[token] == CONTROL):
            stops.add(token)
    names = {vocabulary.tokens[token] for token in stops}
    if "<|return|>" in names and "<|call|>" in names or "<|flush|>" in names and "<|calls|>" in names:
        stops.discard(vocabulary.ids.get("<|end|>", -1))
    return frozenset(stops)


def _hidden_ids(vocabulary: Vocabulary, stops: frozenset[int]) -> frozenset[int]:
    hidden = {token for token, kind in enumerate(vocabulary.types) if kind in (CONTROL, UNKNOWN)} | stops
    # Markers around reasoning are shown even where the file calls them control tokens, so that it can be folded.
    shown = {vocabulary.ids[name] for name in MARKER_NAMES if name in vocabulary.ids}
    return frozenset(hidden - (shown - stops))
