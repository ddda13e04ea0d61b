"""``/v1/chat/completions`` and ``/v1/completions``, buffered and streamed."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable

from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from engine.errors import EngineError
from engine.hosting.bundle import Bundle
from engine.scheduling.request import Request
from engine.serving.delivery import EventStream, whole_reply
from engine.serving.fields import Fields
from engine.serving.messages import Wanted, one_prompt, turns, wanted
from engine.serving.problems import from_engine
from engine.serving.prompts import chat_request, constrained, plain_request
from engine.serving.state import ServerState, model_id, read_body
from engine.serving.wire import Reply


async def chat_completions(http: HttpRequest) -> Response:
    """A reply to a conversation."""
    state: ServerState = http.app.state.server
    fields = Fields.parse(await read_body(http))
    options, conversation = wanted(fields, chat=True), turns(fields)
    bundle = state.bundle(fields.text("model", ""))
    return await _answer(http, bundle, options, lambda stream: chat_request(bundle, stream, conversation, options))


async def completions(http: HttpRequest) -> Response:
    """Text that goes on from a prompt: a string or a list of token ids."""
    state: ServerState = http.app.state.server
    fields = Fields.parse(await read_body(http))
    options = wanted(fields, chat=False)
    bundle = state.bundle(fields.text("model", ""))
    prompt = one_prompt(fields, bundle.info.n_vocab)
    return await _answer(http, bundle, options, lambda stream: plain_request(bundle, stream, prompt, options))


async def _answer(http: HttpRequest, bundle: Bundle, options: Wanted, make: Callable[[int], Request]) -> Response:
    """Make the request and submit it, then stream or collect its reply."""
    state: ServerState = http.app.state.server
    chat = http.url.path.endswith("/chat/completions")
    box = state.open()
    try:
        request = await asyncio.to_thread(_make, state, bundle, options, lambda: make(box.stream))
        await asyncio.wrap_future(state.port.submit(request, bundle=bundle))
    except EngineError as error:
        state.end(box)
        raise from_engine(error, "messages" if chat else "prompt") from error
    except BaseException:
        state.end(box)
        raise
    reply = Reply(
        identifier=("chatcmpl-" if chat else "cmpl-") + uuid.uuid4().hex,
        model=model_id(bundle.info),
        created=int(time.time()),
        chat=chat,
        logprobs=options.logprobs,
        tokenizer=bundle.tokenizer,
    )
    if options.stream:
        return EventStream(state, box, reply, include_usage=options.include_usage)
    return await whole_reply(state, box, reply, http.receive)


def _make(state: ServerState, bundle: Bundle, options: Wanted, make: Callable[[], Request]) -> Request:
    """On a worker thread: templates, tokenizers and grammars take their time."""
    request = make()
    if options.schema is None:
        return request
    return constrained(request, state.grammars(bundle).json(options.schema))
