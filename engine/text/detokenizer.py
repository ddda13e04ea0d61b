"""Tokens to text while they arrive: a piece of text never holds half a character.

A character whose bytes are not all there yet waits for them. U+FFFD appears only for bytes that cannot become a
character any more; a tail that is merely unfinished when the reply is cut is left out (its tokens keep its bytes, and
a reply that goes on from them shows the whole character: see ``pending``).
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from typing import Protocol

_DECODER = codecs.getincrementaldecoder("utf-8")


class BytesOfTokens(Protocol):
    """What is needed of a tokenizer."""

    def token_bytes(self, token: int) -> bytes: ...


class Detokenizer:
    """Incremental UTF-8 over one stream of tokens.

    ``prompt`` are the tokens before the first one: if they end within a character, the stream goes on with it.
    """

    def __init__(self, tokenizer: BytesOfTokens, prompt: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        self._decoder = _DECODER(errors="replace")
        if prompt:
            # A character has four bytes at most, so its first byte lies in one of the last three tokens.
            self._decoder.decode(b"".join(tokenizer.token_bytes(token) for token in prompt[-3:]))

    @property
    def pending(self) -> bytes:
        """Bytes of an unfinished character, at most three."""
        return self._decoder.getstate()[0]

    def push(self, token: int) -> str:
        """The text that became certain with ``token``."""
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def decode(self, tokens: Sequence[int]) -> str:
        """As ``push`` for each of ``tokens``, at once."""
        return self._decoder.decode(b"".join(map(self._tokenizer.token_bytes, tokens)))

    def flush(self) -> str:
        """End of the stream: an unfinished character is dropped, so nothing is left to show."""
        self._decoder.reset()
        return ""
