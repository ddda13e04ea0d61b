"""The smaller routes: models, embeddings, tokenize, stats, streams, health."""

from __future__ import annotations

import asyncio
import base64
import time
from dataclasses import asdict
from typing import Any

import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from engine.errors import EngineError
from engine.serving.fields import Fields
from engine.serving.problems import bad, from_engine
from engine.serving.state import ServerState, read_body

MAX_INPUTS = 256


async def health(http: HttpRequest) -> Response:
    """200 while a model is loaded and requests are taken."""
    state: ServerState = http.app.state.server
    state.bundle()
    return JSONResponse({"status": "ok"})


async def models(http: HttpRequest) -> Response:
    """The one model that is loaded."""
    state: ServerState = http.app.state.server
    info = state.bundle().info
    entry = {
        "id": info.name,
        "object": "model",
        "created": int(time.time()),
        "owned_by": "local",
        "context_length": info.n_ctx,
    }
    return JSONResponse({"object": "list", "data": [entry]})


async def model(http: HttpRequest) -> Response:
    """One model by its id; 404 for any other."""
    state: ServerState = http.app.state.server
    info = state.bundle(http.path_params["model_id"]).info
    return JSONResponse({"id": info.name, "object": "model", "created": int(time.time()), "owned_by": "local"})


async def tokenize(http: HttpRequest) -> Response:
    """{"text" or "prompt", "special"} -> {"tokens", "count"}."""
    state: ServerState = http.app.state.server
    fields = Fields.parse(await read_body(http))
    text = fields.text("text") if fields.get("text") is not None else fields.text("prompt")
    special = fields.flag("special")
    tokenizer = state.bundle().tokenizer
    try:
        ids = await asyncio.to_thread(tokenizer.encode, text, special=special)
    except EngineError as error:
        raise from_engine(error) from error
    return JSONResponse({"tokens": ids, "count": len(ids)})


async def embeddings(http: HttpRequest) -> Response:
    """Mean-pooled, normalised hidden states of each input; they bypass the prefix cache."""
    state: ServerState = http.app.state.server
    fields = Fields.parse(await read_body(http))
    encoding = fields.text("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise bad("encoding_format", "must be float or base64.")
    bundle = state.bundle(fields.text("model", ""))
    lists = await _inputs(bundle, fields.get("input"))
    try:
        vectors: np.ndarray = await asyncio.wrap_future(state.port.embed(tuple(lists)))
    except EngineError as error:
        raise from_engine(error) from error
    data = [
        {"object": "embedding", "index": i, "embedding": _encoded(vector, encoding)} for i, vector in enumerate(vectors)
    ]
    total = sum(len(ids) for ids in lists)
    counts = {"prompt_tokens": total, "total_tokens": total}
    return JSONResponse({"object": "list", "model": bundle.info.name, "data": data, "usage": counts})


def _encoded(vector: np.ndarray, encoding: str) -> Any:
    if encoding == "base64":
        return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")
    return [float(x) for x in vector]


async def _inputs(bundle: Any, value: Any) -> list[tuple[int, ...]]:
    """One id list per input: strings, a list of ids, or a list of either."""
    if isinstance(value, str) or (isinstance(value, list) and value and all(type(t) is int for t in value)):
        value = [value]
    if not isinstance(value, list) or not 0 < len(value) <= MAX_INPUTS:
        raise bad("input", f"must be a string or a list of 1 to {MAX_INPUTS} inputs.")
    lists = []
    for item in value:
        if isinstance(item, str):
            try:
                ids = tuple(await asyncio.to_thread(bundle.encode_prompt, item))
            except EngineError as error:
                raise from_engine(error) from error
        elif isinstance(item, list) and all(type(t) is int and 0 <= t < bundle.info.n_vocab for t in item):
            ids = tuple(item)
        else:
            raise bad("input", "each entry must be a string or a list of token ids.")
        if not 0 < len(ids) <= bundle.info.n_ctx:
            raise bad("input", f"each entry must have 1 to {bundle.info.n_ctx} tokens.")
        lists.append(ids)
    return lists


async def stats(http: HttpRequest) -> Response:
    """What the window's docks show: pool, chains, counters."""
    state: ServerState = http.app.state.server
    info = state.bundle().info
    snapshot = await asyncio.wrap_future(state.port.snapshot())
    return JSONResponse(
        {
            "model": info.name,
            "step": snapshot.step,
            "pool": asdict(snapshot.pool),
            "page_rows": snapshot.page_rows,
            "page_bytes": snapshot.page_bytes,
            "integrity": snapshot.integrity or "ok",
            "chains": [asdict(chain) for chain in snapshot.chains],
            "finished": state.broker.finished,
        }
    )


async def streams(http: HttpRequest) -> Response:
    """Every stream that is queued or running, the window's included."""
    state: ServerState = http.app.state.server
    state.bundle()
    snapshot = await asyncio.wrap_future(state.port.snapshot())
    return JSONResponse({"streams": [asdict(stream) for stream in snapshot.streams]})
