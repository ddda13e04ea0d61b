"""Events from the engine's thread to the coroutines that wait for them.

While few streams run, every step is handed over at once. While many do, the steps of a short time are handed over
together: each hand-over wakes the server's thread, which then competes with the model for the processor.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence

from engine.port import EngineState, Failed, Prepared
from engine.scheduling.events import Finished, SchedEvent, StepReport
from engine.serving.tally import Tally

_PAUSE_PER_STREAM_S = 0.006


class Mailbox:
    """The events of one stream, in order; used on the server's thread alone."""

    def __init__(self, stream: int) -> None:
        self.stream = stream
        self.left = False
        self.ended = False
        self._events: list[SchedEvent] = []
        self._arrived = asyncio.Event()

    def put(self, event: SchedEvent) -> None:
        """Add an event and wake the reader."""
        self._events.append(event)
        self.ended = isinstance(event, Finished)
        self._arrived.set()

    def leave(self) -> None:
        """The client is gone: wake the reader for the last time."""
        self.left = True
        self._arrived.set()

    async def take(self) -> Sequence[SchedEvent]:
        """What has arrived, at least one event; nothing once the client is gone."""
        await self._arrived.wait()
        if self.left:
            return ()
        self._arrived.clear()
        events, self._events = self._events, []
        return events


class Broker:
    """An engine sink that hands each stream's events to its mailbox; streams of others pass by."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, flush_s: float, calm_streams: int) -> None:
        self.tally = Tally()
        self._loop = loop
        self._flush_s = flush_s
        self._calm_streams = calm_streams
        self._boxes: dict[int, Mailbox] = {}
        self._reports: deque[StepReport] = deque()
        self._awake = False
        self._started: set[int] = set()

    def open(self, stream: int) -> Mailbox:
        """A mailbox for a stream that is about to be submitted."""
        box = self._boxes[stream] = Mailbox(stream)
        return box

    def close(self, stream: int) -> bool:
        """Forget a stream; its later events are dropped. False: it was forgotten already."""
        self._started.discard(stream)
        return self._boxes.pop(stream, None) is not None

    @property
    def streams(self) -> tuple[int, ...]:
        """The requests of this server that are queued or running."""
        return tuple(self._boxes)

    def __len__(self) -> int:
        return len(self._boxes)

    # On the engine's thread

    def on_step(self, report: StepReport) -> None:
        """Keep the step's report for the server's thread, and wake that one unless it will look by itself soon."""
        self.tally.add(report)
        if not self._boxes:
            return
        self._reports.append(report)
        if not self._awake:
            self._awake = True
            self._loop.call_soon_threadsafe(self._deliver)
        elif self._is_urgent(report):
            self._loop.call_soon_threadsafe(self._hand_over)

    def _is_urgent(self, report: StepReport) -> bool:
        """Whether a reply starts or ends with this step: somebody waits for that."""
        urgent = False
        for event in report.events:
            if isinstance(event, Finished):
                urgent = True
            elif event.stream in self._boxes and event.stream not in self._started:
                self._started.add(event.stream)
                urgent = True
        return urgent

    def on_state(self, state: EngineState) -> None:
        """The server asks the port for its state when it needs it."""

    def on_prepared(self, prepared: Prepared) -> None:
        """Chat jobs are the window's; the server submits requests."""

    def on_failed(self, failed: Failed) -> None:
        """Chat jobs are the window's; the server submits requests."""

    # On the server's thread

    def _deliver(self) -> None:
        """Hand over what there is. With many streams, look again after a pause, without being woken."""
        self._awake = len(self._boxes) > self._calm_streams and bool(self._reports)
        self._hand_over()  # a report that comes now either is seen there or finds ``_awake`` False
        if self._awake:
            self._loop.call_later(min(self._flush_s, _PAUSE_PER_STREAM_S * len(self._boxes)), self._deliver)

    def _hand_over(self) -> None:
        while self._reports:
            for event in self._reports.popleft().events:
                box = self._boxes.get(event.stream)
                if box is not None:
                    box.put(event)
