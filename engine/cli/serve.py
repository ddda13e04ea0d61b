"""``serve``: the HTTP API from the terminal."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from engine.cli.common import emit, note, positive

if TYPE_CHECKING:
    from engine.serving.options import ServerOptions

KEY_VARIABLE = "KVSCOPE_API_KEY"
SWITCH_S = 0.001
"""How long one of Python's threads may keep the others waiting: the engine's comes first."""


def add_command(commands: Any) -> None:
    """Register ``serve``."""
    parser = commands.add_parser("serve", help="serve any OpenAI client over HTTP")
    parser.add_argument("model", metavar="MODEL", help="a GGUF file or a catalogue id")
    parser.add_argument("--host", default="127.0.0.1", help="where to listen (default: this machine alone)")
    parser.add_argument("--port", type=int, default=8080, help="default 8080; 0 takes any free one")
    parser.add_argument(
        "--api-key",
        default=os.environ.get(KEY_VARIABLE, ""),
        metavar="KEY",
        help=f"clients must give it; required for other hosts (default: ${KEY_VARIABLE})",
    )
    parser.add_argument("--allow-origin", action="append", default=[], metavar="URL", help="a web page that may ask")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads to compute with (default: all cores)")
    parser.add_argument("--context", type=positive, metavar="N", help="tokens of context")
    parser.add_argument("--streams", type=positive, default=16, metavar="N", help="streams at once (default 16)")
    parser.add_argument("--queue", type=positive, default=64, metavar="N", help="requests that may wait (default 64)")
    parser.add_argument("--json", action="store_true", help="print the address as JSON on stdout once it answers")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Load, listen, and serve until interrupted; then drain."""
    from engine.catalog import resolve
    from engine.loop import EngineLoop
    from engine.model.loading import load_bundle
    from engine.port import LoadOptions
    from engine.serving.server import Server
    from engine.serving.sinks import SinkFan
    from engine.serving.state import model_id

    options = _options(arguments)
    path = resolve(arguments.model)
    sys.setswitchinterval(SWITCH_S)
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
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        server.start()
        note(f"Serving {model_id(info)} at {server.url} (Ctrl+C stops; running replies end first)")
        if arguments.json:
            emit({"url": server.url, "model": model_id(info)})
            sys.stdout.flush()
        _until_interrupted()
        server.stop()
    finally:
        loop.close()
        worker.join()


def _options(arguments: argparse.Namespace) -> ServerOptions:
    from engine.serving.options import ServerOptions

    options = ServerOptions(
        host=arguments.host,
        port=arguments.port,
        api_key=arguments.api_key,
        max_waiting=arguments.streams + arguments.queue,
        origins=tuple(arguments.allow_origin),
    )
    options.check()
    return options


def _until_interrupted() -> None:
    """Return at the first SIGINT or SIGTERM; the next one raises KeyboardInterrupt in what follows."""
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        note("Stopping: running replies may end first. Ctrl+C again stops at once.")
