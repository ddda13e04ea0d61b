"""One engine loop, several listeners: a window and a server hear the same steps."""

from __future__ import annotations

from collections.abc import Callable

from engine.port import EngineSink, EngineState, Failed, Prepared
from engine.scheduling.events import StepReport


class SinkFan:
    """An ``EngineSink`` that passes everything on to each attached sink.

    The tuple of sinks is replaced, never changed, so that attaching from any thread needs no lock.
    """

    def __init__(self, *sinks: EngineSink) -> None:
        self._sinks: tuple[EngineSink, ...] = sinks

    def attach(self, sink: EngineSink) -> Callable[[], None]:
        """Add a sink; the returned function takes it off again."""
        self._sinks = (*self._sinks, sink)

        def detach() -> None:
            self._sinks = tuple(s for s in self._sinks if s is not sink)

        return detach

    def on_step(self, report: StepReport) -> None:
        """Pass on a step's report."""
        for sink in self._sinks:
            sink.on_step(report)

    def on_state(self, state: EngineState) -> None:
        """Pass on a change of the engine's state."""
        for sink in self._sinks:
            sink.on_state(state)

    def on_prepared(self, prepared: Prepared) -> None:
        """Pass on a prepared chat job."""
        for sink in self._sinks:
            sink.on_prepared(prepared)

    def on_failed(self, failed: Failed) -> None:
        """Pass on a refused chat job."""
        for sink in self._sinks:
            sink.on_failed(failed)
