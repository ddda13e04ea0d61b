"""The bodies that go back to clients, in OpenAI's shapes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.scheduling.events import Finished, Piece

_LEAST_LOGPROB = -9999.0
"""Stands for minus infinity, which JSON does not have."""


def sse(body: dict[str, Any] | str) -> bytes:
    """One server-sent event."""
    data = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False, separators=(",", ":"))
    return b"data: " + data.encode("utf-8", "replace") + b"\n\n"


def usage(finished: Finished) -> dict[str, Any]:
    """Token counts of one request."""
    return {
        "prompt_tokens": finished.n_prompt,
        "completion_tokens": finished.n_gen,
        "total_tokens": finished.n_prompt + finished.n_gen,
        "prompt_tokens_details": {"cached_tokens": finished.n_cached},
    }


@dataclass(slots=True)
class Reply:
    """A reply under construction; ``take`` adds pieces and returns the JSON of what is new.

    ``tokenizer`` names tokens where log-probabilities are wanted (``token_bytes``).
    """

    identifier: str
    model: str
    created: int
    chat: bool
    logprobs: int | None
    tokenizer: Any
    text: list[str] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)
    offset: int = 0

    def opening(self) -> dict[str, Any] | None:
        """The first chunk of a chat stream, which carries the role; None for plain completions."""
        if not self.chat:
            return None
        delta = {"role": "assistant", "content": ""}
        return self._chunk([{"index": 0, "delta": delta, "logprobs": None, "finish_reason": None}])

    def take(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        """The chunk for some pieces that arrived together, None where nothing is to be shown."""
        text = "".join(piece.text for piece in pieces)
        entries = [self._entry(p) for p in pieces if p.token is not None] if self.logprobs is not None else []
        self.text.append(text)
        self.tokens += entries
        if not text and not entries:
            return None
        return self._chunk([self._choice(text, entries, None, delta=True)])

    def closing(self, finished: Finished) -> dict[str, Any]:
        """The last chunk of a stream."""
        return self._chunk([self._choice("", [], _finish_reason(finished), delta=True)])

    def usage_chunk(self, finished: Finished) -> dict[str, Any]:
        """The chunk with the token counts, where the client asked for it."""
        return {**self._chunk([]), "usage": usage(finished)}

    def whole(self, finished: Finished) -> dict[str, Any]:
        """The buffered answer."""
        self.offset = 0
        choice = self._choice("".join(self.text), self.tokens, _finish_reason(finished), delta=False)
        kind = "chat.completion" if self.chat else "text_completion"
        return {**self._head(kind, [choice]), "usage": usage(finished)}

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self._head("chat.completion.chunk" if self.chat else "text_completion", choices)

    def _head(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self.identifier,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        }

    def _choice(self, text: str, entries: list[dict[str, Any]], finish: str | None, *, delta: bool) -> dict[str, Any]:
        if not self.chat:
            logprobs = self._completion_logprobs(entries) if self.logprobs is not None else None
            return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
        logprobs = {"content": entries} if self.logprobs is not None else None
        if delta:
            content = {"content": text} if text else {}
            return {"index": 0, "delta": content, "logprobs": logprobs, "finish_reason": finish}
        message = {"role": "assistant", "content": text, "refusal": None}
        return {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def _entry(self, piece: Piece) -> dict[str, Any]:
        assert piece.token is not None
        entry = self._token(piece.token, piece.logprob)
        entry["top_logprobs"] = [self._token(token, value) for token, value in piece.top_logprobs]
        return entry

    def _token(self, token: int, logprob: float | None) -> dict[str, Any]:
        raw = self.tokenizer.token_bytes(token, special=True)
        value = _LEAST_LOGPROB if logprob is None else max(logprob, _LEAST_LOGPROB)
        return {"token": raw.decode("utf-8", "replace"), "logprob": value, "bytes": list(raw)}

    def _completion_logprobs(self, entries: list[dict[str, Any]]) -> dict[str, Any]:
        """The older shape; ``text_offset`` counts characters from the start of the reply."""
        offsets = []
        for entry in entries:
            offsets.append(self.offset)
            self.offset += len(entry["token"])
        return {
            "tokens": [entry["token"] for entry in entries],
            "token_logprobs": [entry["logprob"] for entry in entries],
            "top_logprobs": [{t["token"]: t["logprob"] for t in entry["top_logprobs"]} for entry in entries],
            "text_offset": offsets,
        }


def _finish_reason(finished: Finished) -> str:
    """``stop`` or ``length``; a reply that was evicted ended for lack of room too."""
    return "stop" if finished.reason == "stop" else "length"
