"""What a server counts for ``/metrics``: totals and histograms over all streams of the engine."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

from engine.scheduling.events import Finished, FinishReason, Piece, StepReport

TTFT_BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
TOKEN_BOUNDS = (0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0)
WHOLE_BOUNDS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)


class Histogram:
    """Counts of values by upper bound, with their sum."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count ``value``, ``times`` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times


class Tally:
    """Written on the engine's thread, read on the server's: every field is a number or a list of numbers, so a reader
    may see a step half counted, but never a broken value."""

    def __init__(self) -> None:
        reasons: tuple[FinishReason, ...] = ("stop", "length", "cancelled", "evicted", "error")
        self.finished: Counter[FinishReason] = Counter(dict.fromkeys(reasons, 0))
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.first_token = Histogram(TTFT_BOUNDS)
        self.queue = Histogram(TTFT_BOUNDS)
        self.between_tokens = Histogram(TOKEN_BOUNDS)
        self.whole = Histogram(WHOLE_BOUNDS)

    def add(self, report: StepReport) -> None:
        """Count a step."""
        for event in report.events:
            match event:
                case Piece(token=int()):
                    self.generated_tokens += 1
                case Finished():
                    self._add_finished(event)

    def _add_finished(self, event: Finished) -> None:
        self.finished[event.reason] += 1
        self.prompt_tokens += event.n_prompt
        self.cached_tokens += event.n_cached
        self.queue.add(event.queue_us / 1e6)
        if event.ttft_us:
            self.first_token.add(event.ttft_us / 1e6)
            self.whole.add((event.ttft_us + event.gen_us) / 1e6)
        if event.n_gen > 1:
            self.between_tokens.add(event.gen_us / 1e6 / (event.n_gen - 1), event.n_gen - 1)
