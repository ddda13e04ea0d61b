"""The child process in which a model file's own chat template runs: one JSON line in, one JSON line out.

A template is a program from a file that someone downloaded. Here it can neither hang nor eat the app: memory is limited
where the system can do that, a watchdog ends this process when a rendering takes too long even if the parent is gone,
and the parent ends it sooner. Run as ``python -m engine.text.template_child`` or, in a packaged app, with
``--template-child``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from typing import Any

from engine.errors import TemplateError
from engine.text.template import render

MEMORY_BYTES = 512 * 1024 * 1024
"""Address space that a template may use beyond what this process had at its start."""

WATCHDOG_SECONDS = 5.0
"""After this long a rendering ends the process, whatever the parent does."""


def main() -> int:
    """Serve requests on stdin until it closes; stdout carries answers alone."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _limit_memory()
    with answers:
        _send(answers, {"ready": True})
        for line in sys.stdin.buffer:
            watchdog = _start_watchdog()
            try:
                answer = _answer(json.loads(line))
            finally:
                _stop_watchdog(watchdog)
            _send(answers, answer)
    return 0


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    try:
        segments = render(
            request["template"],
            [(role, text) for role, text in request["messages"]],
            add_generation_prompt=request["add_generation_prompt"],
            names=request["names"],
        )
    except TemplateError as error:
        return {"error": str(error)}
    return {"segments": segments}


def _send(stream: Any, value: dict[str, Any]) -> None:
    stream.write(json.dumps(value).encode() + b"\n")
    stream.flush()


def _limit_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            now = int(file.read().split()[0]) * resource.getpagesize()
    except OSError:  # not Linux
        now = 0
    limit = now + MEMORY_BYTES
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    if hard == resource.RLIM_INFINITY or hard > limit:
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _start_watchdog() -> threading.Timer | None:
    if hasattr(signal, "setitimer"):
        # The default action of SIGALRM ends the process even inside one long call of C code.
        signal.setitimer(signal.ITIMER_REAL, WATCHDOG_SECONDS)
        return None
    timer = threading.Timer(WATCHDOG_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()
    return timer


def _stop_watchdog(timer: threading.Timer | None) -> None:
    if timer is None:
        signal.setitimer(signal.ITIMER_REAL, 0)
    else:
        timer.cancel()


if __name__ == "__main__":
    sys.exit(main())
