"""The page of the settings about how a model is loaded and run."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QVBoxLayout, QWidget

from app.settings.checks import MAX_PAGE_ROWS, MAX_STREAMS, MAX_THREADS, PAGE_STEP, Surroundings, problems, remarks
from app.settings.field import Field, NumberBox, switch
from app.settings.values import EngineSettings
from app.text import tr


class EnginePage(QWidget):
    """Edits a copy of the engine's settings.

    Signals:
        changed: a value changed.
    """

    changed = Signal()

    def __init__(self, settings: EngineSettings, around: Surroundings) -> None:
        super().__init__()
        self._around = around
        self.threads = self._number(tr("Threads"), 1, MAX_THREADS, settings.threads, automatic=True)
        self.n_ctx = self._number(tr("Context"), 1, 1_048_576, settings.n_ctx, 1024, tr("tokens"), automatic=True)
        self.max_streams = self._number(tr("Chats written at once"), 1, MAX_STREAMS, settings.max_streams)
        self.page_rows = self._number(tr("Page"), PAGE_STEP, MAX_PAGE_ROWS, settings.page_rows, PAGE_STEP, tr("tokens"))
        self.pool_mb = self._number(tr("KV pool"), 1, 1_000_000, settings.pool_mb, 100, tr("MB"), automatic=True)
        self.cache_mb = self._number(tr("Prefix cache"), 1, 1_000_000, settings.cache_mb, 100, tr("MB"), automatic=True)
        self.exact = switch(tr("Exact arithmetic"), settings.exact, self._on_changed)
        self.fields = {
            "threads": Field(tr("Threads"), self.threads),
            "n_ctx": Field(tr("Context"), self.n_ctx),
            "max_streams": Field(tr("Chats written at once"), self.max_streams),
            "page_rows": Field(tr("Page"), self.page_rows),
            "pool_mb": Field(tr("KV pool"), self.pool_mb),
            "cache_mb": Field(tr("Prefix cache"), self.cache_mb),
            "exact": Field(tr("Exact arithmetic"), self.exact),
        }
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(14)
        for field in self.fields.values():
            box.addWidget(field)
        box.addStretch(1)
        self._say()

    def settings(self) -> EngineSettings:
        """What is chosen now."""
        return EngineSettings(
            threads=self.threads.number,
            n_ctx=self.n_ctx.number,
            max_streams=self.max_streams.value(),
            page_rows=self.page_rows.value(),
            pool_mb=self.pool_mb.number,
            cache_mb=self.cache_mb.number,
            exact=self.exact.isChecked(),
        )

    def problems(self) -> dict[str, str]:
        """What must be put right."""
        return problems(self.settings(), self._around)

    def _number(
        self,
        name: str,
        low: int,
        high: int,
        value: int | None,
        step: int = 1,
        unit: str = "",
        *,
        automatic: bool = False,
    ) -> NumberBox:
        box = NumberBox(name, low, high, step, unit, automatic=automatic)
        box.set_number(value)
        box.valueChanged.connect(self._on_changed)
        return box

    def _on_changed(self) -> None:
        self._say()
        self.changed.emit()

    def _say(self) -> None:
        wrong, known = self.problems(), remarks(self.settings(), self._around)
        for key, field in self.fields.items():
            field.say(wrong.get(key) or known.get(key, ""), wrong=key in wrong)
