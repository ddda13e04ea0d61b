"""How the window was arranged: its place and size and its docks, kept while it changes, not only at the end.

On a small screen docks go when there is no room for them. That is no wish of the person: what is kept is what they
chose, and a dock that was put away returns on a screen with room for it.
"""

from __future__ import annotations

from PySide6.QtCore import QByteArray, QEvent, QObject, QSize, QTimer
from PySide6.QtWidgets import QDockWidget, QMainWindow

from app.panels.engine_dock import EngineDock
from app.state.store import ChatStore

SAVE_MS = 800
USUAL = QSize(1440, 900)
NARROW, LOW = 900, 560
"""Room, in pixels, below which docks beside the chats (width) and under them (height) do not all fit."""
FRAME = QSize(8, 36)
"""Room for the frame that a window manager adds: sides together, title and foot together, in pixels."""
_EVENTS = (QEvent.Type.Resize, QEvent.Type.Move, QEvent.Type.WindowStateChange)


class WindowLayout(QObject):
    """Restores the arrangement of ``window`` and saves it a moment after each change.

    ``left`` and ``right`` stand beside the chats, ``below`` under them. On a narrow screen the left one comes first.
    """

    def __init__(
        self, window: QMainWindow, store: ChatStore, left: QDockWidget, right: QDockWidget, below: QDockWidget
    ) -> None:
        super().__init__(window)
        self._window = window
        self._store = store
        self._docks = left, right, below
        self._away: set[QDockWidget] = set()
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(SAVE_MS)
        self._timer.timeout.connect(self.save)
        left.visibilityChanged.connect(lambda shown: self._on_shown(left, shown, right))
        right.visibilityChanged.connect(lambda shown: self._on_shown(right, shown, left))
        below.visibilityChanged.connect(lambda shown: self._on_shown(below, shown))

    def restore(self) -> None:
        """Arrange the window as it was, as far as the screen has room, and watch it from now on."""
        window = self._window
        room = self._room()
        window.resize(USUAL.boundedTo(room))
        if place := self._store.layout("window"):
            window.restoreGeometry(QByteArray(place))
        if docks := self._store.layout("docks"):
            window.restoreState(QByteArray(docks))
        self._arrange(room)
        self._fit_into(room)
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
        room, away = self._room(), "\n".join(sorted(dock.objectName() for dock in self._away))
        self._store.save_layout("window", bytes(self._window.saveGeometry().data()))
        self._store.save_layout("docks", bytes(self._window.saveState().data()))
        self._store.save_layout("away", away.encode())
        self._store.save_layout("room", f"{room.width()} {room.height()}".encode())
        for plots in self._window.findChildren(EngineDock):
            self._store.save_layout("plots", plots.saved().encode())

    def end(self) -> None:
        """Save, and watch no longer: what closing the window changes is no wish of the person."""
        self.save()
        self._window.removeEventFilter(self)
        for dock in self._window.findChildren(QDockWidget):
            dock.removeEventFilter(self)
            dock.disconnect(self._timer)

    def _room(self) -> QSize:
        return self._window.screen().availableGeometry().size() - FRAME

    def _fits(self, dock: QDockWidget, room: QSize) -> bool:
        return room.height() >= LOW if dock is self._docks[2] else room.width() >= NARROW

    def _arrange(self, room: QSize) -> None:
        """What was put away returns where it fits; what is shown goes where it does not, unless it was chosen there."""
        before = _size(self._store.layout("room"))
        away = bytes(self._store.layout("away") or b"").decode().split("\n")
        for dock in self._docks:
            fits = self._fits(dock, room)
            chosen = before is not None and not self._fits(dock, before)
            if dock.objectName() in away:
                dock.setHidden(not fits)
                self._away |= set() if fits else {dock}
            elif not fits and not chosen and dock is not self._docks[0]:
                self._put_away(dock)

    def _put_away(self, dock: QDockWidget) -> None:
        if not dock.isHidden() and not dock.isFloating():
            dock.hide()
            self._away.add(dock)

    def _on_shown(self, dock: QDockWidget, shown: bool, other: QDockWidget | None = None) -> None:
        """A dock is there; where both beside the chats would make the window wider than the screen, the other goes."""
        if not shown:
            return
        self._away.discard(dock)
        room = self._room()
        if other is not None and not other.isHidden() and not self._fits(other, room):
            self._put_away(other)
            QTimer.singleShot(0, self, lambda: self._fit_into(room))

    def _fit_into(self, room: QSize) -> None:
        """Keep the window no larger than the screen."""
        if not self._window.isMaximized() and not self._window.isFullScreen():
            self._window.resize(self._window.size().boundedTo(room))

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in _EVENTS:
            self._timer.start()
        return False


def _size(kept: bytes) -> QSize | None:
    """The size in "width height", None when there is none."""
    parts = kept.decode("ascii", "replace").split()
    return QSize(*map(int, parts)) if len(parts) == 2 and all(part.isdigit() for part in parts) else None
