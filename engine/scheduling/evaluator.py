"""What the scheduler needs from a model and from text output; it knows neither weights nor tokenizers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from engine.cache.pool import KVSpec
from engine.cache.session import Session
from engine.scheduling.request import Request, SamplingParams


class Evaluator(Protocol):
    """The language model as the scheduler sees it."""

    @property
    def kv_spec(self) -> KVSpec: ...
    @property
    def n_ctx(self) -> int: ...
    @property
    def n_vocab(self) -> int: ...

    def eval(self, session: Session, tokens: Sequence[int], *, logits: bool = True) -> None:
        """Evaluate prompt rows: reserves pages, advances the session and, with ``logits``, sets ``session.logits``."""
        ...

    def eval_batch(self, sessions: Sequence[Session], tokens: Sequence[int]) -> None:
        """Evaluate one generated row for each session in one pass; on an error no session has advanced."""
        ...

    @property
    def shared_rows(self) -> int:
        """How many rows ``eval_together`` takes; 0 where prompt rows and generated rows cannot share a pass."""
        ...

    def eval_together(
        self, sessions: Sequence[Session], tokens: Sequence[int], reader: Session, part: Sequence[int], *, logits: bool
    ) -> None:
        """``eval_batch`` of ``sessions`` and ``eval`` of ``part`` in one pass, with the same results; on an error no
        session has advanced."""
        ...

    def sample_batch(
        self,
        sessions: Sequence[Session],
        params: Sequence[SamplingParams],
        *,
        masks: Sequence[np.ndarray | None] | None = None,
    ) -> list[int]:
        """Choose the next token of each session from its logits; draw ``session.n_drawn`` of ``session.seed``."""
        ...


class TextStream(Protocol):
    """Tokens to text for one reply: whole characters only, stop strings cut."""

    @property
    def n_kept(self) -> int:
        """How many of the tokens so far are wholly visible."""
        ...

    def push(self, token: int) -> tuple[str, bool]:
        """The text that became certain with ``token``, and whether a stop string ended the reply."""
        ...

    def flush(self) -> str:
        """What was held back, at the end of the reply."""
        ...


TextFactory = Callable[[Request], TextStream]


class NoText:
    """A text stream without text, for callers that want tokens alone."""

    def __init__(self, _request: Request | None = None) -> None:
        self.n_kept = 0

    def push(self, token: int) -> tuple[str, bool]:
        """Count ``token``."""
        self.n_kept += 1
        return "", False

    def flush(self) -> str:
        """Nothing is held back."""
        return ""
