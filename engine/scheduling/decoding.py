"""The generated rows of a step, and where the arithmetic allows it a part of a prompt in the same pass."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from engine.scheduling.evaluator import Evaluator
from engine.scheduling.pace import Pace
from engine.scheduling.recorder import StepRecorder
from engine.scheduling.sampling import isolated
from engine.scheduling.stream import Stream

log = logging.getLogger(__name__)


class Decoder:
    """Evaluates the last tokens of streams and tells the step's recorder and the pace what that took."""

    def __init__(self, evaluator: Evaluator, pace: Pace, step: StepRecorder) -> None:
        self._evaluator = evaluator
        self._pace = pace
        self._step = step

    def alone(self, streams: Sequence[Stream]) -> None:
        """The last token of every stream, in one pass over the weights."""
        if not streams:
            return
        start = time.perf_counter()
        isolated(
            streams,
            lambda part: self._evaluator.eval_batch([s.live_session for s in part], [s.generated[-1] for s in part]),
        )
        self._step.decoded = tuple(stream.id for stream in streams)
        self._step.decode_s = time.perf_counter() - start
        self._pace.decoded(len(streams), self._step.decode_s)

    def knows(self, streams: Sequence[Stream]) -> bool:
        """Whether a prompt may come along: there is room, and what these streams take without one was measured."""
        return 0 < len(streams) < self._evaluator.shared_rows and self._pace.knows(len(streams))

    def budget(self, streams: Sequence[Stream]) -> int:
        """Prompt tokens that the pace grants beside these streams."""
        return self._pace.budget(self._pace.expected(len(streams)))

    def together(self, streams: Sequence[Stream], reader: Stream, part: list[int], *, last: bool) -> bool:
        """As ``alone``, and ``part`` of the reader's target in the same pass. False if that failed: evaluated apart,
        the streams will show whose fault it is."""
        sessions, tokens = [s.live_session for s in streams], [s.generated[-1] for s in streams]
        start = time.perf_counter()
        try:
            self._evaluator.eval_together(
                sessions, tokens, reader.live_session, part, logits=last and reader.wants_token
            )
        except Exception as error:
            log.debug("Streams and a prompt are evaluated apart: %s", error)
            return False
        whole = time.perf_counter() - start
        self._step.decoded = tuple(stream.id for stream in streams)
        self._step.read(reader.id, len(part))
        self._step.prefill_s = self._pace.shared(len(part), len(streams), whole)
        self._step.decode_s = whole - self._step.prefill_s
        return True
