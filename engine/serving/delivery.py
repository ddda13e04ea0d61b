"""A reply on its way to the client: as server-sent events, or whole. A client that goes away ends its stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from engine.scheduling.events import Finished, Piece
from engine.serving.broker import Mailbox
from engine.serving.problems import ApiError
from engine.serving.state import ServerState, until_left
from engine.serving.wire import Reply, sse

CLIENT_LEFT = 499
"""The status of an answer that nobody reads (for logs)."""

_TOO_LONG = "The reply took longer than {seconds:g} seconds and was stopped."


@asynccontextmanager
async def _serving(state: ServerState, box: Mailbox, receive: Callable[[], Awaitable[Any]]) -> AsyncIterator[None]:
    """Watch the connection while a reply is delivered. However that ends, the stream ends with it."""

    async def watch() -> None:
        await until_left(receive)
        box.leave()
        state.end(box)

    watching = asyncio.ensure_future(watch())
    try:
        async with asyncio.timeout(state.options.timeout_s):
            yield
    finally:
        watching.cancel()
        state.end(box)


class EventStream(Response):
    """Server-sent events until the reply ends."""

    media_type = "text/event-stream"

    def __init__(self, state: ServerState, box: Mailbox, reply: Reply, *, include_usage: bool) -> None:
        self._state = state
        self._box = box
        self._reply = reply
        self._include_usage = include_usage
        self.status_code = 200
        self.background = None
        self.init_headers({"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send events as they come."""
        try:
            async with _serving(self._state, self._box, receive):
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await self._send_all(send)
        except TimeoutError:
            problem = ApiError(504, _TOO_LONG.format(seconds=self._state.options.timeout_s), code="timeout")
            await _send(send, sse(problem.body()) + sse("[DONE]"))
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        opening = self._reply.opening()
        body = b"" if opening is None else sse(opening)
        while events := await self._box.take():
            last = events[-1]
            chunk = self._reply.take([event for event in events if isinstance(event, Piece)])
            if chunk is not None:
                body += sse(chunk)
            if isinstance(last, Finished):
                await _send(send, body + self._ending(last))
                return
            if body:
                await _send(send, body)
            body = b""

    def _ending(self, finished: Finished) -> bytes:
        problem = _problem(finished)
        if problem is not None:
            return sse(problem.body()) + sse("[DONE]")
        body = sse(self._reply.closing(finished))
        if self._include_usage:
            body += sse(self._reply.usage_chunk(finished))
        return body + sse("[DONE]")


async def _send(send: Send, body: bytes) -> None:
    await send({"type": "http.response.body", "body": body, "more_body": True})


async def whole_reply(
    state: ServerState, box: Mailbox, reply: Reply, receive: Callable[[], Awaitable[Any]]
) -> Response:
    """The whole reply at once."""
    try:
        async with _serving(state, box, receive):
            finished = await _read_all(box, reply)
    except TimeoutError as error:
        raise ApiError(504, _TOO_LONG.format(seconds=state.options.timeout_s), code="timeout") from error
    if finished is None:
        return Response(status_code=CLIENT_LEFT)
    problem = _problem(finished)
    if problem is not None:
        raise problem
    return JSONResponse(reply.whole(finished))


async def _read_all(box: Mailbox, reply: Reply) -> Finished | None:
    """Take events until the last one; None when the client has left."""
    while events := await box.take():
        reply.take([event for event in events if isinstance(event, Piece)])
        if isinstance(events[-1], Finished):
            return events[-1]
    return None


def _problem(finished: Finished) -> ApiError | None:
    """What went wrong with a reply that did not end by itself. A reply that was evicted ends for lack of room."""
    if finished.reason == "error":
        return ApiError(500, finished.error or "The engine failed on this request.", code=finished.error_code or None)
    if finished.reason == "cancelled":
        return ApiError(503, "The reply was stopped: the model was unloaded or the server ends.", code="cancelled")
    return None
