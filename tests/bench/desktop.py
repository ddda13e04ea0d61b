"""What benchmarks of the window share: a screen to draw on, a heartbeat, CPU time, and waiting as the program waits."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from typing import Any

BEAT_MS = 10


@contextmanager
def screen(size: str = "1440x900") -> Iterator[int]:
    """An X server for this process and those it starts (enter it before Qt starts); gives its process id."""
    read, write = os.pipe()
    command = ["Xvfb", "-displayfd", str(write), "-screen", "0", f"{size}x24", "-nolisten", "tcp", "-noreset"]
    server = subprocess.Popen(command, pass_fds=(write,), stderr=subprocess.DEVNULL)
    os.close(write)
    try:
        with os.fdopen(read) as number:
            os.environ["DISPLAY"] = f":{number.readline().strip()}"
        os.environ["QT_QPA_PLATFORM"] = "xcb"
        yield server.pid
    finally:
        server.kill()
        server.wait()


def cpu_of(process: int) -> float:
    """CPU seconds that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Heartbeat:
    """A timer on the UI thread that notes how late it comes, and the CPU it used since, in milliseconds."""

    def __init__(self) -> None:
        from PySide6.QtCore import Qt, QTimer

        self.late: list[float] = []
        self.work: list[float] = []
        self._due = self._used = 0.0
        self._timer = QTimer()
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setSingleShot(True)
        self._timer.setInterval(BEAT_MS)
        self._timer.timeout.connect(self._beat)

    @contextmanager
    def beating(self) -> Iterator[None]:
        """Beat during the block."""
        self._wait()
        try:
            yield
        finally:
            self._timer.stop()

    def _beat(self) -> None:
        self.late.append((time.perf_counter() - self._due) * 1e3)
        self.work.append((time.thread_time() - self._used) * 1e3)
        self._wait()

    def _wait(self) -> None:
        self._due = time.perf_counter() + BEAT_MS / 1e3
        self._used = time.thread_time()
        self._timer.start()

    def figures(self) -> dict[str, float]:
        """How late it came, over all beats; and what the thread computed between two beats, which says what part of
        that is its own."""
        late, work = quantiles(self.late, n=100), quantiles(self.work, n=100)
        return {
            "p50_ms": late[49],
            "p99_ms": late[98],
            "max_ms": max(self.late),
            "work_p99_ms": work[98],
            "work_max_ms": max(self.work),
            "beats": len(self.late),
        }


def run_until(condition: Callable[[], Any], signal: Any) -> None:
    """The event loop, as the program runs it, until ``condition()`` is true after an emission of ``signal``."""
    from PySide6.QtCore import QEventLoop

    loop = QEventLoop()

    def look(*_: object) -> None:
        if condition():
            loop.quit()

    signal.connect(look)
    if not condition():
        loop.exec()
    signal.disconnect(look)


def rest_for(seconds: float) -> None:
    """The event loop for so long."""
    from PySide6.QtCore import QEventLoop, QTimer

    loop = QEventLoop()
    QTimer.singleShot(round(seconds * 1000), loop.quit)
    loop.exec()
