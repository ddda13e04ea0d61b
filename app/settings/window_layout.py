"""How the window was arranged: its place and size and its docks, kept while it changes, not only at the end."""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QEvent, QObject, QTimer
from PySide6.QtWidgets import QDockWidget, QMainWindow

from app.panels.engine_dock import EngineDock
from app.state.store import ChatStore

SAVE_MS = 800
_EVENTS = (QEvent.Type.Resize, QEvent.Type.Move, QEvent.Type.WindowStateChange)


class WindowLayout(QObject):
    """Restores the arrangement of ``window`` and saves it a moment after each change."""

    def __init__(self, window: QMainWindow, store: ChatStore) -> None:
        super().__init__(window)
        self._window = window
        self._store = store
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SAVE_MS)
        self._timer.timeout.connect(self.save)

    def restore(self) -> None:
        """Arrange the window as it was, and watch it from now on."""
        window = self._window
        if place := self._store.layout("window"):
            window.restoreGeometry(QByteArray(place))
        if docks := self._store.layout("docks"):
            window.restoreState(QByteArray(docks))
        for plots in window.findChildren(EngineDock):
            plots.restore(bytes(self._store.layout("plots") or b"").decode())
        window.installEventFilter(self)
        for dock in window.findChildren(QDockWidget):
            dock.installEventFilter(self)
            dock.topLevelChanged.connect(self._timer.start)
            dock.dockLocationChanged.connect(self._timer.start)
            dock.visibilityChanged.connect(self._timer.start)

    def save(self) -> None:
        """Keep the arrangement of this moment."""
        self._timer.stop()
        self._store.save_layout("window", bytes(self._window.saveGeometry().data()))
        self._store.save_layout("docks", bytes(self._window.saveState().data()))
        for plots in self._window.findChildren(EngineDock):
            self._store.save_layout("plots", plots.saved().encode())

    def end(self) -> None:
        """Save, and watch no longer: what closing the window changes is no wish of the person."""
        self.save()
        self._window.removeEventFilter(self)
        for dock in self._window.findChildren(QDockWidget):
            dock.removeEventFilter(self)
            dock.disconnect(self._timer)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in _EVENTS:
            self._timer.start()
        return False
