"""Requests as frozen data: tokens in, sampling, how to stop. A queued request holds no KV memory."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How the next token is chosen from the logits; the defaults are greedy.

    The order is the usual one: logit bias, penalties over the last ``penalty_last_n`` tokens, temperature, top-k,
    top-p, min-p, draw. ``temperature`` 0 takes the largest logit. ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0 are off.
    ``seed`` None takes a fresh random seed, which the ``Finished`` event reports; draw ``i`` of a stream depends on
    (seed, i) alone, so a stream can be replayed.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    penalty_last_n: int = 64
    logit_bias: tuple[tuple[int, float], ...] = ()
    seed: int | None = None


class Constraint(Protocol):
    """A grammar that limits which tokens may follow (used for JSON replies)."""

    def mask(self) -> np.ndarray:
        """Allowed tokens now: bool[n_vocab]."""
        ...

    def accept(self, token: int) -> None:
        """Advance by the token that was chosen."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """One prompt to read and, for ``generate``, a reply to write.

    ``prompt`` are the exact ids to evaluate. ``close_tokens`` close the assistant's turn (see ``ChatRenderer``):
    they are not shown, but may be evaluated at the end so that the next turn finds whole pages in the cache.
    ``stop_ids`` end a reply and are never shown; ``stop_strings`` end it before their first character.
    ``label`` and ``chat`` are only for people: they name the chain that this request donates.
    ``logprobs`` None: none; k >= 0: the chosen token's log-probability and the k best.
    """

    id: int
    prompt: tuple[int, ...]
    max_new: int = 256
    kind: Literal["generate", "warm"] = "generate"
    sampling: SamplingParams = field(default_factory=SamplingParams)
    stop_ids: frozenset[int] = frozenset()
    stop_strings: tuple[str, ...] = ()
    close_tokens: tuple[int, ...] = ()
    label: str = ""
    chat: str = ""
    logprobs: int | None = None
    constraint: Constraint | None = None
