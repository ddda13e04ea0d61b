"""One timer for everything that is painted while text streams."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Qt, QTimer, Signal

FRAME_MS = 33
SLOWEST_MS = 100
SHARE = 0.08
"""About this share of the time goes into frames at most: costly ones come less often, for the engine needs its turn."""


class FrameClock(QObject):
    """Ticks about 30 times a second while somebody asks for a frame, and is silent otherwise.

    Signals:
        tick: a frame is due.
    """

    tick = Signal()

    def __init__(self, parent: QObject | None = None, interval_ms: int = FRAME_MS) -> None:
        super().__init__(parent)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setTimerType(Qt.TimerType.PreciseTimer)
        self._timer.setInterval(interval_ms)
        self._interval = interval_ms
        self._timer.timeout.connect(self._on_timeout)

    @property
    def idle(self) -> bool:
        """Whether nobody waits for a frame."""
        return not self._timer.isActive()

    def request(self) -> None:
        """Ask for one more tick; asking again before it comes changes nothing."""
        if not self._timer.isActive():
            self._timer.start()

    def _on_timeout(self) -> None:
        began = time.perf_counter()
        self.tick.emit()
        cost_ms = (time.perf_counter() - began) * 1000
        self._timer.setInterval(round(min(max(self._interval, cost_ms / SHARE), SLOWEST_MS)))
