"""``python -m engine.catalog``: list the known models, fetch one, or say where it lies.

Progress goes to stderr, the path of the model to stdout. Exit codes: 0 fine, 1 with one sentence on stderr, 2 usage.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading
from collections.abc import Sequence
from typing import IO

from engine.catalog.download import fetch
from engine.catalog.known import default_model, known_model, known_models
from engine.catalog.lookup import find
from engine.errors import EngineError


class ProgressLine:
    """Writes "name: 34 of 93 MB (37 %)": one line redrawn on a terminal, a line every tenth elsewhere."""

    def __init__(self, name: str, stream: IO[str]) -> None:
        self._name = name
        self._stream = stream
        self._redraw = stream.isatty()
        self._last = -1

    def __call__(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 100
        step = percent if self._redraw else percent // 10
        if step == self._last:
            return
        self._last = step
        text = f"{self._name}: {done / 1e6:,.0f} of {total / 1e6:,.0f} MB ({percent} %)"
        self._stream.write(f"\r{text}\x1b[K" if self._redraw else f"{text}\n")
        self._stream.flush()

    def close(self) -> None:
        """End the redrawn line."""
        if self._redraw and self._last >= 0:
            self._stream.write("\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m engine.catalog", description="Known models and how to get them.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("list", help="the known models, and which of them are here")
    for name, words in (("fetch", "download a model, check it and print its path"), ("path", "where a model lies")):
        command = commands.add_parser(name, help=words)
        command.add_argument("id", nargs="?", default=default_model().id, help="default: %(default)s")
    arguments = parser.parse_args(argv)
    try:
        if arguments.command == "list":
            return _list()
        return _fetch(arguments.id) if arguments.command == "fetch" else _path(arguments.id)
    except EngineError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        sys.stderr.write("Cancelled; nothing was left behind.\n")
        return 1


def _list() -> int:
    for model in known_models():
        here = "here" if find(model) else f"{model.download_bytes / 1e6:,.0f} MB to fetch"
        sys.stdout.write(f"{model.id}  {model.name}, {model.licence}, {here}\n")
    return 0


def _path(identifier: str) -> int:
    here = find(identifier)
    if here is None:
        sys.stderr.write(f"{identifier} is not on this computer.\n")
        return 1
    sys.stdout.write(f"{here}\n")
    return 0


def _fetch(identifier: str) -> int:
    model = known_model(identifier)
    here = find(model)
    if here is None:
        cancel = threading.Event()
        before = signal.signal(signal.SIGTERM, lambda *_: cancel.set())
        line = ProgressLine(model.name, sys.stderr)
        try:
            here = fetch(model, progress=line, cancel=cancel)
        finally:
            line.close()
            signal.signal(signal.SIGTERM, before)
    sys.stdout.write(f"{here}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
