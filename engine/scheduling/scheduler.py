"""The scheduler: continuous batching of many streams over one model, one pool and one prefix cache.

``step`` is the algorithm; everything else here is one of its parts. All of it runs on one thread.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.cache.session import Session, reserve_all
from engine.errors import BadRequestValueError, DuplicateRequestError, PoolExhaustedError, QueueFullError
from engine.scheduling.decoding import Decoder
from engine.scheduling.evaluator import Evaluator, NoText, TextFactory
from engine.scheduling.events import Piece, SchedEvent, StepReport, StreamState
from engine.scheduling.pace import Pace
from engine.scheduling.recorder import StepRecorder
from engine.scheduling.request import Request
from engine.scheduling.room import Room
from engine.scheduling.sampling import sample
from engine.scheduling.stream import Stream
from engine.scheduling.validate import validate

log = logging.getLogger(__name__)

OLDEST_FIRST_EVERY = 4
"""Prompts are read shortest first; in every fourth step the oldest comes first, so that short ones cannot starve it."""

SMALLEST_READ = 2
"""Prompt tokens that a step reads at least, and in multiples of which: so few that one running chat hardly waits."""


class Scheduler:
    """Runs requests together: ``submit`` and ``cancel`` between steps, ``step`` while ``has_work``.

    With a ``pool``, streams share its pages; without one each stream has room for its whole context (a flat slab) and
    nothing is ever evicted. With a ``cache`` over the pool, prompts start from cached pages and donate theirs.
    ``chunk`` bounds the prompt tokens of a step, ``pace`` how long reading may take beside decoding (see ``Pace``).
    ``share_in_flight``: pages of a prompt can be attached by others as soon as they are read, not only when the stream
    has ended.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        *,
        pool: KVPool | None = None,
        cache: PrefixCache | None = None,
        max_streams: int = 8,
        max_queue: int = 64,
        chunk: int = 128,
        pace: float | None = 0.9,
        text_factory: TextFactory = NoText,
        share_in_flight: bool = True,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        for name, value in (("max_streams", max_streams), ("max_queue", max_queue), ("chunk", chunk)):
            if value < 1:
                raise BadRequestValueError(f"{name} must be at least 1.", field=name)
        if cache is not None and cache.pool is not pool:
            raise BadRequestValueError("The prefix cache must be over the scheduler's pool.", field="cache")
        self._evaluator = evaluator
        self._flat = pool is None
        self.pool = pool or KVPool(evaluator.kv_spec, capacity_pages=max_streams * -(-evaluator.n_ctx // 16))
        self.cache = cache
        self.last_report: StepReport | None = None
        self._max_streams = max_streams
        self._max_queue = max_queue
        self._pace = Pace(chunk, pace, SMALLEST_READ)
        self._text_factory = text_factory
        self._share_in_flight = share_in_flight
        self._clock = clock
        self._queue: deque[Stream] = deque()
        self._streams: dict[int, Stream] = {}  # admitted, oldest first
        self._closing: list[Stream] = []  # ended; their last page is being completed for the cache
        self._ended: list[Stream] = []  # ended in the queue; their last event is due
        self._room = Room(self.pool, cache)
        self._step = StepRecorder()
        self._decoder = Decoder(evaluator, self._pace, self._step)

    # Between steps

    def submit(self, request: Request) -> None:
        """Queue a request, or refuse it with a typed error. A queued request holds no KV memory."""
        if len(self._queue) >= self._max_queue:
            raise QueueFullError(f"{len(self._queue)} requests are waiting already: try again when a reply has ended.")
        if request.id in self._streams or any(request.id == s.id for s in (*self._queue, *self._ended)):
            raise DuplicateRequestError(f"A request with the id {request.id} is queued or running: take another id.")
        n_ctx, rows = self._evaluator.n_ctx, self.pool.capacity_pages * self.pool.page_rows
        validate(request, n_ctx=n_ctx, n_vocab=self._evaluator.n_vocab, capacity_rows=rows)
        limit = min(request.max_new, n_ctx - len(request.prompt)) if request.kind == "generate" else 0
        self._queue.append(Stream(request, limit, self._text_factory(request), self._clock()))

    def cancel(self, id: int) -> bool:
        """End a stream in whatever state it is; its last event comes with the next step. False: it has ended."""
        stream = self._streams.get(id)
        if stream is None:
            stream = next((s for s in self._queue if s.id == id), None)
            if stream is None:
                return False
            self._queue.remove(stream)
            self._ended.append(stream)
        if stream.reason is not None:
            return False
        stream.end("cancelled")
        return True

    @property
    def has_work(self) -> bool:
        """Whether ``step`` has anything to do."""
        return bool(self._queue or self._streams or self._closing or self._ended)

    def states(self) -> tuple[StreamState, ...]:
        """All streams as they stand: admitted ones, oldest first, then the queue."""
        return tuple(stream.state() for stream in (*self._streams.values(), *self._queue))

    def stream_pages(self) -> dict[int, tuple[int, ...]]:
        """The pages in the block table of each stream that has a session."""
        return {s.id: tuple(s.live_session.pages) for s in (*self._closing, *self._streams.values())}

    def holders(self, page: int) -> list[tuple[int, str, tuple[int, ...]]]:
        """(stream, chat, tokens on the page so far) of each stream that has ``page`` in its block table."""
        rows, found = self.pool.page_rows, []
        for stream in (*self._streams.values(), *self._closing):
            session = stream.live_session
            if page in session.pages:
                start = session.pages.index(page) * rows
                found.append((stream.id, stream.request.chat, tuple(session.tokens[start : start + rows])))
        return found

    def abandon(self, error: Exception) -> list[SchedEvent]:
        """After a defect: end everything with ``error`` and touch no page, because the books may be wrong."""
        self._step.begin()
        for stream in (*self._ended, *self._queue, *self._streams.values()):
            stream.end("error", error)
            self._step.events.append(stream.finished(self._clock()))
        self._streams.clear()
        for streams in (self._ended, self._queue, self._closing):
            streams.clear()
        self.last_report = self._report()
        return self._step.events

    def close(self) -> list[SchedEvent]:
        """End everything now, without donations, and return all pages; the last events of what was running."""
        self._step.begin()
        for stream in (*self._ended, *self._queue, *self._streams.values()):
            stream.end("cancelled")
            self._retire(stream, donate=False)
        self._abandon_closing()
        self._queue.clear()
        self._ended.clear()
        self.last_report = self._report()
        if self._flat:
            self.pool.close()
        return self._step.events

    # One step

    def step(self) -> list[SchedEvent]:
        """Admit; decode one token of every running stream, with a part of one prompt in the same pass where that is
        possible; read what is left of at most a chunk of prompts; reap what has ended."""
        self._step.begin()
        self._admit()
        decoding = self._make_room(self._running("decoding"))
        budget, read = self._decode(decoding)
        self._sample(decoding)
        read += self._prefill(budget)
        self._sample(read)
        self._reap()
        self.last_report = self._report()
        return self._step.events

    def _running(self, phase: str) -> list[Stream]:
        return [s for s in self._streams.values() if s.phase == phase and s.reason is None]

    def _admit(self) -> None:
        """Let queued requests in, first come first served, while there are free places and pages."""
        while self._queue and len(self._streams) < self._max_streams:
            stream = self._queue[0]
            if self._open(stream):
                self._streams[stream.id] = stream
            elif self._streams or self._closing:
                return  # whoever runs now will make room
            else:
                held = PoolExhaustedError("Pinned prefixes leave too few pages for this prompt: unpin or release some.")
                stream.end("error", held)
                self._ended.append(stream)
            self._queue.popleft()

    def _open(self, stream: Stream) -> bool:
        """Give a stream a session, its cached prefix and pages for its whole prompt; or nothing, and False."""
        if self._streams and not self._flat and not self._room.fits(stream, self._streams.values()):
            return False
        stream.session = Session(self.pool, n_ctx=self._evaluator.n_ctx, seed=stream.seed)
        stream.phase = "prefilling"
        self._attach(stream)
        if not self._room.reserve(stream, stream.session.n_ctx if self._flat else stream.remaining):
            stream.session.release()
            stream.session, stream.phase, stream.n_cached, stream.explained = None, "queued", 0, False
            return False
        stream.admitted = self._clock()
        return True

    def _attach(self, stream: Stream) -> None:
        """Go on from cached pages as far as there are any, and know why there are no more."""
        if self.cache is None or stream.phase != "prefilling":
            return
        request = stream.request
        spared = self.cache.attach(stream.live_session, request.prompt, whole=request.kind == "warm")
        stream.n_cached += spared
        if spared or not stream.explained:
            stream.miss = self.cache.explain(request.prompt, request.chat)
            stream.explained = True

    def _make_room(self, streams: list[Stream]) -> list[Stream]:
        """Reserve the next row of every stream. While the pool is dry: shed cached pages; give up completing last
        pages; end the youngest stream. Returns those that still run."""
        while streams:
            try:
                reserve_all([stream.live_session for stream in streams])
                break
            except PoolExhaustedError as dry:
                if self._room.shed(dry.missing, streams[0].request.chat) or self._abandon_closing():
                    continue
                youngest = next(reversed(self._streams.values()))
                youngest.end("evicted")
                self._retire(youngest)
                streams = [stream for stream in streams if stream is not youngest]
        return streams

    def _decode(self, streams: list[Stream]) -> tuple[int | None, list[Stream]]:
        """One token of every stream, and a part of a prompt in the same pass where the arithmetic allows that. Returns
        how many prompt tokens the step may still read (None: what the pace grants) and streams whose prompt is read."""
        waiting, budget = self._waiting(), None
        if waiting and self._decoder.knows(streams):
            reader, budget = waiting[0], self._decoder.budget(streams)
            if budget <= self._evaluator.shared_rows - len(streams):
                self._attach(reader)
                part, last = reader.next_part(budget)
                if part and self._decoder.together(streams, reader, part, last=last):
                    self._has_read(reader, last)
                    return budget - len(part), [reader] if reader.phase == "decoding" else []
        self._decoder.alone(streams)
        return budget, []

    def _sample(self, streams: list[Stream]) -> None:
        """Choose the next token of every stream whose evaluation went well."""
        sample(self._evaluator, [s for s in streams if s.reason is None], self._step.events, self._clock)

    def _prefill(self, budget: int | None) -> list[Stream]:
        """Read up to ``budget`` prompt tokens, shortest rest first; returns the streams whose prompt is read."""
        start, before, read = time.perf_counter(), self._step.tokens_read, []
        budget = self._pace.budget(self._step.decode_s) if budget is None else budget
        for stream in self._waiting() if budget else ():
            if budget == 0:
                break
            budget -= self._read(stream, budget)
            if stream.phase == "decoding":
                read.append(stream)
        seconds = time.perf_counter() - start
        self._step.prefill_s += seconds
        self._pace.spent(self._step.tokens_read - before, seconds)
        return read

    def _waiting(self) -> list[Stream]:
        """Streams with something to read, in the order in which they get it."""
        waiting = self._running("prefilling") + self._closing
        if self._step.step % OLDEST_FIRST_EVERY:
            waiting.sort(key=lambda stream: stream.remaining)
        return waiting

    def _read(self, stream: Stream, budget: int) -> int:
        """Evaluate the next tokens of a stream's target, at most ``budget``; returns how many."""
        self._attach(stream)
        part, last = stream.next_part(budget)
        if part:
            self._step.read(stream.id, len(part))
            try:
                self._evaluator.eval(stream.live_session, part, logits=last and stream.wants_token)
            except Exception as error:
                self._reading_failed(stream, error)
                return len(part)
        self._has_read(stream, last)
        return len(part)

    def _has_read(self, stream: Stream, last: bool) -> None:
        if self._share_in_flight or stream.phase == "closing":
            self._donate(stream)
        if last:
            self._reading_done(stream)

    def _reading_done(self, stream: Stream) -> None:
        if stream.phase == "closing":
            self._closing.remove(stream)
            self._let_go(stream)
        elif stream.request.kind == "warm":
            stream.end("length")
        else:
            stream.phase = "decoding"

    def _reading_failed(self, stream: Stream, error: Exception) -> None:
        if stream.phase == "closing":  # its reply is complete; only the next turn's start would have gained
            log.warning("The last page of stream %d could not be completed: %s", stream.id, error)
            self._closing.remove(stream)
            self._let_go(stream)
        else:
            stream.end("error", error)

    def _reap(self) -> None:
        """Every stream that has ended tells its last event and donates and returns its pages."""
        for stream in [*self._ended, *(s for s in self._streams.values() if s.reason is not None)]:
            self._retire(stream)
        self._ended.clear()

    # The one way out

    def _retire(self, stream: Stream, *, donate: bool = True) -> None:
        """However a stream ended: flush its text, donate what it has read, complete its last page, return its pages."""
        self._flush(stream)
        self._streams.pop(stream.id, None)
        if stream.session is not None:
            keep = donate and self.cache is not None
            stream.session.truncate(min(stream.session.n_past, len(stream.history())))
            if keep:
                self._donate(stream)
            if keep and self._complete_last_page(stream):
                self._closing.append(stream)
            else:
                self._let_go(stream)
        self._step.events.append(stream.finished(self._clock()))

    def _flush(self, stream: Stream) -> None:
        try:
            tail = stream.text.flush()
        except Exception as error:
            stream.reason, stream.error = "error", error
            return
        if tail:
            self._step.events.append(Piece(stream.id, None, tail))

    def _donate(self, stream: Stream) -> None:
        if self.cache is not None:
            request = stream.request
            stream.chain = self.cache.insert(
                stream.live_session, label=request.label, chat=request.chat, grows=stream.chain
            )

    def _complete_last_page(self, stream: Stream) -> bool:
        """Whether (history + close)[n_past:] completes a page that the next turn can attach, and there is room for it.

        That tail is then read like a prompt, as bounded work of later steps.
        """
        session, rows = stream.live_session, self.pool.page_rows
        goal = [*stream.history(), *stream.closing_tokens()]
        whole = min(len(goal), session.n_ctx) // rows * rows
        if whole <= session.n_past or not self._room.reserve(stream, whole - session.n_past):
            return False
        stream.target, stream.phase = goal[:whole], "closing"
        return True

    def _let_go(self, stream: Stream) -> None:
        stream.live_session.release()
        stream.session = None

    def _abandon_closing(self) -> bool:
        """Return the pages of streams whose last page is being completed; False if there is none."""
        abandoned, self._closing = self._closing, []
        for stream in abandoned:
            self._let_go(stream)
        return bool(abandoned)

    def _report(self) -> StepReport:
        evictions = () if self.cache is None else self.cache.take_evictions()
        return self._step.report(self.pool.counts(), len(self._queue), self.states(), evictions)

    def check_integrity(self) -> None:
        """Raise ``IntegrityError`` unless every page is accounted for."""
        if self.cache is not None:
            self.cache.check_integrity()
        else:
            self.pool.check_integrity()
