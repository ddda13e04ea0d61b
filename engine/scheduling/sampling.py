"""From logits to events: sample one token for each stream, turn it into text, notice when a reply ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from engine.scheduling.evaluator import Evaluator
from engine.scheduling.events import Piece, SchedEvent
from engine.scheduling.logprobs import logprobs
from engine.scheduling.stream import Stream


def isolated(streams: Sequence[Stream], call: Callable[[Sequence[Stream]], None]) -> None:
    """``call`` for all streams at once. If that fails, for one after the other, so that an error ends only the stream
    that causes it (and is told in that stream's last event)."""
    if not streams:
        return
    try:
        call(streams)
    except Exception as error:
        if len(streams) == 1:
            streams[0].end("error", error)
            return
        for stream in streams:
            isolated([stream], call)


def sample(
    evaluator: Evaluator, streams: Sequence[Stream], events: list[SchedEvent], clock: Callable[[], float]
) -> None:
    """Choose the next token of each stream and add its events. Streams whose reply ends with it get a reason."""
    isolated(streams, lambda part: _choose(evaluator, part))
    now = clock()
    for stream in streams:
        if stream.reason is None:
            isolated([stream], lambda part: events.extend(_accept(part[0], now)))


def _choose(evaluator: Evaluator, streams: Sequence[Stream]) -> None:
    sessions = [stream.live_session for stream in streams]
    for stream in streams:
        if stream.request.logprobs is not None:
            logits = stream.live_session.logits
            stream.raw_logits = None if logits is None else logits.copy()  # sampling may change them in place
    masks: list[np.ndarray | None] | None = None
    if any(stream.request.constraint is not None for stream in streams):
        masks = [s.request.constraint.mask() if s.request.constraint is not None else None for s in streams]
    tokens = evaluator.sample_batch(sessions, [stream.request.sampling for stream in streams], masks=masks)
    for stream, token in zip(streams, tokens, strict=True):
        stream.chosen = token


def _accept(stream: Stream, now: float) -> list[SchedEvent]:
    """A token was chosen: end the reply if it is a stop token, else make it visible."""
    request, token = stream.request, stream.chosen
    if token in request.stop_ids:
        stream.end("stop")
        return []
    stream.generated.append(token)
    stream.first_token = now if stream.first_token is None else stream.first_token
    stream.last_token = now
    if request.constraint is not None:
        request.constraint.accept(token)
    text, stopped = stream.text.push(token)
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    if request.logprobs is not None and stream.raw_logits is not None:
        logprob, top = logprobs(stream.raw_logits, token, request.logprobs)
    if stopped:
        stream.end("stop")
    elif len(stream.generated) >= stream.limit:
        stream.end("length")
    return [Piece(stream.id, token, text, logprob, top)]
