"""``serve``: the HTTP API from the terminal."""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Any

from engine.cli.common import note, positive


def add_command(commands: Any) -> None:
    """Register ``serve``."""
    parser = commands.add_parser("serve", help="serve any OpenAI client over HTTP")
    parser.add_argument("model", metavar="MODEL", help="a GGUF file or a catalogue id")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--api-key", default="", metavar="KEY", help="clients must give it; required for other hosts")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads to compute with (default: all cores)")
    parser.add_argument("--context", type=positive, metavar="N", help="tokens of context")
    parser.add_argument("--streams", type=positive, default=16, metavar="N", help="streams at once (default 16)")
    parser.add_argument("--queue", type=positive, default=64, metavar="N", help="requests that may wait (default 64)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Load, listen, and serve until interrupted; then drain."""
    from engine.catalog import resolve
    from engine.loop import EngineLoop
    from engine.model.loading import load_bundle
    from engine.port import LoadOptions
    from engine.serving.options import ServerOptions
    from engine.serving.server import Server
    from engine.serving.sinks import SinkFan

    options = ServerOptions(
        host=arguments.host,
        port=arguments.port,
        api_key=arguments.api_key,
        max_waiting=arguments.streams + arguments.queue,
    )
    options.check()
    path = resolve(arguments.model)
    fan = SinkFan()
    loop = EngineLoop(fan, load_bundle)
    worker = threading.Thread(target=loop.run, name="kvscope-engine")
    worker.start()
    try:
        load = LoadOptions(
            str(path),
            n_ctx=arguments.context,
            threads=arguments.threads,
            max_streams=arguments.streams,
            max_queue=arguments.queue,
        )
        info = loop.load(load).result()
        server = Server(loop, fan.attach, options)
        server.start()
        host, port = server.address
        shown = f"[{host}]" if ":" in host else host
        note(f"Serving {info.name} at http://{shown}:{port}/v1 (Ctrl+C stops, running replies end first)")
        _wait_for_signal()
        note("Stopping: running replies may end first.")
        server.stop()
    finally:
        loop.close()
        worker.join()


def _wait_for_signal() -> None:
    """Return at SIGINT or SIGTERM."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    stop.wait()
