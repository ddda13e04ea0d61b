"""What one step did, collected while it runs and frozen into a ``StepReport`` at its end."""

from __future__ import annotations

import time

from engine.scheduling.events import Eviction, PoolCounts, SchedEvent, StepReport, StreamState


class StepRecorder:
    """Collects one step at a time; ``begin`` starts the next one. Events may come between steps as well."""

    def __init__(self) -> None:
        self.step = 0
        self.events: list[SchedEvent] = []
        self.decoded: tuple[int, ...] = ()
        self.decode_s = 0.0
        self.prefilled: dict[int, int] = {}
        self.prefill_s = 0.0
        self._started = 0.0
        self._clock = 0.0

    def begin(self) -> None:
        """A step starts now."""
        self.step += 1
        self.events = []
        self.decoded, self.decode_s = (), 0.0
        self.prefilled, self.prefill_s = {}, 0.0
        self._started, self._clock = time.time(), time.perf_counter()

    def read(self, stream: int, tokens: int) -> None:
        """``tokens`` of a stream's prompt (or of its last page) were evaluated."""
        self.prefilled[stream] = self.prefilled.get(stream, 0) + tokens

    @property
    def tokens_read(self) -> int:
        """Tokens of prompts that the step has evaluated so far."""
        return sum(self.prefilled.values())

    def report(
        self, pool: PoolCounts, queued: int, streams: tuple[StreamState, ...], evictions: tuple[Eviction, ...]
    ) -> StepReport:
        """The step as frozen data."""
        return StepReport(
            step=self.step,
            started=self._started,
            duration_us=round((time.perf_counter() - self._clock) * 1e6),
            events=tuple(self.events),
            decoded=self.decoded,
            prefilled=tuple(self.prefilled.items()),
            pool=pool,
            queued=queued,
            streams=streams,
            decode_us=round(self.decode_s * 1e6),
            prefill_us=round(self.prefill_s * 1e6),
            evictions=evictions,
        )
