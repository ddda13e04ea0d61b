"""Byte-level byte-pair encoding: a byte is a visible character, words are cut by patterns, then pairs are merged."""

from __future__ import annotations

from tokenizers import Regex
from tokenizers import Tokenizer as Library
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split

from engine.text.pretokenizers import pretokenizer
from engine.text.vocab import CONTROL, UNKNOWN, USER_DEFINED, Vocabulary, unusable
from engine.text.windows import WINDOW, encode_in_windows

_SPECIAL = (CONTROL, USER_DEFINED, UNKNOWN)
"""Types of tokens whose text stands in the file as it is."""


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte: printable Latin-1 stands for itself, the rest for U+0100 onwards."""
    kept = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    rest = [byte for byte in range(256) if byte not in kept]
    return {chr(byte): byte for byte in kept} | {chr(0x100 + i): byte for i, byte in enumerate(rest)}


class ByteLevelModel:
    """Text to ids and ids to bytes for vocabularies of the ``gpt2`` kind."""

    add_space_prefix = False

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        self._bytes = byte_alphabet()
        rule = pretokenizer(vocabulary.pre)
        self.add_bos = rule.add_bos
        ids = dict(vocabulary.ids)
        # Without an entry for each byte the library drops it and merges across the gap: these are dropped afterwards.
        for char in self._bytes:
            ids.setdefault(char, len(vocabulary) + len(ids))
        try:
            pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in vocabulary.merges)]
            model = BPE(ids, pairs, ignore_merges=rule.ignore_merges)
        except Exception as error:  # the library has no narrower type
            raise unusable("merges", f"does not fit its vocabulary ({str(error)[:80]})") from error
        self._lengths = {token: len(text) for text, token in ids.items()}
        for token in (token for token, kind in enumerate(vocabulary.types) if kind in _SPECIAL):
            self._lengths[token] = len(vocabulary.tokens[token].encode())
        self._library = Library(model)
        splits = [Split(Regex(pattern), behavior="isolated") for pattern in rule.patterns]
        self._library.pre_tokenizer = Sequence([*splits, ByteLevel(add_prefix_space=False, use_regex=False)])

    def encode(self, text: str, *, after_special: bool = True) -> list[int]:
        """Ids of plain text. Ids at or above the vocabulary's size stand for one byte that has no token each."""
        if len(text) <= WINDOW:
            return self.encode_whole(text)
        return encode_in_windows(text, self.encode_whole, self.n_bytes)

    def encode_whole(self, text: str) -> list[int]:
        """As ``encode``, at one go however long the text is."""
        # This call needs no offsets and lets other Python threads run; ``encode`` does neither.
        return self._library.encode_batch_fast([text], add_special_tokens=False)[0].ids

    def n_bytes(self, token: int) -> int:
        """Bytes of an id that ``encode`` gave."""
        return self._lengths[token]

    def token_bytes(self, token: int) -> bytes:
        """The exact bytes of one token, whatever its type."""
        text = self._vocabulary.tokens[token]
        if self._vocabulary.types[token] in _SPECIAL:
            return text.encode()
        known = self._bytes
        if all(char in known for char in text):
            return bytes([known[char] for char in text])
        return b"".join(bytes([known[char]]) if char in known else char.encode() for char in text)
