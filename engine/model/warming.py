"""Compiling the kernels that a model needs in a child process: it can be killed, and what it compiled lands on disk."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from engine.errors import EngineError
from engine.gguf import open_gguf
from engine.hosting.bundle import LoadProgress
from engine.model.describe import tensor_types

CHILD_ARGUMENT = "--warm-kernels"
"""What a packaged app is started with to become the compiling process."""

_POLL_S = 0.1


def child_command() -> list[str]:
    """The command that starts a compiling process: this Python, or the packaged app itself."""
    if getattr(sys, "frozen", False):
        return [sys.executable, CHILD_ARGUMENT]
    return [sys.executable, "-m", "engine.kernels.warm"]


def warm_kernels(path: str | os.PathLike[str], *, kv_dtype: str, progress: LoadProgress) -> None:
    """Compile what the model at ``path`` needs and is not on disk yet; reports ``compiling``.

    Errors: ``ModelFileError``, ``CancelledError`` (the child is killed then), ``EngineError`` if the child fails.
    """
    from engine.kernels.warm import is_warm

    with open_gguf(path) as file:
        types = sorted(tensor_types(file))
    if is_warm(types, kv_dtype):
        return
    progress.report("compiling", 0.0)
    with _child([*child_command(), "--types", ",".join(types), "--kv", kv_dtype]) as child:
        with _killed_when_cancelled(child, progress):
            assert child.stdout is not None
            for line in child.stdout:
                told = json.loads(line)
                progress.report("compiling", told["done"] / told["total"], told["name"])
            child.wait()
        progress.check()
        if child.returncode != 0:
            raise EngineError(
                f"Compiling the kernels failed (exit code {child.returncode}); free some memory and disk space, "
                "then open the model again."
            )


@contextmanager
def _child(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The process, ended and waited for when the block ends."""
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=os.name == "posix",
        creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
    )
    with child:
        try:
            yield child
        finally:
            _kill(child)


def _kill(child: subprocess.Popen[str]) -> None:
    """End the child and the processes that it shares the work with."""
    if child.poll() is not None:
        return
    if os.name == "posix":
        import signal

        os.killpg(child.pid, signal.SIGKILL)
    else:
        child.kill()


@contextmanager
def _killed_when_cancelled(child: subprocess.Popen[str], progress: LoadProgress) -> Iterator[None]:
    """Kill the child as soon as the load is cancelled: one kernel may take seconds, and says nothing meanwhile."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_POLL_S):
            if progress.cancelled:
                _kill(child)
                return

    watcher = threading.Thread(target=watch, name="kvscope-warm-watch", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()
