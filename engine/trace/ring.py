"""The last steps, in memory."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from engine.scheduling.events import Finished, Piece, StepReport


@dataclass(slots=True)
class Totals:
    """Counters since the start. ``reused`` and ``read`` count prompt tokens, ``evicted_pages`` cached pages."""

    steps: int = 0
    generated: int = 0
    read: int = 0
    reused: int = 0
    finished: int = 0
    evicted_pages: int = 0
    busy_us: int = 0


class TraceRing:
    """Keeps the last ``size`` reports and counts all of them."""

    def __init__(self, size: int = 4096) -> None:
        self._reports: deque[StepReport] = deque(maxlen=size)
        self.totals = Totals()

    def append(self, report: StepReport) -> None:
        """A step was made."""
        self._reports.append(report)
        totals = self.totals
        totals.steps += 1
        totals.busy_us += report.duration_us
        totals.read += sum(tokens for _, tokens in report.prefilled)
        totals.evicted_pages += sum(eviction.pages for eviction in report.evictions)
        for event in report.events:
            match event:
                case Piece():
                    totals.generated += event.token is not None
                case Finished():
                    totals.finished += 1
                    totals.reused += event.n_cached

    def last(self, n: int | None = None) -> tuple[StepReport, ...]:
        """The last ``n`` reports that are kept (None: all), oldest first."""
        reports = tuple(self._reports)
        return reports if n is None else reports[max(0, len(reports) - n) :]

    def since(self, step: int) -> tuple[StepReport, ...]:
        """The kept reports after step number ``step``."""
        return tuple(report for report in self._reports if report.step > step)
