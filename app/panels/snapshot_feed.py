"""Snapshots of the engine at a bounded rate, asked for only while somebody looks and something changed."""

from __future__ import annotations

from PySide6.QtCore import QObject, QTimer, Signal

from app.panels.asks import Asks
from engine.port import EngineState, Snapshot

INTERVAL_MS = 200


class SnapshotFeed(QObject):
    """Asks the port for snapshots, at most five a second and never two at once.

    While nothing changes the timer rests, so an idle engine costs nothing.

    Signals:
        arrived(Snapshot): a new one.
        unavailable(): there is no model to take one of.
    """

    arrived = Signal(object)
    unavailable = Signal()

    def __init__(self, bridge: Asks, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._active = False
        self._stale = True
        self._waiting = False
        self._timer = QTimer(self)
        self._timer.setInterval(INTERVAL_MS)
        self._timer.timeout.connect(self._tick)

    @property
    def active(self) -> bool:
        """Whether somebody looks."""
        return self._active

    def set_active(self, active: bool) -> None:
        """Somebody looks, or no longer does."""
        if active == self._active:
            return
        self._active = active
        if active:
            self._tick()
        else:
            self._timer.stop()

    def mark(self, *_: object) -> None:
        """Something changed (a step was done); cheap, called for every step."""
        self._stale = True
        if self._active and not self._timer.isActive():
            self._timer.start()

    def on_state(self, state: EngineState) -> None:
        """A model came or went."""
        if state.stage == "ready":
            self.mark()
        elif state.stage in ("empty", "failed", "closed") and state.model is None:
            self.unavailable.emit()

    def _tick(self) -> None:
        if self._waiting:
            return
        if not self._stale:
            self._timer.stop()
            return
        self._stale, self._waiting = False, True
        if not self._timer.isActive():
            self._timer.start()
        self._bridge.ask(self._bridge.port.snapshot(), self._on_snapshot, self._on_error)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        self._waiting = False
        if self._active:
            self.arrived.emit(snapshot)

    def _on_error(self, *_: object) -> None:
        self._waiting = False
        self.unavailable.emit()
