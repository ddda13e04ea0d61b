"""System prompt, sampling and limits of one chat."""

from __future__ import annotations

from PySide6.QtWidgets import QDialog, QDialogButtonBox, QVBoxLayout, QWidget

from app.state.sampling import ChatSettings
from app.text import tr
from app.views.chat_settings_form import ChatSettingsForm, PresetShelf


class ChatSettingsDialog(QDialog):
    """Edits a copy; ``settings()`` gives the result when it was accepted."""

    def __init__(
        self, title: str, settings: ChatSettings, parent: QWidget | None = None, *, shelf: PresetShelf | None = None
    ) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Settings of “{title}”", title=title))
        self.setModal(True)
        self.resize(520, 620)
        self.form = ChatSettingsForm(settings, shelf)
        self.form.changed.connect(self._on_changed)
        self._buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        self._buttons.button(QDialogButtonBox.StandardButton.Ok).setProperty("variant", "primary")
        self._buttons.accepted.connect(self.accept)
        self._buttons.rejected.connect(self.reject)
        box = QVBoxLayout(self)
        box.setContentsMargins(20, 18, 20, 16)
        box.setSpacing(14)
        box.addWidget(self.form, 1)
        box.addWidget(self._buttons)

    def settings(self) -> ChatSettings:
        """What was chosen."""
        return self.form.settings()

    def _on_changed(self) -> None:
        self._buttons.button(QDialogButtonBox.StandardButton.Ok).setEnabled(not self.form.problem())
