"""What an empty chat shows: that one can begin, or what the engine is doing meanwhile."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QProgressBar, QVBoxLayout, QWidget

from app.text import tr
from app.views.parts import label
from engine.port import EngineState


class Welcome(QWidget):
    """A few quiet words in the middle of an empty chat."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        box = QVBoxLayout(self)
        box.setSpacing(8)
        box.setContentsMargins(0, 0, 0, 40)
        self.title = label("", "title")
        self.body = label("", "muted", wrap=True)
        self.bar = QProgressBar()
        self.bar.setFixedWidth(240)
        self.bar.setRange(0, 1000)
        self.bar.setAccessibleName(tr("Progress"))
        box.addStretch(1)
        for widget in (self.title, self.body):
            widget.setAlignment(Qt.AlignmentFlag.AlignCenter)
            box.addWidget(widget)
        box.addSpacing(4)
        box.addWidget(self.bar, 0, Qt.AlignmentFlag.AlignHCenter)
        box.addStretch(1)
        self.show_state(EngineState("empty"))

    def show_state(self, state: EngineState) -> None:
        """Follow the engine's stage."""
        working = state.stage in ("compiling", "loading")
        self.bar.setVisible(working)
        self.bar.setValue(round(state.progress * 1000))
        match state.stage:
            case "ready" if state.model is not None:
                self.title.setText(tr("What shall we talk about?"))
                self.body.setText(tr("{name} is ready and runs on this computer only.", name=state.model.name))
            case "compiling" | "loading" if state.model is not None:
                self.title.setText(tr("Loading another model"))
                self.body.setText(tr("Until it is ready, {name} answers.", name=state.model.name))
            case "compiling":
                self.title.setText(tr("Getting the engine ready for this processor"))
                self.body.setText(tr("This happens once. You can type already; your question is sent when it is done."))
            case "loading":
                self.title.setText(tr("Loading the model"))
                self.body.setText(state.detail or tr("You can type already; your question is sent when it is ready."))
            case "failed":
                self.title.setText(tr("The model could not be loaded"))
                self.body.setText(state.error)
            case _:
                self.title.setText(tr("No model is loaded"))
                self.body.setText(tr("Open a GGUF file to begin."))
