"""One setting: its name, its control and a line that says what the value means or what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QWheelEvent
from PySide6.QtWidgets import QCheckBox, QHBoxLayout, QSpinBox, QVBoxLayout, QWidget

from app.text import tr
from app.views.parts import label, padded

CONTROL_WIDTH = 150


class NumberBox(QSpinBox):
    """A whole number, or Automatic; the wheel scrolls the page and changes no number."""

    def __init__(self, name: str, low: int, high: int, step: int = 1, unit: str = "", *, automatic: bool) -> None:
        super().__init__()
        self._automatic = automatic
        self.setRange(0 if automatic else low, high)
        self.setSingleStep(step)
        self.setGroupSeparatorShown(True)
        self.setFixedWidth(CONTROL_WIDTH)
        self.setAccessibleName(name)
        padded(self)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        if automatic:
            self.setSpecialValueText(tr("Automatic"))
        if unit:
            self.setSuffix(f" {unit}")

    @property
    def number(self) -> int | None:
        """The number, None for Automatic."""
        return None if self._automatic and self.value() == 0 else self.value()

    def set_number(self, number: int | None) -> None:
        """Show a number, None: Automatic."""
        self.setValue(number or 0)

    def wheelEvent(self, event: QWheelEvent) -> None:
        event.ignore()


class Field(QWidget):
    """A row of a form."""

    def __init__(self, words: str, control: QWidget) -> None:
        super().__init__()
        self.control = control
        self._name = words
        self.note = label("", "caption", wrap=True)
        self.note.setMinimumWidth(80)
        name = label(words)
        name.setBuddy(control)
        head = QHBoxLayout()
        head.setSpacing(12)
        head.addWidget(name, 1)
        head.addWidget(control)
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(3)
        box.addLayout(head)
        box.addWidget(self.note)

    def say(self, words: str, *, wrong: bool = False) -> None:
        """The line below."""
        role = "danger" if wrong else "caption"
        if self.note.property("role") != role:
            self.note.setProperty("role", role)
            self.note.style().unpolish(self.note)
            self.note.style().polish(self.note)
        self.note.setText(words)
        self.note.setVisible(bool(words))
        self.control.setAccessibleDescription(words)


def switch(name: str, on: bool, changed: Callable[[], object]) -> QCheckBox:
    """A check box that is a setting by itself."""
    box = QCheckBox()
    box.setChecked(on)
    box.setAccessibleName(name)
    box.toggled.connect(lambda _: changed())
    return box
