"""``/v1/chat/completions`` and ``/v1/completions``, buffered and streamed."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse

from engine.errors import EngineError
from engine.scheduling.events import Finished, Piece
from engine.scheduling.request import Request
from engine.serving.broker import Mailbox
from engine.serving.fields import Fields
from engine.serving.messages import Wanted, turns, wanted
from engine.serving.problems import ApiError, bad, from_engine
from engine.serving.state import ServerState, read_body
from engine.serving.wire import Reply, sse


async def chat_completions(http: HttpRequest) -> Response:
    """A reply to a conversation."""
    state: ServerState = http.app.state.server
    fields = Fields.parse(await read_body(http))
    options = wanted(fields, chat=True)
    conversation = turns(fields)
    bundle = state.bundle(fields.text("model", ""))
    try:
        rendered = await asyncio.to_thread(bundle.renderer.render_prompt, conversation)
    except EngineError as error:
        raise from_engine(error) from error
    label = next((t.text for t in reversed(conversation) if t.role == "user"), "")
    request = _request(state, bundle, tuple(rendered.ids), options, label)
    return await _answer(http, state, bundle, request, options, chat=True)


async def completions(http: HttpRequest) -> Response:
    """Text that goes on from a prompt: a string or a list of token ids."""
    state: ServerState = http.app.state.server
    fields = Fields.parse(await read_body(http))
    options = wanted(fields, chat=False)
    bundle = state.bundle(fields.text("model", ""))
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    ids = await _prompt_ids(bundle, prompt)
    label = prompt if isinstance(prompt, str) else "token ids"
    request = _request(state, bundle, ids, options, label)
    return await _answer(http, state, bundle, request, options, chat=False)


async def _prompt_ids(bundle: Any, prompt: Any) -> tuple[int, ...]:
    """Token ids of a prompt, b.o.s. included where the model wants one."""
    if isinstance(prompt, str):
        try:
            return tuple(await asyncio.to_thread(bundle.encode_prompt, prompt))
        except EngineError as error:
            raise from_engine(error) from error
    n_vocab = bundle.info.n_vocab
    if isinstance(prompt, list) and all(type(t) is int and 0 <= t < n_vocab for t in prompt):
        return tuple(prompt)
    raise bad("prompt", f"must be a string or a list of token ids from 0 to {n_vocab - 1}.")


def _request(state: ServerState, bundle: Any, ids: tuple[int, ...], options: Wanted, label: str) -> Request:
    room = bundle.info.n_ctx - len(ids)
    if not ids:
        raise bad("prompt", "is empty.")
    if room < 1:
        raise bad("prompt", f"has {len(ids)} tokens; the context holds {bundle.info.n_ctx}. Shorten it.")
    for token, _ in options.sampling.logit_bias:
        if token >= bundle.info.n_vocab:
            raise bad("logit_bias", f"{token} is beyond the vocabulary.")
    constraint = state.grammars(bundle).json(options.schema) if options.schema is not None else None
    return Request(
        id=state.next_stream(),
        prompt=ids,
        max_new=min(options.max_new or room, room),
        sampling=options.sampling,
        stop_ids=frozenset(bundle.renderer.stop_ids),
        stop_strings=options.stop_strings,
        close_tokens=tuple(bundle.renderer.render_close()),
        label=label[:200],
        chat="API",
        logprobs=options.logprobs,
        constraint=constraint,
    )


async def _answer(
    http: HttpRequest, state: ServerState, bundle: Any, request: Request, options: Wanted, *, chat: bool
) -> Response:
    """Submit, then stream or collect; the stream is cancelled when the client goes away."""
    if state.broker.open_streams >= state.options.max_waiting:
        raise ApiError(429, "Too many requests wait already; try again in a moment.", code="queue_full")
    reply = Reply(
        identifier=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
        model=bundle.info.name,
        created=int(time.time()),
        chat=chat,
        logprobs=options.logprobs,
        token_text=bundle.tokenizer.token_bytes,
    )
    box = state.broker.open(request.id)
    try:
        await asyncio.wrap_future(state.port.submit(request))
    except EngineError as error:
        state.broker.close(request.id)
        raise from_engine(error) from error
    except BaseException:
        state.abandon(request.id)
        raise
    if options.stream:
        return StreamingResponse(_stream(state, box, request, reply, options), media_type="text/event-stream")
    return await _collect(http, state, box, request, reply)


async def _stream(
    state: ServerState, box: Mailbox, request: Request, reply: Reply, options: Wanted
) -> AsyncIterator[bytes]:
    """Server-sent events until the reply ends; leaving early cancels it."""
    try:
        opening = reply.opening()
        if opening is not None:
            yield sse(opening)
        async with asyncio.timeout(state.options.timeout_s):
            async for batch in box.batches(state.flush_pause()):
                chunk = reply.take([e for e in batch if isinstance(e, Piece)])
                if chunk is not None:
                    yield sse(chunk)
                last = batch[-1] if batch else None
                if isinstance(last, Finished):
                    for body in _ending(reply, last, options):
                        yield sse(body)
    except TimeoutError:
        yield sse({"error": {"message": "The reply took too long and was stopped.", "type": "server_error"}})
        yield sse("[DONE]")
    finally:
        state.abandon(request.id)


def _ending(reply: Reply, finished: Finished, options: Wanted) -> list[dict[str, Any] | str]:
    """What a stream ends with."""
    if finished.reason == "error":
        problem = {"error": {"message": finished.error, "type": "server_error", "code": finished.error_code}}
        return [problem, "[DONE]"]
    bodies: list[dict[str, Any] | str] = [reply.closing(finished)]
    if options.include_usage:
        bodies.append(reply.usage_chunk(finished))
    return [*bodies, "[DONE]"]


async def _collect(http: HttpRequest, state: ServerState, box: Mailbox, request: Request, reply: Reply) -> Response:
    """The whole reply at once; a client that hangs up cancels it."""
    reading = asyncio.ensure_future(_read_all(box, reply))
    leaving = asyncio.ensure_future(_disconnected(http))
    try:
        done, _ = await asyncio.wait(
            {reading, leaving}, timeout=state.options.timeout_s, return_when=asyncio.FIRST_COMPLETED
        )
        if reading not in done:
            status = 499 if leaving in done else 504
            raise ApiError(status, "The reply took too long and was stopped.", code="timeout")
        finished = reading.result()
    finally:
        reading.cancel()
        leaving.cancel()
        state.abandon(request.id)
    if finished.reason == "error":
        raise ApiError(500, finished.error or "The engine failed on this request.", code=finished.error_code or None)
    return JSONResponse(reply.whole(finished))


async def _read_all(box: Mailbox, reply: Reply) -> Finished:
    async for batch in box.batches(0.0):
        reply.take([e for e in batch if isinstance(e, Piece)])
        if batch and isinstance(batch[-1], Finished):
            return batch[-1]
    raise AssertionError("a mailbox ends with Finished")


async def _disconnected(http: HttpRequest) -> None:
    while True:
        message = await http.receive()
        if message["type"] == "http.disconnect":
            return
