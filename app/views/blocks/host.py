"""The widget that blocks live in, as far as blocks know it: a parent for their buttons, and time for colouring code."""

from __future__ import annotations

from typing import Protocol

from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QWidget

SLICE_EVERY_MS = 15


class SlowWork(Protocol):
    """A block with work that is done in slices."""

    def lex_slice(self) -> bool:
        """Do a little; True while more is to do."""
        ...


class BlockHost(QWidget):
    """Runs the slices of its blocks one after the other, with pauses for everything else."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._slow: list[SlowWork] = []
        self._slow_timer = QTimer(self)
        self._slow_timer.setInterval(SLICE_EVERY_MS)
        self._slow_timer.timeout.connect(self._run_slice)

    def work_later(self, block: SlowWork) -> None:
        """Queue a block's slices."""
        if block not in self._slow:
            self._slow.append(block)
        self._slow_timer.start()

    def forget_work(self, block: SlowWork) -> None:
        """The block is gone."""
        if block in self._slow:
            self._slow.remove(block)

    def _run_slice(self) -> None:
        if self._slow and not self._slow[0].lex_slice():
            self._slow.pop(0)
            self.update()
        if not self._slow:
            self._slow_timer.stop()
