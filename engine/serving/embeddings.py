"""``/v1/embeddings``: mean-pooled, normalised final states. They bypass the prefix cache."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from engine.errors import EngineError
from engine.hosting.bundle import Bundle
from engine.serving.delivery import CLIENT_LEFT
from engine.serving.fields import Fields
from engine.serving.messages import token_ids
from engine.serving.problems import ApiError, bad, from_engine
from engine.serving.state import ServerState, model_id, read_body, until_left

MAX_INPUTS = 256


async def embeddings(http: HttpRequest) -> Response:
    """One vector for each input: a string or a list of token ids, or a list of either."""
    state: ServerState = http.app.state.server
    fields = Fields.parse(await read_body(http))
    encoding = fields.text("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise bad("encoding_format", "must be float or base64.")
    bundle = state.bundle(fields.text("model", ""))
    dimensions = fields.integer("dimensions", None, 1, 1 << 20)
    with state.embedding():
        try:
            texts = await asyncio.to_thread(_inputs, bundle, fields.get("input"))
            vectors = await _while_connected(http, state, texts)
        except EngineError as error:
            raise from_engine(error, "input") from error
    if vectors is None:
        return Response(status_code=CLIENT_LEFT)
    if dimensions is not None and dimensions != len(vectors[0]):
        raise bad("dimensions", f"this model's vectors have {len(vectors[0])}.")
    total = sum(len(ids) for ids in texts)
    return JSONResponse(
        {
            "object": "list",
            "model": model_id(bundle.info),
            "data": [
                {"object": "embedding", "index": i, "embedding": _encoded(vector, encoding)}
                for i, vector in enumerate(vectors)
            ],
            "usage": {"prompt_tokens": total, "total_tokens": total},
        }
    )


async def _while_connected(
    http: HttpRequest, state: ServerState, texts: list[tuple[int, ...]]
) -> list[np.ndarray] | None:
    """The vectors; None once the client has gone, and then no further text is worked on."""
    leaving = asyncio.ensure_future(until_left(http.receive))
    vectors: list[np.ndarray] = []
    try:
        async with asyncio.timeout(state.options.timeout_s):
            for ids in texts:
                if leaving.done():
                    return None
                rows = await asyncio.wrap_future(state.port.embed((ids,)))
                vectors.append(_normalised(rows[0]))
    except TimeoutError as error:
        raise ApiError(504, "The embeddings took too long; send fewer or shorter inputs.", code="timeout") from error
    finally:
        leaving.cancel()
    return vectors


def _normalised(vector: np.ndarray) -> np.ndarray:
    """The vector with length 1, float32; zeros stay zeros."""
    length = float(np.linalg.norm(vector))
    return np.asarray(vector / length if length else vector, dtype=np.float32)


def _encoded(vector: np.ndarray, encoding: str) -> str | list[float]:
    if encoding == "base64":
        return base64.b64encode(np.ascontiguousarray(vector, dtype="<f4").tobytes()).decode("ascii")
    return [float(x) for x in vector]


def _inputs(bundle: Bundle, value: Any) -> list[tuple[int, ...]]:
    """One id list per input. On a worker thread."""
    if isinstance(value, str) or (isinstance(value, list) and value and all(type(t) is int for t in value)):
        value = [value]
    if not isinstance(value, list) or not 0 < len(value) <= MAX_INPUTS:
        raise bad("input", f"must be a string or a list of 1 to {MAX_INPUTS} inputs.")
    texts = []
    for i, item in enumerate(value):
        ids = tuple(bundle.encode_prompt(item)) if isinstance(item, str) else token_ids(item, bundle.info.n_vocab)
        if ids is None:
            raise bad(f"input[{i}]", "must be a string or a list of token ids.")
        if not 0 < len(ids) <= bundle.info.n_ctx:
            raise bad(f"input[{i}]", f"has {len(ids)} tokens; 1 to {bundle.info.n_ctx} are possible.")
        texts.append(ids)
    return texts
