"""What the routes share: the port, the broker, the loaded model, limits."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from starlette.requests import Request as HttpRequest

from engine.catalog.known import known_models
from engine.hosting.bundle import Bundle
from engine.loop import EngineLoop
from engine.port import ModelInfo
from engine.serving.broker import Broker, Mailbox
from engine.serving.constraint import Grammars
from engine.serving.options import ServerOptions
from engine.serving.problems import ApiError

FIRST_STREAM = 1 << 40
"""Stream ids of servers start here, far above those of the window's chats."""

_stream_ids = itertools.count(FIRST_STREAM)


def model_id(info: ModelInfo) -> str:
    """The name that clients see and ask for: the catalogue's id for a known file, else the file's name."""
    file = Path(info.path)
    return next((known.id for known in known_models() if known.file == file.name), file.stem)


class ServerState:
    """One server over one engine loop; used on the server's thread (``grammars`` on any)."""

    def __init__(self, port: EngineLoop, broker: Broker, options: ServerOptions) -> None:
        self.port = port
        self.broker = broker
        self.options = options
        self.draining = False
        self.started = int(time.time())
        self._embedding = 0
        self._grammars: tuple[Bundle, Grammars] | None = None
        self._building = threading.Lock()

    # What is served

    def bundle(self, wanted_model: str = "") -> Bundle:
        """The loaded model's parts; 503 while there is none, 404 for another model's name."""
        bundle = self.port.bundle
        if bundle is None:
            raise ApiError(503, "No model is loaded yet; try again in a moment.", code="not_loaded")
        known = model_id(bundle.info)
        if wanted_model and wanted_model.casefold() not in (known.casefold(), bundle.info.name.casefold(), "default"):
            raise ApiError(
                404,
                f"The model {wanted_model!r:.100} is not loaded; this server has {known!r}.",
                param="model",
                code="model_not_found",
            )
        return bundle

    def grammars(self, bundle: Bundle) -> Grammars:
        """The grammar builder of the loaded model, made on first use (which takes a moment)."""
        with self._building:
            if self._grammars is None or self._grammars[0] is not bundle:
                made = Grammars(bundle.tokenizer, bundle.renderer.stop_ids, bundle.info.n_vocab)
                self._grammars = (bundle, made)
            return self._grammars[1]

    # Who is served

    @property
    def busy(self) -> int:
        """Requests that are being worked on."""
        return len(self.broker) + self._embedding

    def check_room(self) -> None:
        """503 while draining, 429 while too many requests wait."""
        if self.draining:
            raise ApiError(503, "The server is shutting down.", code="draining")
        if self.busy >= self.options.max_waiting:
            raise ApiError(429, "Too many requests wait already; try again in a moment.", code="queue_full")

    def open(self) -> Mailbox:
        """A place for a new stream, with an id that nobody else uses; 503 and 429 as in ``check_room``."""
        self.check_room()
        return self.broker.open(next(_stream_ids))

    def end(self, box: Mailbox) -> None:
        """The client has what it wanted, or has left: forget the stream, and end it if it still runs."""
        if self.broker.close(box.stream) and not box.ended:
            self.port.cancel(box.stream)

    @contextmanager
    def embedding(self) -> Iterator[None]:
        """A place for a request for embeddings; 503 and 429 as in ``check_room``."""
        self.check_room()
        self._embedding += 1
        try:
            yield
        finally:
            self._embedding -= 1


async def read_body(http: HttpRequest) -> bytes:
    """The body; 413 as soon as it outgrows the limit, 408 when it takes too long."""
    options: ServerOptions = http.app.state.server.options
    limit = options.max_body
    declared = http.headers.get("content-length", "")
    too_large = ApiError(413, f"The body is larger than {limit:,} bytes.", code="too_large")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(options.body_s):
            async for chunk in http.stream():
                body += chunk
                if len(body) > limit:
                    raise too_large
    except TimeoutError as error:
        raise ApiError(408, f"The body did not arrive within {options.body_s:g} seconds.", code="timeout") from error
    return bytes(body)


async def until_left(receive: Callable[[], Awaitable[Any]]) -> None:
    """Return when the client closes its connection (the body has been read)."""
    while (await receive())["type"] != "http.disconnect":
        pass
