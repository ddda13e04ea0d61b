"""Start and stop the HTTP API over an engine loop: in a thread of its own, beside a window or a terminal."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from typing import Any

import uvicorn

from engine.errors import EngineError
from engine.serving.app import build_app
from engine.serving.broker import Broker
from engine.serving.options import ServerOptions
from engine.serving.state import ServerState


class Server:
    """The HTTP API in its own thread and event loop.

    ``port`` is an ``EngineLoop``; ``attach`` adds the broker to the sinks that the loop reports to and returns a
    function that takes it off again. ``start`` returns when connections are accepted; ``stop`` drains.
    """

    def __init__(self, port: Any, attach: Callable[[Broker], Callable[[], None]], options: ServerOptions) -> None:
        options.check()
        self.options = options
        self._port = port
        self._attach = attach
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._server: uvicorn.Server | None = None
        self._state: ServerState | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="kvscope-http")
        self.address = ("", 0)

    def start(self) -> None:
        """Listen; raises ``EngineError`` with a sentence where the address is taken or not ours."""
        listener = self._listen()
        self.address = listener.getsockname()[:2]
        self._listener = listener
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            raise EngineError(f"The server could not start: {self._failure}.")

    def stop(self) -> None:
        """Refuse new requests, let running ones end within ``drain_s``, then close."""
        if self._server is not None and self._loop is not None and self._state is not None:
            self._state.draining = True
            self._server.should_exit = True
        self._thread.join()

    def _listen(self) -> socket.socket:
        family = socket.AF_INET6 if ":" in self.options.host else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((self.options.host, self.options.port))
        except OSError as error:
            listener.close()
            raise EngineError(
                f"Cannot listen on {self.options.host}:{self.options.port} ({error.strerror or error}); "
                "choose another --port or --host."
            ) from error
        return listener

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        broker = Broker(self._loop)
        self._state = ServerState(self._port, broker, self.options)
        config = uvicorn.Config(
            build_app(self._state),
            log_level="warning",
            access_log=False,
            lifespan="off",
            timeout_graceful_shutdown=int(self.options.drain_s),
            server_header=False,
        )
        self._server = uvicorn.Server(config)
        detach = self._attach(broker)
        try:
            serving = asyncio.ensure_future(self._server.serve(sockets=[self._listener]))
            while not self._server.started and not serving.done():
                await asyncio.sleep(0.01)
            self._ready.set()
            await serving
        finally:
            detach()
