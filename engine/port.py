"""The engine port: what a window, a terminal or a server may ask of a running engine, and what it is told.

The port is data and futures only, so that whoever uses it need not care whether the engine is in this process.
``EngineLoop`` (``engine/loop.py``) is the port in this process. Nothing here imports Numba or Qt.
"""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np

from engine.scheduling.events import PoolCounts, StepReport, StreamState
from engine.scheduling.request import Request, SamplingParams

Role = Literal["system", "user", "assistant"]
PageState = Literal["free", "active", "shared", "cached"]
PAGE_FREE, PAGE_ACTIVE, PAGE_SHARED, PAGE_CACHED = 0, 1, 2, 3
"""Codes in ``Snapshot.page_states``: free; held by one stream; held by several holders with a stream among them;
held by the prefix cache alone."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One message. ``ids`` are the exact ids that an assistant's turn was generated with (no stop token), if known."""

    role: Role
    text: str
    ids: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class ChatJob:
    """A conversation that ends with a user's turn (or, with ``resume``, with an assistant's turn to go on with).

    ``fallback``: use ChatML instead of the file's chat template, which failed or refused this conversation.
    """

    id: int
    chat: str
    turns: tuple[Turn, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    max_new: int = 1024
    label: str = ""
    stop_strings: tuple[str, ...] = ()
    resume: bool = False
    fallback: bool = False


@dataclass(frozen=True, slots=True)
class Span:
    """Tokens [start, end) of a prompt that belong to turn number ``turn`` (-1: put there by the template)."""

    start: int
    end: int
    turn: int


@dataclass(frozen=True, slots=True)
class Prepared:
    """A chat job became a request: its prompt ids, which turn each belongs to, and template and tokenizer time.

    ``reasoning_open``: the prompt ends inside reasoning, so the reply starts there without an opening marker.
    """

    stream: int
    prompt: tuple[int, ...]
    spans: tuple[Span, ...]
    rewritten_at: int | None
    template_us: int
    tokenize_us: int
    used_fallback: bool = False
    reasoning_open: bool = False


@dataclass(frozen=True, slots=True)
class Failed:
    """A chat job that never became a stream: refused, no model, template or tokenizer error."""

    stream: int
    error_code: str
    error: str


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a loaded model is; sizes in bytes."""

    path: str
    name: str
    architecture: str
    parameters: int
    n_ctx: int
    n_ctx_train: int
    n_vocab: int
    page_rows: int
    page_bytes: int
    capacity_pages: int
    weights_bytes: int
    kv_bytes_per_token: int
    max_streams: int
    threads: int
    tensor_types: tuple[tuple[str, int], ...] = ()
    has_chat_template: bool = True


EngineStage = Literal["empty", "compiling", "loading", "ready", "failed", "closed"]


@dataclass(frozen=True, slots=True)
class EngineState:
    """Where the engine stands. ``progress`` is 0..1 for ``compiling`` and ``loading``; ``detail`` a short phrase.

    ``ready`` with an ``error``: loading another model failed, and the one that was loaded before runs on.
    """

    stage: EngineStage
    progress: float = 0.0
    detail: str = ""
    model: ModelInfo | None = None
    error: str = ""
    error_code: str = ""


@dataclass(frozen=True, slots=True)
class ChainInfo:
    """One chain of the prefix cache. Times are Unix seconds; ``last_hit`` None: never.

    ``pages`` are its live pages from the root on; ``n_own`` of them belong to no other chain (a release drops those).
    """

    id: int
    label: str
    chat: str
    n_tokens: int
    pages: tuple[int, ...]
    n_own: int
    hits: int
    born: float
    last_hit: float | None
    pinned: bool


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of cached pages that belong to the same chains: a node of the compressed prefix tree.

    ``parent`` is the id of the segment before it (None: a root); ``depth`` counts tokens before its first one.
    """

    id: int
    parent: int | None
    depth: int
    n_tokens: int
    pages: tuple[int, ...]
    chains: tuple[int, ...]
    in_use: bool
    text: str


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """The whole instrument at one moment. ``page_states`` uint8[capacity], ``refcounts`` int32[capacity] (copies)."""

    step: int
    at: float
    pool: PoolCounts
    page_rows: int
    page_bytes: int
    page_states: np.ndarray
    refcounts: np.ndarray
    stream_pages: dict[int, tuple[int, ...]]
    chains: tuple[ChainInfo, ...]
    segments: tuple[Segment, ...]
    streams: tuple[StreamState, ...]
    integrity: str = ""
    """Empty when the books balance, else what is wrong."""


@dataclass(frozen=True, slots=True)
class PageDetail:
    """One page: who holds it and the text on it."""

    page: int
    state: PageState
    refcount: int
    chats: tuple[str, ...]
    streams: tuple[int, ...]
    chains: tuple[int, ...]
    tokens: tuple[int, ...]
    text: str
    born: float | None
    hits: int


@dataclass(frozen=True, slots=True)
class ReleaseReport:
    """What a release did, or (``dry_run``) would do, in pages.

    ``freed`` went back to the pool; ``kept`` stay in the cache because other chains need them (``shared_with`` their
    labels); ``shared`` left the cache, but streams that run now hold them until they end.
    """

    chains: tuple[int, ...]
    freed: int
    kept: int
    shared: int
    shared_with: tuple[str, ...] = ()
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a chat job would reuse if it were sent now, in tokens."""

    n_prompt: int
    n_cached: int
    spans: tuple[Span, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How to load a model; None takes the default that ``DESIGN`` states (context min(model's, 8192), 65,536 tokens
    of pool at most a quarter of free memory, all cores)."""

    path: str
    n_ctx: int | None = None
    threads: int | None = None
    max_streams: int = 8
    max_queue: int = 64
    chunk: int = 128
    page_rows: int = 16
    pool_bytes: int | None = None
    cache_pages: int | None = None
    kv_dtype: Literal["float16", "float32"] = "float16"
    exact: bool = False
    prefix_cache: bool = True


class EngineSink(Protocol):
    """Where a port reports to. Called on the engine's thread (``prepared`` and ``failed`` on its text thread):
    hand over and return."""

    def on_step(self, report: StepReport) -> None: ...
    def on_state(self, state: EngineState) -> None: ...
    def on_prepared(self, prepared: Prepared) -> None: ...
    def on_failed(self, failed: Failed) -> None: ...


class EnginePort(Protocol):
    """What may be asked of an engine, from any thread. Futures fail with an ``EngineError``."""

    def load(self, options: LoadOptions) -> Future[ModelInfo]: ...
    def cancel_load(self) -> None: ...
    def unload(self) -> Future[None]: ...
    def submit(self, request: Request) -> Future[None]: ...
    def chat(self, job: ChatJob) -> None: ...
    def cancel(self, stream: int) -> None: ...
    def forecast(self, job: ChatJob) -> Future[Forecast]: ...
    def count_tokens(self, text: str) -> Future[int]: ...
    def decode(self, tokens: tuple[int, ...]) -> Future[str]: ...
    def snapshot(self) -> Future[Snapshot]: ...
    def page_detail(self, page: int) -> Future[PageDetail]: ...
    def release(self, chain: int, *, dry_run: bool = False) -> Future[ReleaseReport]: ...
    def release_all(self, *, dry_run: bool = False) -> Future[ReleaseReport]: ...
    def pin(self, chain: int, pinned: bool = True) -> Future[None]: ...
    def set_threads(self, threads: int) -> Future[None]: ...
    def close(self) -> None: ...
