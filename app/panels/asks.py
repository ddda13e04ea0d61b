"""What the panels need of the bridge to the engine: its port, its signals, and a way to ask."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

from PySide6.QtCore import SignalInstance

from engine.port import EnginePort


class Asks(Protocol):
    """Something that puts a question to the engine and calls back on the window's thread."""

    @property
    def port(self) -> EnginePort: ...

    def ask(
        self, future: Future[Any], callback: Callable[[Any], None], on_error: Callable[[Any], None] | None = None
    ) -> None: ...


class Bridge(Asks, Protocol):
    """An ``Asks`` that also tells of every step, every finished reply and every change of the engine's state."""

    @property
    def step(self) -> SignalInstance: ...

    @property
    def finished(self) -> SignalInstance: ...

    @property
    def state(self) -> SignalInstance: ...
