"""What the routes share: the port, the broker, the loaded model, limits."""

from __future__ import annotations

import itertools
from typing import Any

from starlette.requests import Request as HttpRequest

from engine.serving.broker import Broker
from engine.serving.constraint import Grammars
from engine.serving.options import ServerOptions
from engine.serving.problems import ApiError

FIRST_STREAM = 1 << 40
"""Stream ids of the server start here, far above those of the window's chats."""


class ServerState:
    """One server over one engine loop. ``port`` is an ``EngineLoop``: the port, and ``bundle`` for what is loaded."""

    def __init__(self, port: Any, broker: Broker, options: ServerOptions) -> None:
        self.port = port
        self.broker = broker
        self.options = options
        self.draining = False
        self._streams = itertools.count(FIRST_STREAM)
        self._grammars: tuple[Any, Grammars] | None = None

    def next_stream(self) -> int:
        """A stream id that nobody else uses."""
        return next(self._streams)

    def bundle(self, wanted_model: str = "") -> Any:
        """The loaded model's parts; 503 while there is none or the server drains, 404 for another model's name."""
        if self.draining:
            raise ApiError(503, "The server is shutting down.", code="draining")
        bundle = self.port.bundle
        if bundle is None:
            raise ApiError(503, "No model is loaded yet; try again in a moment.", code="not_loaded")
        if wanted_model and wanted_model not in (bundle.info.name, "default"):
            raise ApiError(
                404,
                f"The model {wanted_model!r:.100} is not loaded; this server has {bundle.info.name!r}.",
                param="model",
                code="model_not_found",
            )
        return bundle

    def grammars(self, bundle: Any) -> Grammars:
        """The grammar builder of the loaded model, made on first use."""
        if self._grammars is None or self._grammars[0] is not bundle:
            made = Grammars(bundle.tokenizer, bundle.renderer.stop_ids, bundle.info.n_vocab)
            self._grammars = (bundle, made)
        return self._grammars[1]

    def abandon(self, stream: int) -> None:
        """The client has what it wanted, or has left: forget the stream and end it if it still runs."""
        self.broker.close(stream)
        self.port.cancel(stream)

    def flush_pause(self) -> float:
        """Seconds between two chunks of a stream: none while few streams run."""
        return self.options.flush_s if self.broker.open_streams > 2 else 0.0


async def read_body(http: HttpRequest) -> bytes:
    """The body, refused with 413 as soon as it outgrows the limit."""
    limit = http.app.state.server.options.max_body
    declared = http.headers.get("content-length", "")
    too_large = ApiError(413, f"The body is larger than {limit:,} bytes.", code="too_large")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    body = bytearray()
    async for chunk in http.stream():
        body += chunk
        if len(body) > limit:
            raise too_large
    return bytes(body)
