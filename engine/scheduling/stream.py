"""Stream: one request on its way through the scheduler, from the queue to its last event."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Literal

import numpy as np

from engine.cache.session import Session
from engine.errors import EngineError
from engine.scheduling.evaluator import TextStream
from engine.scheduling.events import Finished, FinishReason, Miss, StreamPhase, StreamState
from engine.scheduling.request import Request

Phase = Literal["queued", "prefilling", "decoding", "closing"]


def fresh_seed() -> int:
    """A random seed that any JSON reader keeps exactly."""
    return secrets.randbits(53)


class Stream:
    """The state of one request.

    ``target`` are the tokens that are being read: the prompt, or, once the reply has ended (phase ``closing``), the
    history whose last page is being completed for the cache. ``generated`` are the tokens of the reply; its last one
    is evaluated only when another is wanted. ``chosen`` is the token that was sampled last, ``raw_logits`` a copy of
    what it was sampled from where log-probabilities are wanted. ``reason`` is set when the reply has ended. Times are
    seconds.
    """

    def __init__(self, request: Request, limit: int, text: TextStream, now: float) -> None:
        self.request = request
        self.id = request.id
        self.limit = limit
        self.text = text
        self.phase: Phase = "queued"
        self.session: Session | None = None
        self.target: Sequence[int] = request.prompt
        self.generated: list[int] = []
        self.chosen = 0
        self.raw_logits: np.ndarray | None = None
        self.seed = fresh_seed() if request.sampling.seed is None else request.sampling.seed
        self.n_cached = 0
        self.chain: int | None = None
        self.miss: Miss | None = None
        self.explained = False
        self.reason: FinishReason | None = None
        self.error: Exception | None = None
        self.submitted = now
        self.admitted: float | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None
        self._queued_state: StreamState | None = None

    @property
    def live_session(self) -> Session:
        """The session of an admitted stream."""
        assert self.session is not None, "the stream was not admitted, or has ended"
        return self.session

    @property
    def remaining(self) -> int:
        """Tokens of ``target`` that are still to be read."""
        return len(self.target) - self.live_session.n_past

    def next_part(self, most: int) -> tuple[list[int], bool]:
        """The next ``most`` tokens of ``target``, and whether these are the last."""
        past = self.live_session.n_past
        return list(self.target[past : past + most]), past + most >= len(self.target)

    @property
    def wants_token(self) -> bool:
        """Whether reading the target leads to sampling."""
        return self.phase == "prefilling" and self.request.kind == "generate"

    def end(self, reason: FinishReason, error: Exception | None = None) -> None:
        """The reply has ended; the first reason counts."""
        if self.reason is None:
            self.reason, self.error = reason, error

    def history(self) -> list[int]:
        """What this conversation holds now: the prompt as far as it was read, and the visible part of the reply."""
        if self.phase == "prefilling":
            return list(self.live_session.tokens)
        return [*self.request.prompt, *self.generated[: self.n_kept]]

    def closing_tokens(self) -> Sequence[int]:
        """What follows ``history`` when the conversation goes on. A prompt that was not read to its end has no reply
        to close."""
        return () if self.phase == "prefilling" else self.request.close_tokens

    @property
    def n_kept(self) -> int:
        """How many generated tokens are wholly visible."""
        return min(self.text.n_kept, len(self.generated))

    def state(self) -> StreamState:
        """The stream as it stands, for reports."""
        if self.session is None:
            if self._queued_state is None:
                self._queued_state = self._state("queued", 0)
            return self._queued_state
        phase: StreamPhase = "decoding" if self.phase == "decoding" else "prefilling"
        return self._state(phase, min(self.session.n_past, len(self.request.prompt)))

    def _state(self, phase: StreamPhase, n_read: int) -> StreamState:
        request = self.request
        return StreamState(
            self.id,
            request.chat,
            request.label,
            phase,
            len(request.prompt),
            self.n_cached,
            n_read,
            len(self.generated),
        )

    def finished(self, now: float) -> Finished:
        """The last event."""
        assert self.reason is not None, "the stream has not ended"
        first = self.first_token
        return Finished(
            stream=self.id,
            reason=self.reason,
            n_prompt=len(self.request.prompt),
            n_cached=self.n_cached,
            n_gen=len(self.generated),
            queue_us=_us((now if self.admitted is None else self.admitted) - self.submitted),
            ttft_us=0 if first is None else _us(first - self.submitted),
            gen_us=0 if first is None or self.last_token is None else _us(self.last_token - first),
            n_kept=self.n_kept,
            seed=self.seed,
            chain=self.chain,
            miss=self.miss,
            error="" if self.error is None else str(self.error) or type(self.error).__name__,
            error_code="" if self.error is None else _code(self.error),
        )


def _us(seconds: float) -> int:
    return round(seconds * 1e6)


def _code(error: Exception) -> str:
    return error.code if isinstance(error, EngineError) else "internal"
