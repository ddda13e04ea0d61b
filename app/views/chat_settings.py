"""System prompt, sampling and limits of one chat."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QDialog, QFrame, QHBoxLayout, QPushButton, QScrollArea, QVBoxLayout, QWidget

from app.state.sampling import ChatSettings
from app.text import tr
from app.views.chat_settings_form import ChatSettingsForm, PresetShelf
from app.views.parts import size_dialog


class ChatSettingsDialog(QDialog):
    """Edits a copy; ``settings()`` gives the result when it was accepted."""

    def __init__(
        self, title: str, settings: ChatSettings, parent: QWidget | None = None, *, shelf: PresetShelf | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Settings of “{title}”", title=title))
        self.setModal(True)
        size_dialog(self, 540, 640)
        self.form = ChatSettingsForm(settings, shelf)
        self.form.changed.connect(self._on_changed)
        cancel = QPushButton(tr("Cancel"))
        cancel.clicked.connect(self.reject)
        self.save = QPushButton(tr("Save"))
        self.save.setProperty("variant", "primary")
        self.save.setDefault(True)
        self.save.clicked.connect(self.accept)
        inside = QWidget()
        inside.setProperty("surface", "clear")
        inner = QVBoxLayout(inside)
        inner.setContentsMargins(20, 18, 20, 8)
        inner.addWidget(self.form)
        scroll = QScrollArea()
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(inside)
        foot = QHBoxLayout()
        foot.setContentsMargins(20, 8, 20, 16)
        foot.setSpacing(10)
        foot.addStretch(1)
        foot.addWidget(cancel)
        foot.addWidget(self.save)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addWidget(scroll, 1)
        box.addLayout(foot)

    def settings(self) -> ChatSettings:
        """What was chosen."""
        return self.form.settings()

    def _on_changed(self) -> None:
        self.save.setEnabled(not self.form.problem())
