"""The parent's side of the template process: start it when needed, wait no longer than allowed, end it for certain."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from engine.errors import TemplateError
from engine.text.template import Segment

TIME_LIMIT_SECONDS = 2.0
START_LIMIT_SECONDS = 30.0
CHILD_ARGUMENT = "--template-child"
"""What a packaged app is started with to become the template process."""


def child_command() -> list[str]:
    """The command that starts a template process: this Python, or the packaged app itself."""
    if getattr(sys, "frozen", False):
        return [sys.executable, CHILD_ARGUMENT]
    return [sys.executable, "-m", "engine.text.template_child"]


class TemplateProcess:
    """Renders file templates in a child process. Thread-safe; one rendering at a time.

    The child starts with the first rendering and is kept. A rendering over the time limit ends it; the next starts
    another. ``close`` (or garbage collection, or the interpreter's exit) ends it and waits for it.
    """

    def __init__(self, *, time_limit: float = TIME_LIMIT_SECONDS) -> None:
        self._time_limit = time_limit
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def start(self) -> None:
        """Start the child without waiting for it, so that the first rendering need not wait."""
        with self._lock:
            self._running()

    def render(
        self,
        source: str,
        messages: Sequence[tuple[str, str]],
        *,
        add_generation_prompt: bool,
        names: Mapping[str, str],
    ) -> list[Segment]:
        """As ``engine.text.template.render``. Errors: ``TemplateError``, also for time or memory over the limit."""
        request = {
            "template": source,
            "messages": list(messages),
            "add_generation_prompt": add_generation_prompt,
            "names": dict(names),
        }
        with self._lock:
            child = self._running()
            try:
                answer = child.ask(request, self._time_limit)
            except TemplateError:
                self._end()
                raise
        if "error" in answer:
            raise TemplateError(str(answer["error"]))
        return [(str(text), int(number), int(offset)) for text, number, offset in answer["segments"]]

    def close(self) -> None:
        """End the child, if there is one, and wait until it is gone."""
        with self._lock:
            self._end()

    def _running(self) -> _Child:
        if self._child is None:
            self._child = _Child()
        return self._child

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


class _Child:
    """One process and the thread that talks to it, so that no caller ever blocks on a pipe."""

    def __init__(self) -> None:
        root = str(Path(__file__).resolve().parents[2])
        paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
        try:
            process = subprocess.Popen(
                child_command(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        except OSError as error:
            raise TemplateError(f"The process for chat templates could not be started: {error}.") from error
        requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        answers: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        thread = threading.Thread(target=_talk, args=(process, requests, answers), name="chat template", daemon=True)
        thread.start()
        self._requests, self._answers = requests, answers
        self._ready = False
        self.end = weakref.finalize(self, _end, process, requests, thread)

    def ask(self, request: Mapping[str, Any], time_limit: float) -> dict[str, Any]:
        if not self._ready:
            self._wait(START_LIMIT_SECONDS, "The process for chat templates did not start.")
            self._ready = True
        self._requests.put(json.dumps(request).encode() + b"\n")
        return self._wait(time_limit, f"The model's chat template took longer than {time_limit:g} seconds.")

    def _wait(self, seconds: float, late: str) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=seconds)
        except queue.Empty:
            raise TemplateError(late) from None
        if answer is None:
            raise TemplateError("The model's chat template ended its process: it needs too much memory or time.")
        return answer


def _talk(
    process: subprocess.Popen[bytes],
    requests: queue.SimpleQueue[bytes | None],
    answers: queue.SimpleQueue[dict[str, Any] | None],
) -> None:
    """Pass lines to the process and its answers back, until it ends or is told to."""
    assert process.stdin is not None and process.stdout is not None
    try:
        answers.put(json.loads(process.stdout.readline()))
        while (request := requests.get()) is not None:
            process.stdin.write(request)
            process.stdin.flush()
            answers.put(json.loads(process.stdout.readline()))
    except (OSError, ValueError):  # the process is gone: its pipe is broken, or its last line is not a whole answer
        answers.put(None)


def _end(process: subprocess.Popen[bytes], requests: queue.SimpleQueue[bytes | None], thread: threading.Thread) -> None:
    """Kill the process, then let its thread run out and close the pipes."""
    requests.put(None)
    process.kill()
    process.wait()
    if thread is not threading.current_thread():  # garbage collection may happen there too
        thread.join()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        try:
            pipe.close()
        except BrokenPipeError:  # what was left in the buffer has nowhere to go
            continue
