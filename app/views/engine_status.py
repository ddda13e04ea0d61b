"""One line at the foot of the sidebar: the model, and what the engine is doing."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QMouseEvent
from PySide6.QtWidgets import QHBoxLayout, QLabel, QProgressBar, QVBoxLayout, QWidget

from app.engine_thread import EngineBridge
from app.panels.parts import QuietText
from app.text import tr
from app.theme import icon
from engine.port import EngineState


class EngineStatus(QWidget):
    """Shows the loaded model, or progress, or what went wrong.

    Signals:
        clicked: the person wants to do something about it.
    """

    clicked = Signal()

    def __init__(self, bridge: EngineBridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._icon = QLabel()
        self.words = QuietText()
        self.bar = QProgressBar()
        self.bar.setRange(0, 1000)
        self.bar.setAccessibleName(tr("Progress"))
        box = QVBoxLayout(self)
        box.setContentsMargins(6, 4, 6, 0)
        box.setSpacing(6)
        row = QHBoxLayout()
        row.setSpacing(8)
        row.addWidget(self._icon)
        row.addWidget(self.words, 1)
        box.addLayout(row)
        box.addWidget(self.bar)
        bridge.state.connect(self.show_state)
        self.show_state(bridge.engine_state)

    def show_state(self, state: EngineState) -> None:
        """Follow the engine."""
        working = state.stage in ("compiling", "loading")
        self.bar.setVisible(working)
        self.bar.setValue(round(state.progress * 1000))
        match state.stage:
            case "ready" if state.model is not None:
                words, name, color = state.model.name, "model", "muted"
            case "compiling":
                words, name, color = tr("compiling kernels {p:.0%}", p=state.progress), "engine", "prefill"
            case "loading":
                words, name, color = tr("loading the model {p:.0%}", p=state.progress), "model", "prefill"
            case "failed":
                words, name, color = tr("no model: {error}", error=state.error), "error", "diverged"
            case _:
                words, name, color = tr("no model loaded"), "model", "muted"
        self._icon.setPixmap(icon(name, color).pixmap(QSize(16, 16)))
        self.words.setText(words)
        self.words.setToolTip(state.error or state.detail or words)
        self.setAccessibleName(words)

    def mouseReleaseEvent(self, event: QMouseEvent) -> None:
        self.clicked.emit()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter, Qt.Key.Key_Space):
            self.clicked.emit()
        else:
            super().keyPressEvent(event)
