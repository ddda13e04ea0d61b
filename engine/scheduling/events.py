"""What the scheduler reports: two kinds of event per stream, and one report per step.

Everything here is frozen data, safe to hand to another thread or to write to a file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

FinishReason = Literal["stop", "length", "cancelled", "evicted", "error"]
StreamPhase = Literal["queued", "prefilling", "decoding"]
MissCause = Literal["never_stored", "diverged", "evicted", "partial_page", "other_model"]


@dataclass(frozen=True, slots=True)
class Piece:
    """One generated token and the text that became certain with it (may be empty; never half a character).

    A last flush, where text was held back for a stop string or an unfinished character, has ``token`` None.
    """

    stream: int
    token: int | None
    text: str
    logprob: float | None = None
    top_logprobs: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Miss:
    """Why a prompt was not reused to its last whole page.

    ``position`` is the first token of the prompt that was computed though a whole page might have been reused;
    for ``diverged``, ``token_position`` is the first differing token, ``chain`` the stored chain it differs from,
    and ``stored_tokens`` / ``prompt_tokens`` are some tokens around that point of each. For ``evicted``,
    ``evicted_at`` is a Unix time in seconds, equal to ``Eviction.at`` of the eviction that is regretted, and
    ``evicted_for`` the chat that needed the room (empty: released by hand).
    """

    cause: MissCause
    position: int
    token_position: int = -1
    chain: int | None = None
    chain_label: str = ""
    stored_tokens: tuple[int, ...] = ()
    prompt_tokens: tuple[int, ...] = ()
    evicted_at: float | None = None
    evicted_for: str = ""


@dataclass(frozen=True, slots=True)
class Finished:
    """The last event of a stream.

    ``n_gen`` excludes the stop token. ``n_kept`` <= ``n_gen``: how many of the generated tokens are wholly visible
    (fewer only when a stop string cut the reply). ``ttft_us`` counts from submit to the first token, 0 without one;
    ``gen_us`` from the first token to the last (n_gen - 1 intervals). A ``warm`` request ends with reason length.
    ``chain`` is the chain that was donated, None without one. ``error`` is a sentence when the reason is ``error``.
    """

    stream: int
    reason: FinishReason
    n_prompt: int
    n_cached: int
    n_gen: int
    queue_us: int
    ttft_us: int
    gen_us: int
    n_kept: int = 0
    seed: int = 0
    chain: int | None = None
    miss: Miss | None = None
    error: str = ""
    error_code: str = ""


SchedEvent = Piece | Finished


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as it stands after a step; ``n_read`` counts prompt tokens that are in KV, reused ones included."""

    stream: int
    chat: str
    label: str
    phase: StreamPhase
    n_prompt: int
    n_cached: int
    n_read: int
    n_gen: int


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """Pages by state: free + cached + referenced = capacity."""

    capacity: int
    free: int
    cached: int
    referenced: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """Pages that the cache gave up under pressure: whose they were, how old and idle (seconds), who needed room."""

    at: float
    chain: int
    label: str
    chat: str
    pages: int
    age_s: float
    idle_s: float
    hits: int
    evicted_for: str


@dataclass(frozen=True, slots=True)
class StepReport:
    """One engine step: its events and what it did.

    ``started`` is Unix time in seconds, durations are microseconds. ``decoded`` names the streams that took part in
    the batched decode (its length is the batch width), ``prefilled`` (stream, tokens) pairs.
    """

    step: int
    started: float
    duration_us: int
    events: tuple[SchedEvent, ...]
    decoded: tuple[int, ...]
    prefilled: tuple[tuple[int, int], ...]
    pool: PoolCounts
    queued: int
    streams: tuple[StreamState, ...]
    decode_us: int = 0
    prefill_us: int = 0
    evictions: tuple[Eviction, ...] = field(default=())
