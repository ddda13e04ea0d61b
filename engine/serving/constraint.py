"""JSON replies: a grammar that masks the logits, by the llguidance library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from engine.errors import EngineError
from engine.serving.problems import ApiError, bad

_ON_ONE_LINE: Any = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""JSON as most models write it. With blanks wherever JSON allows them, a small model may write nothing else."""


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: Any, stop_ids: list[int]) -> None:
        self._tokenizer = tokenizer
        self.eos_token_id = stop_ids[0] if stop_ids else tokenizer.eos_id
        self.bos_token_id = None
        hidden = [token for token in range(tokenizer.n_vocab) if tokenizer.is_control(token)]
        self.special_token_ids = hidden
        self.tokens = [tokenizer.token_bytes(token) for token in range(tokenizer.n_vocab)]
        for token in hidden:
            self.tokens[token] = b"\xff<control %d>" % token

    def __call__(self, text: str) -> list[int]:
        if isinstance(text, bytes):
            raise TypeError("this tokenizer takes strings")
        ids: list[int] = self._tokenizer.encode(text)
        return ids


class Grammars:
    """Builds constraints for one loaded model; the vocabulary is prepared once."""

    def __init__(self, tokenizer: Any, stop_ids: Iterable[int], n_vocab: int) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        self._n_vocab = n_vocab
        self._stops = sorted(stop_ids)
        wrapper = TokenizerWrapper(_Vocabulary(tokenizer, self._stops))
        self._tokenizer = LLTokenizer(wrapper, n_vocab=tokenizer.n_vocab, eos_token=self._stops or None)

    def json(self, schema: dict[str, Any]) -> JsonConstraint:
        """A constraint for one reply; 400 where the schema is not understood."""
        from llguidance import LLMatcher

        try:
            grammar = LLMatcher.grammar_from_json_schema(schema, overrides=_ON_ONE_LINE)
        except ValueError as error:
            raise _not_understood(str(error)) from error
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0)
        if matcher.is_error():
            raise _not_understood(matcher.get_error())
        return JsonConstraint(matcher, self._n_vocab, self._stops)


def _not_understood(reason: str) -> ApiError:
    return bad("response_format", f"the schema is not understood: {' '.join(reason.split())}"[:400])


class JsonConstraint:
    """``engine.scheduling.request.Constraint`` over an llguidance matcher."""

    def __init__(self, matcher: Any, n_vocab: int, stop_ids: list[int]) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._stop_ids = stop_ids

    def mask(self) -> np.ndarray:
        """Allowed tokens now: bool[n_vocab]. Once the JSON is complete, the stop tokens alone."""
        if self._matcher.is_error():
            raise EngineError(f"The schema could not be followed: {self._matcher.get_error()[:300]}")
        allowed = np.zeros(self._n_vocab, dtype=bool)
        if self._matcher.is_stopped():
            allowed[self._stop_ids] = True
            return allowed
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        known = np.unpackbits(bits, count=min(self._n_vocab, 8 * bits.size), bitorder="little")
        allowed[: known.size] = known
        return allowed

    def accept(self, token: int) -> None:
        """Advance by the token that was chosen."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
