"""What the window relies on in the Qt binding itself."""

from __future__ import annotations

import sys

from PySide6.QtCore import QObject, Signal


class _Emitter(QObject):
    told = Signal(object)


def test_emitting_a_signal_gives_no_reference_away():
    """PySide6 6.12.0 returns True from ``emit`` without a reference of its own, which ends Python 3.11 in a crash."""
    emitter, got = _Emitter(), []
    emitter.told.connect(got.append)
    before = sys.getrefcount(True)
    for number in range(40):
        emitter.told.emit(number)
    assert got == list(range(40))
    assert sys.getrefcount(True) >= before - 5
