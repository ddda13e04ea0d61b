"""The bodies that go back to clients, in OpenAI's shapes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from engine.scheduling.events import Finished, Piece

_FINISH = {"stop": "stop", "length": "length", "cancelled": "stop", "evicted": "length", "error": "error"}


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
    """A reply under construction; ``take`` adds pieces and returns the JSON of what is new."""

    identifier: str
    model: str
    created: int
    chat: bool
    logprobs: int | None
    token_text: Callable[[int], bytes]
    text: list[str] = field(default_factory=list)
    tokens: list[dict[str, Any]] = field(default_factory=list)

    def head(self, kind: str, choices: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The outer object; ``kind`` is the ``object`` field."""
        return {
            "id": self.identifier,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "choices": list(choices),
        }

    def opening(self) -> dict[str, Any] | None:
        """The first chunk of a chat stream, which carries the role; None for plain completions."""
        if not self.chat:
            return None
        delta = {"role": "assistant", "content": ""}
        return self._chunk({"index": 0, "delta": delta, "logprobs": None, "finish_reason": None})

    def take(self, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        """The chunk for some pieces that arrived together, None where nothing is to be shown."""
        text = "".join(p.text for p in pieces)
        entries = [self._entry(p) for p in pieces if p.token is not None] if self.logprobs is not None else []
        self.text.append(text)
        self.tokens += entries
        if not text and not entries:
            return None
        return self._chunk(self._choice(text, entries, None, delta=True))

    def closing(self, finished: Finished) -> dict[str, Any]:
        """The last chunk of a stream."""
        return self._chunk(self._choice("", [], _FINISH[finished.reason], delta=True))

    def usage_chunk(self, finished: Finished) -> dict[str, Any]:
        """The chunk with the token counts, where the client asked for it."""
        body = self.head("chat.completion.chunk" if self.chat else "text_completion", [])
        body["usage"] = usage(finished)
        return body

    def whole(self, finished: Finished) -> dict[str, Any]:
        """The buffered answer."""
        choice = self._choice("".join(self.text), self.tokens, _FINISH[finished.reason], delta=False)
        body = self.head("chat.completion" if self.chat else "text_completion", [choice])
        body["usage"] = usage(finished)
        return body

    def _chunk(self, choice: dict[str, Any]) -> dict[str, Any]:
        return self.head("chat.completion.chunk" if self.chat else "text_completion", [choice])

    def _choice(self, text: str, entries: list[dict[str, Any]], finish: str | None, *, delta: bool) -> dict[str, Any]:
        if not self.chat:
            logprobs = self._completion_logprobs(entries) if self.logprobs is not None else None
            return {"index": 0, "text": text, "logprobs": logprobs, "finish_reason": finish}
        logprobs = {"content": entries} if self.logprobs is not None else None
        if delta:
            content = {"content": text} if text else {}
            return {"index": 0, "delta": content, "logprobs": logprobs, "finish_reason": finish}
        message = {"role": "assistant", "content": text}
        return {"index": 0, "message": message, "logprobs": logprobs, "finish_reason": finish}

    def _entry(self, piece: Piece) -> dict[str, Any]:
        assert piece.token is not None
        entry = self._token(piece.token, piece.logprob)
        entry["top_logprobs"] = [self._token(t, v) for t, v in piece.top_logprobs]
        return entry

    def _token(self, token: int, logprob: float | None) -> dict[str, Any]:
        raw = self.token_text(token)
        value = -9999.0 if logprob is None else max(logprob, -9999.0)
        return {"token": raw.decode("utf-8", "replace"), "logprob": value, "bytes": list(raw)}

    @staticmethod
    def _completion_logprobs(entries: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "tokens": [e["token"] for e in entries],
            "token_logprobs": [e["logprob"] for e in entries],
            "top_logprobs": [{t["token"]: t["logprob"] for t in e["top_logprobs"]} for e in entries],
            "text_offset": [],
        }
