"""Events from the engine's thread to the coroutines that wait for them: one wake-up per step, not one per event."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator

from engine.port import EngineState, Failed, Prepared
from engine.scheduling.events import Finished, Piece, SchedEvent, StepReport


class Mailbox:
    """The events of one stream, in order; used on the event loop's thread alone."""

    def __init__(self) -> None:
        self._events: deque[SchedEvent] = deque()
        self._arrived = asyncio.Event()

    def put(self, event: SchedEvent) -> None:
        """Add an event and wake the reader."""
        self._events.append(event)
        self._arrived.set()

    async def batches(self, pause: float) -> AsyncIterator[list[SchedEvent]]:
        """All events that have arrived, again and again until ``Finished``; at least ``pause`` seconds apart."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            batch = list(self._events)
            self._events.clear()
            yield batch
            if batch and isinstance(batch[-1], Finished):
                return
            if pause:
                await asyncio.sleep(pause)


class Broker:
    """An engine sink that hands each stream's events to its mailbox; streams of others pass by."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._boxes: dict[int, Mailbox] = {}
        self.last_report: StepReport | None = None
        self.finished = {"stop": 0, "length": 0, "cancelled": 0, "evicted": 0, "error": 0}
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.generated_tokens = 0
        self.first_token_s = 0.0
        self.first_tokens = 0

    def open(self, stream: int) -> Mailbox:
        """A mailbox for a stream that is about to be submitted."""
        box = self._boxes[stream] = Mailbox()
        return box

    def close(self, stream: int) -> None:
        """Forget a stream; its later events are dropped."""
        self._boxes.pop(stream, None)

    @property
    def open_streams(self) -> int:
        """How many requests of this server are queued or running."""
        return len(self._boxes)

    def on_step(self, report: StepReport) -> None:
        """On the engine's thread: one hand-over per step."""
        self._loop.call_soon_threadsafe(self._deliver, report)

    def on_state(self, state: EngineState) -> None:
        """The server asks the port for its state when it needs it."""

    def on_prepared(self, prepared: Prepared) -> None:
        """Chat jobs are the window's; the server submits requests."""

    def on_failed(self, failed: Failed) -> None:
        """Chat jobs are the window's; the server submits requests."""

    def _deliver(self, report: StepReport) -> None:
        self.last_report = report
        for event in report.events:
            if isinstance(event, Finished):
                self._count(event)
            elif event.token is not None:
                self.generated_tokens += 1
            box = self._boxes.get(event.stream)
            if box is not None:
                box.put(event)

    def _count(self, event: Finished) -> None:
        self.finished[event.reason] += 1
        self.prompt_tokens += event.n_prompt
        self.cached_tokens += event.n_cached
        if event.ttft_us:
            self.first_tokens += 1
            self.first_token_s += event.ttft_us / 1e6


__all__ = ["Broker", "Finished", "Mailbox", "Piece"]
