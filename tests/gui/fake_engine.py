"""An engine made of a few dictionaries: enough for the whole window, and every step is taken by the test."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import numpy as np

from engine.errors import UnknownChainError
from engine.port import ChatJob, EngineSink, EngineState, Failed, Forecast, ModelInfo, Prepared, Snapshot, Span
from engine.scheduling.events import Finished, Piece, PoolCounts, StepReport, StreamState

CAPACITY = 264
MODEL = ModelInfo(
    path="/models/fake.gguf",
    name="Fake 135M",
    architecture="llama",
    parameters=135_000_000,
    n_ctx=8192,
    n_ctx_train=8192,
    n_vocab=49_152,
    page_rows=16,
    page_bytes=368_640,
    capacity_pages=CAPACITY,
    weights_bytes=98_000_000,
    kv_bytes_per_token=23_040,
    max_streams=8,
    threads=2,
)


def done(value: Any = None) -> Future:
    """A future that has its result already."""
    future: Future = Future()
    future.set_result(value)
    return future


class FakeEngine:
    """Implements ``EnginePort``; ``write``, ``read`` and ``finish`` play the engine's part."""

    def __init__(self, sink: EngineSink) -> None:
        self.sink = sink
        self.jobs: dict[int, ChatJob] = {}
        self.states: dict[int, StreamState] = {}
        self.cancelled: list[int] = []
        self.loaded: list[Any] = []
        self.opens_reasoning = False
        self.closed = False
        self.step = 0

    def ready(self, model: ModelInfo = MODEL) -> None:
        """A model is loaded."""
        self.sink.on_state(EngineState("ready", model=model))

    def switch(self, model: ModelInfo) -> None:
        """Another model takes the place of the one that runs, as in the real engine: its streams end first."""
        for stream in list(self.states):
            self.finish(stream, "cancelled")
        self.ready(model)

    def load(self, options: Any) -> Future:
        self.loaded.append(options)
        self.ready()
        return done(MODEL)

    def chat(self, job: ChatJob) -> None:
        self.jobs[job.id] = job
        prompt = tuple(range(self.count(job)))
        spans = (Span(0, len(prompt), len(job.turns) - 1),)
        self.states[job.id] = StreamState(job.id, job.chat, job.label, "queued", len(prompt), 0, 0, 0)
        self.sink.on_prepared(Prepared(job.id, prompt, spans, None, 200, 300, job.fallback, self.opens_reasoning))

    @staticmethod
    def count(job: ChatJob) -> int:
        """A token count for a job: four characters each and a few for the template."""
        return sum(len(turn.ids) if turn.ids else len(turn.text) // 4 + 4 for turn in job.turns)

    def read(self, stream: int, n_read: int, n_prompt: int, n_cached: int = 0) -> None:
        """The prompt is being read."""
        job = self.jobs[stream]
        self.states[stream] = StreamState(stream, job.chat, job.label, "prefilling", n_prompt, n_cached, n_read, 0)
        self._report((), prefilled=((stream, 128),))

    def write(self, *pieces: tuple[int, str]) -> None:
        """One step in which each (stream, text) wrote one token."""
        events = []
        for stream, text in pieces:
            old = self.states[stream]
            n_gen = old.n_gen + 1
            self.states[stream] = StreamState(
                stream, old.chat, old.label, "decoding", old.n_prompt, old.n_cached, old.n_prompt + n_gen, n_gen
            )
            events.append(Piece(stream, 1000 + n_gen, text))
        self._report(tuple(events), decoded=tuple(stream for stream, _ in pieces))

    def finish(self, stream: int, reason: str = "stop", **values: Any) -> None:
        """A stream's last event."""
        state = self.states.pop(stream)
        figures = {
            "n_prompt": state.n_prompt,
            "n_cached": state.n_cached,
            "n_gen": state.n_gen,
            "n_kept": state.n_gen,
            "queue_us": 100,
            "ttft_us": 38_000,
            "gen_us": 5_000 * max(state.n_gen, 1),
            "seed": 7,
        }
        self._report((Finished(stream, reason, **{**figures, **values}),))  # type: ignore[arg-type]

    def fail(self, stream: int, code: str, sentence: str) -> None:
        """A job that never became a stream."""
        self.states.pop(stream, None)
        self.sink.on_failed(Failed(stream, code, sentence))

    def cancel(self, stream: int) -> None:
        self.cancelled.append(stream)
        if stream in self.states:
            self.finish(stream, "cancelled")

    def forecast(self, job: ChatJob) -> Future:
        n = self.count(job)
        return done(Forecast(n, max(n - 23, 0) // 16 * 16))

    def snapshot(self) -> Future:
        pages = np.zeros(CAPACITY, np.uint8)
        return done(
            Snapshot(
                self.step,
                0.0,
                self.pool,
                16,
                MODEL.page_bytes,
                pages,
                np.zeros(CAPACITY, np.int32),
                {},
                (),
                (),
                tuple(self.states.values()),
            )
        )

    @property
    def pool(self) -> PoolCounts:
        """Pages by state."""
        used = sum(-(-max(state.n_read, 1) // 16) for state in self.states.values())
        return PoolCounts(CAPACITY, CAPACITY - used, 0, used)

    def close(self) -> None:
        self.closed = True

    def cancel_load(self) -> None:
        self.sink.on_state(EngineState("empty"))

    def unload(self) -> Future:
        self.sink.on_state(EngineState("empty"))
        return done()

    def submit(self, request: Any) -> Future:
        return done()

    def count_tokens(self, text: str) -> Future:
        return done(len(text) // 4)

    def decode(self, tokens: tuple[int, ...]) -> Future:
        return done("".join(chr(97 + token % 26) for token in tokens))

    def page_detail(self, page: int) -> Future:
        return self.release(page)

    def release(self, chain: int, *, dry_run: bool = False) -> Future:
        future: Future = Future()
        future.set_exception(UnknownChainError("This chain is no longer in the cache."))
        return future

    def release_all(self, *, dry_run: bool = False) -> Future:
        return self.release(0)

    def pin(self, chain: int, pinned: bool = True) -> Future:
        return done()

    def set_threads(self, threads: int) -> Future:
        return done()

    def _report(self, events: tuple, decoded: tuple = (), prefilled: tuple = ()) -> None:
        self.step += 1
        self.sink.on_step(
            StepReport(
                self.step,
                0.0,
                5_000,
                events,
                decoded,
                prefilled,
                self.pool,
                0,
                tuple(self.states.values()),
                decode_us=4_000,
                prefill_us=9_000 if prefilled else 0,
            )
        )
