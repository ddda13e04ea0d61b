"""System prompt and sampling of one chat."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import Qt
from PySide6.QtWidgets import (
    QComboBox,
    QDialog,
    QDialogButtonBox,
    QDoubleSpinBox,
    QFormLayout,
    QLineEdit,
    QPlainTextEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.state.sampling import PRESETS, ChatSettings, Overflow, preset_of
from app.text import tr
from app.views.parts import label
from engine.scheduling.request import SamplingParams


class ChatSettingsDialog(QDialog):
    """Edits a copy; ``settings()`` gives the result when it was accepted."""

    def __init__(self, title: str, settings: ChatSettings, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Settings of “{title}”", title=title))
        self.setModal(True)
        self.resize(520, 600)
        self._given = settings
        self.system = QPlainTextEdit(settings.system_prompt)
        self.system.setPlaceholderText(tr("Empty: what the model's own template says"))
        self.system.setAccessibleName(tr("System prompt"))
        self.system.setTabChangesFocus(True)
        self.preset = QComboBox()
        for preset in PRESETS:
            self.preset.addItem(preset.name, preset.key)
        self.preset.addItem(tr("Set by hand"), "")
        self.temperature = _decimal(0.0, 3.0, 0.05, tr("Temperature"))
        self.top_p = _decimal(0.01, 1.0, 0.01, tr("Top-p"))
        self.min_p = _decimal(0.0, 1.0, 0.01, tr("Min-p"))
        self.top_k = _whole(0, 1000, tr("Top-k (0: off)"))
        self.repetition = _decimal(1.0, 2.0, 0.01, tr("Repetition penalty"))
        self.max_new = _whole(1, 131_072, tr("Longest reply, in tokens"))
        self.overflow = QComboBox()
        self.overflow.addItem(tr("stop and ask"), "stop")
        self.overflow.addItem(tr("leave out the oldest turns"), "drop_oldest")
        self.overflow.setCurrentIndex(self.overflow.findData(settings.overflow))
        self.overflow.setAccessibleName(tr("When the chat outgrows the context"))
        self.seed = QLineEdit()
        self.seed.setPlaceholderText(tr("drawn anew for every reply"))
        self.seed.setAccessibleName(tr("Seed"))
        self._lay_out()
        self._show(settings.sampling)
        self.max_new.setValue(settings.max_new)
        self.preset.currentIndexChanged.connect(self._on_preset)
        for box in (self.temperature, self.top_p, self.min_p, self.repetition):
            box.valueChanged.connect(self._on_edited)
        self.top_k.valueChanged.connect(self._on_edited)
        self._on_edited()

    def settings(self) -> ChatSettings:
        """What was chosen."""
        overflow: Overflow = "drop_oldest" if self.overflow.currentData() == "drop_oldest" else "stop"
        return ChatSettings(self.system.toPlainText(), self._sampling(), self.max_new.value(), overflow)

    def _sampling(self) -> SamplingParams:
        text = self.seed.text().strip()
        return replace(
            self._given.sampling,
            temperature=round(self.temperature.value(), 4),
            top_p=round(self.top_p.value(), 4),
            min_p=round(self.min_p.value(), 4),
            top_k=self.top_k.value(),
            repetition_penalty=round(self.repetition.value(), 4),
            seed=int(text) if text.isdigit() else None,
        )

    def _show(self, sampling: SamplingParams) -> None:
        self.temperature.setValue(sampling.temperature)
        self.top_p.setValue(sampling.top_p)
        self.min_p.setValue(sampling.min_p)
        self.top_k.setValue(sampling.top_k)
        self.repetition.setValue(sampling.repetition_penalty)
        self.seed.setText("" if sampling.seed is None else str(sampling.seed))

    def _lay_out(self) -> None:
        box = QVBoxLayout(self)
        box.setContentsMargins(20, 18, 20, 16)
        box.setSpacing(10)
        box.addWidget(label(tr("System prompt"), "heading"))
        box.addWidget(self.system, 1)
        box.addWidget(label(tr("Sampling"), "heading"))
        form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft)
        for words, widget in (
            (tr("Preset"), self.preset),
            (tr("Temperature"), self.temperature),
            (tr("Top-p"), self.top_p),
            (tr("Min-p"), self.min_p),
            (tr("Top-k (0: off)"), self.top_k),
            (tr("Repetition penalty"), self.repetition),
            (tr("Seed"), self.seed),
            (tr("Longest reply, in tokens"), self.max_new),
            (tr("When the chat outgrows the context"), self.overflow),
        ):
            form.addRow(words, widget)
        box.addLayout(form)
        buttons = QDialogButtonBox(QDialogButtonBox.StandardButton.Ok | QDialogButtonBox.StandardButton.Cancel)
        buttons.button(QDialogButtonBox.StandardButton.Ok).setProperty("variant", "primary")
        buttons.accepted.connect(self.accept)
        buttons.rejected.connect(self.reject)
        box.addWidget(buttons)

    def _on_preset(self) -> None:
        chosen = next((preset for preset in PRESETS if preset.key == self.preset.currentData()), None)
        if chosen is not None:
            self._show(replace(chosen.sampling, seed=self._sampling().seed))

    def _on_edited(self) -> None:
        preset = preset_of(self._sampling())
        index = self.preset.findData(preset.key if preset else "")
        self.preset.blockSignals(True)
        self.preset.setCurrentIndex(index)
        self.preset.blockSignals(False)


def _decimal(low: float, high: float, step: float, name: str) -> QDoubleSpinBox:
    box = QDoubleSpinBox()
    box.setRange(low, high)
    box.setDecimals(2)
    box.setSingleStep(step)
    box.setAccessibleName(name)
    return box


def _whole(low: int, high: int, name: str) -> QSpinBox:
    box = QSpinBox()
    box.setRange(low, high)
    box.setAccessibleName(name)
    return box
