"""Compiling kernels ahead of a load, in a child process that can be killed; its results land in the kernel cache."""

from __future__ import annotations

import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path

import engine
from engine.errors import CancelledError

log = logging.getLogger(__name__)

CHILD_ARGUMENT = "--warm-kernels"
"""What a packaged app is started with to become the compiling child."""

_LOOK_S = 0.1


def warm_kernels(
    types: Iterable[str],
    kv_dtype: str,
    *,
    report: Callable[[float, str], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> None:
    """Compile the kernels that a model with tensors of these ``types`` needs, unless they are cached.

    ``report`` hears a fraction and a phrase. When ``cancelled`` says so the child ends and ``CancelledError`` is
    raised. A child that fails costs only time: the load then compiles by itself.
    """
    from engine.kernels.warm import is_warm

    names = sorted(set(types))
    if is_warm(names, kv_dtype):
        return
    report = report or (lambda fraction, detail: log.debug("compiling: %s", detail))
    report(0.0, "preparing kernels for this processor")
    child = _Child(["--types", ",".join(names), "--kv", kv_dtype])
    try:
        while (line := child.next_line()) is not None:
            if cancelled is not None and cancelled():
                raise CancelledError("Loading was cancelled.")
            if line:
                told = json.loads(line)
                report(told["done"] / told["total"], f"kernel {told['done']} of {told['total']}")
        child.log_failure()
    finally:
        child.end()


class _Child:
    """The compiling process, and the threads that read what it says."""

    def __init__(self, arguments: list[str]) -> None:
        self._process = subprocess.Popen(
            [*_command(), *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment(),
            text=True,
            start_new_session=True,
        )
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._complaints: list[str] = []
        self._readers = [
            threading.Thread(target=target, name="kvscope-warm") for target in (self._read, self._read_complaints)
        ]
        for reader in self._readers:
            reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_complaints(self) -> None:
        assert self._process.stderr is not None
        self._complaints.extend(self._process.stderr)

    def next_line(self) -> str | None:
        """The next line, "" if none came for a moment, None at the end."""
        try:
            return self._lines.get(timeout=_LOOK_S)
        except queue.Empty:
            return ""

    def log_failure(self) -> None:
        """Wait for the end; if it failed, say so where developers look."""
        if self._process.wait() != 0:
            self._readers[1].join()
            log.warning("compiling kernels ahead failed: %s", "".join(self._complaints)[-1000:].strip())

    def end(self) -> None:
        """End the process and its own children, and wait for it and for the readers."""
        process = self._process
        if process.poll() is None:
            if hasattr(os, "killpg"):
                os.killpg(process.pid, signal.SIGKILL)
            else:
                process.kill()
        process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()


def _command() -> list[str]:
    if getattr(sys, "frozen", False):
        return [sys.executable, CHILD_ARGUMENT]
    return [sys.executable, "-m", "engine.kernels.warm"]


def _environment() -> dict[str, str]:
    """The child finds the engine wherever this process was started."""
    root = str(Path(engine.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}
