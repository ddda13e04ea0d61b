"""JSON replies: a grammar that masks the logits, by the llguidance library."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import numpy as np

from engine.serving.problems import bad


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: Any, stop_ids: Iterable[int]) -> None:
        self._tokenizer = tokenizer
        stops = sorted(stop_ids)
        self.eos_token_id = stops[0] if stops else tokenizer.eos_id
        self.bos_token_id = None
        self.special_token_ids = [i for i in range(tokenizer.n_vocab) if tokenizer.is_control(i)]
        special = set(self.special_token_ids)
        self.tokens = [
            b"\xff" + str(i).encode() if i in special else tokenizer.token_bytes(i) for i in range(tokenizer.n_vocab)
        ]

    def __call__(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text)
        return ids


class Grammars:
    """Builds constraints for one loaded model; the vocabulary is prepared once."""

    def __init__(self, tokenizer: Any, stop_ids: Iterable[int], n_vocab: int) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        stops = sorted(stop_ids)
        self._n_vocab = n_vocab
        self._stops = stops
        wrapper = TokenizerWrapper(_Vocabulary(tokenizer, stops))
        self._tokenizer = LLTokenizer(wrapper, n_vocab=tokenizer.n_vocab, eos_token=stops or None)

    def json(self, schema: dict[str, Any]) -> JsonConstraint:
        """A constraint for one reply; 400 where the schema is not understood."""
        from llguidance import LLMatcher

        grammar = LLMatcher.grammar_from_json_schema(json.dumps(schema))
        problem = LLMatcher.validate_grammar(grammar, self._tokenizer)
        if problem:
            raise bad("response_format", f"the schema is not understood: {problem[:300]}")
        return JsonConstraint(LLMatcher(self._tokenizer, grammar), self._n_vocab, self._stops)


class JsonConstraint:
    """``engine.scheduling.request.Constraint`` over an llguidance matcher."""

    def __init__(self, matcher: Any, n_vocab: int, stop_ids: list[int]) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._stop_ids = stop_ids

    def mask(self) -> np.ndarray:
        """Allowed tokens now: bool[n_vocab]. Once the JSON is complete, the stop tokens alone."""
        if self._matcher.is_stopped():
            allowed = np.zeros(self._n_vocab, dtype=bool)
            allowed[self._stop_ids] = True
            return allowed
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        allowed = np.unpackbits(bits, bitorder="little").astype(bool)
        if allowed.size < self._n_vocab:
            return np.pad(allowed, (0, self._n_vocab - allowed.size))
        return allowed[: self._n_vocab]

    def accept(self, token: int) -> None:
        """Advance by the token that was chosen."""
        if not self._matcher.is_stopped():
            self._matcher.consume_token(token)
