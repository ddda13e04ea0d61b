"""One timer for everything that is painted while text streams."""

from __future__ import annotations

from PySide6.QtCore import QObject, Qt, QTimer, Signal

FRAME_MS = 33


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
        self._timer.timeout.connect(self.tick)

    @property
    def idle(self) -> bool:
        """Whether nobody waits for a frame."""
        return not self._timer.isActive()

    def request(self) -> None:
        """Ask for one more tick; asking again before it comes changes nothing."""
        if not self._timer.isActive():
            self._timer.start()
