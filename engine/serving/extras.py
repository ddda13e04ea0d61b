"""The smaller routes: models, tokenize, stats, streams, health."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Any

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from engine.errors import EngineError
from engine.hosting.bundle import Bundle
from engine.port import Snapshot, Turn
from engine.serving.fields import Fields
from engine.serving.messages import turns
from engine.serving.problems import ApiError, from_engine
from engine.serving.state import ServerState, model_id, read_body


async def health(http: HttpRequest) -> Response:
    """200 while a model is loaded and requests are taken, 503 otherwise."""
    state: ServerState = http.app.state.server
    if state.draining:
        raise ApiError(503, "The server is shutting down.", code="draining")
    state.bundle()
    return JSONResponse({"status": "ok"})


async def models(http: HttpRequest) -> Response:
    """The one model that is loaded."""
    state: ServerState = http.app.state.server
    return JSONResponse({"object": "list", "data": [_model(state, state.bundle())]})


async def model(http: HttpRequest) -> Response:
    """One model by its id; 404 for any other."""
    state: ServerState = http.app.state.server
    return JSONResponse(_model(state, state.bundle(http.path_params["model_id"])))


def _model(state: ServerState, bundle: Bundle) -> dict[str, Any]:
    info = bundle.info
    return {
        "id": model_id(info),
        "object": "model",
        "created": state.started,
        "owned_by": "local",
        "max_model_len": info.n_ctx,
        "name": info.name,
    }


async def tokenize(http: HttpRequest) -> Response:
    """The token ids of ``prompt`` (or ``text``, or ``content``), or of the prompt that ``messages`` make.

    ``special``: control tokens in the text count as such; ``add_special_tokens``: with what a prompt begins with.
    """
    state: ServerState = http.app.state.server
    fields = Fields.parse(await read_body(http))
    bundle = state.bundle(fields.text("model", ""))
    field = next((name for name in ("messages", "text", "content") if fields.get(name) is not None), "prompt")
    special, whole = fields.flag("special"), fields.flag("add_special_tokens")
    conversation = turns(fields) if field == "messages" else ()
    text = "" if conversation else fields.text(field)
    try:
        ids = await asyncio.to_thread(_token_ids, bundle, conversation, text, special, whole)
    except EngineError as error:
        raise from_engine(error, field) from error
    return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": bundle.info.n_ctx})


def _token_ids(bundle: Bundle, conversation: tuple[Turn, ...], text: str, special: bool, whole: bool) -> list[int]:
    if conversation:
        return list(bundle.renderer.render_prompt(conversation).ids)
    if whole and not special:
        return list(bundle.encode_prompt(text))
    tokenizer: Any = bundle.tokenizer
    ids: list[int] = tokenizer.encode(text, special=True) if special else tokenizer.encode(text)
    return tokenizer.with_bos(ids) if whole else ids


async def _snapshot(state: ServerState) -> Snapshot:
    try:
        return await asyncio.wrap_future(state.port.snapshot())
    except EngineError as error:
        raise from_engine(error) from error


async def stats(http: HttpRequest) -> Response:
    """What the window's docks show: pool, chains, counters."""
    state: ServerState = http.app.state.server
    info = state.bundle().info
    snapshot = await _snapshot(state)
    return JSONResponse(
        {
            "model": model_id(info),
            "step": snapshot.step,
            "pool": asdict(snapshot.pool),
            "page_rows": snapshot.page_rows,
            "page_bytes": snapshot.page_bytes,
            "integrity": snapshot.integrity or "ok",
            "chains": [asdict(chain) for chain in snapshot.chains],
            "finished": dict(state.broker.tally.finished),
        }
    )


async def streams(http: HttpRequest) -> Response:
    """Every stream that is queued or running, the window's included, with the pages it holds."""
    state: ServerState = http.app.state.server
    state.bundle()
    snapshot = await _snapshot(state)
    pages = snapshot.stream_pages
    return JSONResponse(
        {"streams": [{**asdict(stream), "pages": pages.get(stream.stream, ())} for stream in snapshot.streams]}
    )
