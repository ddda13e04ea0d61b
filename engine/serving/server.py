"""Start and stop the HTTP API over an engine loop: in a thread of its own, beside a window or a terminal."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Callable

import uvicorn

from engine.errors import EngineError
from engine.loop import EngineLoop
from engine.serving.app import build_app
from engine.serving.broker import Broker
from engine.serving.options import ServerOptions
from engine.serving.state import ServerState

_LAST_WORDS_S = 1.0
"""How long clients whose reply was cut may take to hear of it."""

_POLL_S = 0.02

Attach = Callable[[Broker], Callable[[], None]]


class Server:
    """The HTTP API in its own thread and event loop.

    ``attach`` adds the broker to the sinks that ``port`` reports to and returns a function that takes it off again
    (``SinkFan.attach``). ``start`` returns when connections are accepted, ``stop`` when all of them have ended.
    """

    def __init__(self, port: EngineLoop, attach: Attach, options: ServerOptions) -> None:
        options.check()
        self.options = options
        self.address = ("", 0)
        self._port = port
        self._attach = attach
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._uvicorn: uvicorn.Server | None = None
        self._state: ServerState | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """What clients call the base URL."""
        host, port = self.address
        return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"

    @property
    def busy(self) -> int:
        """Requests that are being worked on."""
        return 0 if self._state is None else self._state.busy

    def start(self) -> None:
        """Listen; raises ``EngineError`` with a sentence where the address is taken or not ours."""
        listener = self._listen()
        self.address = listener.getsockname()[:2]
        self._thread = threading.Thread(target=self._run, args=(listener,), name="kvscope-http", daemon=True)
        self._thread.start()
        self._ready.wait()
        if self._failure is not None:
            self._thread.join()
            listener.close()
            raise EngineError(f"The server could not start: {self._failure}.") from self._failure

    def stop(self, drain_s: float | None = None) -> None:
        """Refuse new requests, let running ones end within ``drain_s`` (None: as the options say), then close."""
        if self._thread is None or self._loop is None:
            return
        if self._thread.is_alive():
            seconds = self.options.drain_s if drain_s is None else drain_s
            self._loop.call_soon_threadsafe(lambda: asyncio.ensure_future(self._drain(seconds)))
        self._thread.join()

    def _listen(self) -> socket.socket:
        host = self.options.host
        listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
        try:
            if os.name == "posix":  # elsewhere this option would let two programs take the same port
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind((host, self.options.port))
        except OSError as error:
            listener.close()
            raise EngineError(
                f"Cannot listen on {host}:{self.options.port} ({error.strerror or error}). Choose another host or port."
            ) from error
        return listener

    # On the server's thread

    def _run(self, listener: socket.socket) -> None:
        try:
            asyncio.run(self._serve(listener))
        except BaseException as error:  # told by ``start``
            self._failure = error
        finally:
            self._ready.set()

    async def _serve(self, listener: socket.socket) -> None:
        options = self.options
        self._loop = asyncio.get_running_loop()
        broker = Broker(self._loop, flush_s=options.flush_s, calm_streams=options.calm_streams)
        self._state = ServerState(self._port, broker, options)
        config = uvicorn.Config(
            build_app(self._state),
            loop="none",
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=2,
        )
        self._uvicorn = uvicorn.Server(config)
        detach = self._attach(broker)
        try:
            serving = asyncio.ensure_future(self._uvicorn.serve(sockets=[listener]))
            while not self._uvicorn.started and not serving.done():
                await asyncio.sleep(_POLL_S)
            self._ready.set()
            await serving
        finally:
            detach()

    async def _drain(self, seconds: float) -> None:
        assert self._state is not None and self._uvicorn is not None
        self._state.draining = True
        await self._idle(seconds)
        for stream in self._state.broker.streams:
            self._port.cancel(stream)
        await self._idle(_LAST_WORDS_S)
        self._uvicorn.should_exit = True

    async def _idle(self, seconds: float) -> None:
        """Until no request is worked on, at most ``seconds``."""
        assert self._state is not None and self._loop is not None
        end = self._loop.time() + seconds
        while self._state.busy and self._loop.time() < end:
            await asyncio.sleep(_POLL_S)
