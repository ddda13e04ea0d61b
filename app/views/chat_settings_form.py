"""System prompt, sampling and limits as a form: for one chat, or for every new one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import (
    QComboBox,
    QDoubleSpinBox,
    QFormLayout,
    QHBoxLayout,
    QInputDialog,
    QLineEdit,
    QPlainTextEdit,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from app.state.sampling import PRESETS, ChatSettings, Overflow, Preset, preset_of
from app.text import tr
from app.views.parts import label, padded, tool_button
from engine.scheduling.request import SamplingParams

LARGEST_SEED = 2**64 - 1


class PresetShelf(Protocol):
    """Where presets are: the built-in ones and a person's own."""

    def all(self) -> Sequence[Preset]: ...
    def keep(self, name: str, sampling: SamplingParams) -> Preset: ...
    def drop(self, preset: Preset) -> None: ...


class ChatSettingsForm(QWidget):
    """Edits a copy; ``settings()`` gives the result.

    Signals:
        changed: something was edited.
    """

    changed = Signal()

    def __init__(self, settings: ChatSettings, shelf: PresetShelf | None = None) -> None:
        super().__init__()
        self._given = settings
        self._shelf = shelf
        self._presets: list[Preset] = []
        self.system = QPlainTextEdit(settings.system_prompt)
        self.system.setPlaceholderText(tr("Empty: what the model's own template says"))
        self.system.setAccessibleName(tr("System prompt"))
        self.system.setTabChangesFocus(True)
        self.preset = QComboBox()
        self.preset.setAccessibleName(tr("Preset"))
        self.keep = tool_button("plus", tr("Keep these values as a preset…"), self._ask_name)
        self.drop = tool_button("delete", tr("Delete this preset"), self._drop)
        self.temperature = _decimal(0.0, 3.0, 0.05, tr("Temperature"))
        self.top_p = _decimal(0.01, 1.0, 0.01, tr("Top-p"))
        self.min_p = _decimal(0.0, 1.0, 0.01, tr("Min-p"))
        self.top_k = _whole(0, 1000, tr("Top-k (0: off)"))
        self.repetition = _decimal(1.0, 2.0, 0.01, tr("Repetition penalty"))
        self.max_new = _whole(1, 131_072, tr("Longest reply, in tokens"))
        self.overflow = _overflow_box(settings.overflow)
        self.template = _template_box(settings.plain_template)
        self.seed = QLineEdit()
        self.seed.setPlaceholderText(tr("drawn anew for every reply"))
        self.seed.setAccessibleName(tr("Seed"))
        self.wrong = label("", "danger", wrap=True)
        self._lay_out()
        self._show(settings.sampling)
        self.max_new.setValue(settings.max_new)
        self._list_presets()
        self._connect()

    def settings(self) -> ChatSettings:
        """What was chosen; while there is a problem, with the seed that was given."""
        overflow: Overflow = "drop_oldest" if self.overflow.currentData() == "drop_oldest" else "stop"
        plain = bool(self.template.currentData())
        return ChatSettings(self.system.toPlainText(), self._sampling(), self.max_new.value(), overflow, plain)

    def problem(self) -> str:
        """What must be put right, as a sentence; empty when all is well."""
        text = self.seed.text().strip()
        if text and not (text.isascii() and text.isdigit() and int(text) <= LARGEST_SEED):
            return tr("A seed is a whole number of at most 20 digits, or nothing.")
        return ""

    def _sampling(self) -> SamplingParams:
        text = self.seed.text().strip()
        seed = self._given.sampling.seed if self.problem() else int(text) if text else None
        return replace(
            self._given.sampling,
            temperature=round(self.temperature.value(), 4),
            top_p=round(self.top_p.value(), 4),
            min_p=round(self.min_p.value(), 4),
            top_k=self.top_k.value(),
            repetition_penalty=round(self.repetition.value(), 4),
            seed=seed,
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
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(10)
        box.addWidget(label(tr("System prompt"), "heading"))
        box.addWidget(self.system, 1)
        box.addWidget(label(tr("Sampling"), "heading"))
        presets = QHBoxLayout()
        presets.setSpacing(4)
        presets.addWidget(self.preset, 1)
        if self._shelf is not None:
            presets.addWidget(self.keep)
            presets.addWidget(self.drop)
        form = QFormLayout()
        form.setHorizontalSpacing(16)
        form.setVerticalSpacing(8)
        form.setLabelAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        form.addRow(tr("Preset"), presets)
        for words, widget in (
            (tr("Temperature"), self.temperature),
            (tr("Top-p"), self.top_p),
            (tr("Min-p"), self.min_p),
            (tr("Top-k (0: off)"), self.top_k),
            (tr("Repetition penalty"), self.repetition),
            (tr("Seed"), self.seed),
            (tr("Longest reply, in tokens"), self.max_new),
            (tr("When the chat outgrows the context"), self.overflow),
            (tr("Chat template"), self.template),
        ):
            form.addRow(words, widget)
        box.addLayout(form)
        box.addWidget(self.wrong)
        self.wrong.hide()

    def _connect(self) -> None:
        self.preset.currentIndexChanged.connect(self._on_preset)
        for box in (self.temperature, self.top_p, self.min_p, self.repetition, self.top_k, self.max_new):
            box.valueChanged.connect(self._on_edited)
        self.seed.textChanged.connect(self._on_edited)
        self.system.textChanged.connect(self.changed)
        for choice in (self.overflow, self.template):
            choice.currentIndexChanged.connect(lambda _: self.changed.emit())

    def _list_presets(self) -> None:
        self._presets = list(self._shelf.all() if self._shelf is not None else PRESETS)
        self.preset.blockSignals(True)
        self.preset.clear()
        for preset in self._presets:
            self.preset.addItem(preset.name, preset.key)
        self.preset.addItem(tr("Set by hand"), "")
        self.preset.blockSignals(False)
        self._mark_preset()

    def _mark_preset(self) -> None:
        """Show which preset has the values of now, if any."""
        found = preset_of(self._sampling(), self._presets)
        self.preset.blockSignals(True)
        self.preset.setCurrentIndex(self.preset.findData(found.key if found else ""))
        self.preset.blockSignals(False)
        self.keep.setEnabled(found is None)
        self.drop.setVisible(found is not None and found.is_own)

    def _on_preset(self) -> None:
        chosen = next((preset for preset in self._presets if preset.key == self.preset.currentData()), None)
        if chosen is not None:
            self._show(replace(chosen.sampling, seed=self._sampling().seed))

    def _on_edited(self) -> None:
        self._mark_preset()
        self.wrong.setText(self.problem())
        self.wrong.setVisible(bool(self.wrong.text()))
        self.changed.emit()

    def _ask_name(self) -> None:
        dialog = QInputDialog(self)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.setWindowTitle(tr("Keep as a preset"))
        dialog.setLabelText(tr("Name"))
        dialog.textValueSelected.connect(self._keep)
        dialog.open()

    def _keep(self, name: str) -> None:
        if self._shelf is not None and name.strip():
            self._shelf.keep(" ".join(name.split()), replace(self._sampling(), seed=None))
            self._list_presets()

    def _drop(self) -> None:
        chosen = next((preset for preset in self._presets if preset.key == self.preset.currentData()), None)
        if self._shelf is not None and chosen is not None and chosen.is_own:
            self._shelf.drop(chosen)
            self._list_presets()


def _decimal(low: float, high: float, step: float, name: str) -> QDoubleSpinBox:
    box = QDoubleSpinBox()
    box.setRange(low, high)
    box.setDecimals(2)
    box.setSingleStep(step)
    box.setAccessibleName(name)
    padded(box)
    return box


def _whole(low: int, high: int, name: str) -> QSpinBox:
    box = QSpinBox()
    box.setRange(low, high)
    box.setGroupSeparatorShown(True)
    box.setAccessibleName(name)
    padded(box)
    return box


def _overflow_box(chosen: Overflow) -> QComboBox:
    box = QComboBox()
    box.addItem(tr("stop and ask"), "stop")
    box.addItem(tr("leave out the oldest turns"), "drop_oldest")
    box.setCurrentIndex(box.findData(chosen))
    box.setAccessibleName(tr("When the chat outgrows the context"))
    return box


def _template_box(plain: bool) -> QComboBox:
    box = QComboBox()
    box.addItem(tr("the model's own"), False)
    box.addItem(tr("plain (ChatML)"), True)
    box.setCurrentIndex(box.findData(plain))
    box.setAccessibleName(tr("Chat template"))
    return box
