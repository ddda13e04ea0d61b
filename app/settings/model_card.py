"""Everything that is known of one model file before it is loaded."""

from __future__ import annotations

from PySide6.QtCore import QSortFilterProxyModel, Qt
from PySide6.QtGui import QStandardItem, QStandardItemModel
from PySide6.QtWidgets import QAbstractItemView, QHeaderView, QLineEdit, QTableView, QVBoxLayout, QWidget

from app.panels.words import size
from app.settings.memory_bar import MemoryBar
from app.settings.model_facts import Fit, ModelFacts, context_of, fit_words
from app.settings.values import EngineSettings
from app.text import tr
from app.views.parts import label


class ModelCard(QWidget):
    """Name, figures, memory, tensor types and metadata of a file; or a sentence instead."""

    def __init__(self) -> None:
        super().__init__()
        self.title = label("", "title", wrap=True)
        self.figures = label("", wrap=True)
        self.path = label("", "caption", wrap=True)
        self.path.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.memory_title = label(tr("Memory"), "heading")
        self.memory = MemoryBar()
        self.verdict = label("", "muted", wrap=True)
        self.types_title = label(tr("Tensors"), "heading")
        self.types = label("", wrap=True)
        self.metadata_title = label(tr("Metadata"), "heading")
        self.filter = QLineEdit()
        self.filter.setPlaceholderText(tr("Search the metadata"))
        self.filter.setAccessibleName(tr("Search the metadata"))
        self.filter.setClearButtonEnabled(True)
        self._items = QStandardItemModel(0, 2, self)
        self.table = self._make_table()
        self._facts_only: list[QWidget] = [
            self.path,
            self.memory_title,
            self.memory,
            self.types_title,
            self.types,
            self.metadata_title,
            self.filter,
            self.table,
        ]
        self._lay_out()

    def _lay_out(self) -> None:
        box = QVBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(6)
        groups: tuple[tuple[QWidget, ...], ...] = (
            (self.title, self.figures, self.path),
            (self.memory_title, self.memory, self.verdict),
            (self.types_title, self.types),
        )
        for group in groups:
            for widget in group:
                box.addWidget(widget)
            box.addSpacing(8)
        box.addWidget(self.metadata_title)
        box.addWidget(self.filter)
        box.addWidget(self.table, 1)
        box.addStretch(0)

    def show_words(self, title: str, words: str, *, wrong: bool = False) -> None:
        """No file to show: say why, or what could be had."""
        self.title.setText(title)
        self.figures.setText(words)
        self._set_role(self.figures, "danger" if wrong else "muted")
        for widget in (*self._facts_only, self.verdict):
            widget.hide()

    def show_facts(self, facts: ModelFacts, fit: Fit, settings: EngineSettings) -> None:
        """Show a file."""
        for widget in self._facts_only:
            widget.show()
        self.title.setText(facts.name)
        self._set_role(self.figures, "")
        self.figures.setText(
            tr(
                "{architecture} · {parameters} parameters · {layers} layers · "
                "context {context:,} of {trained:,} tokens",
                architecture=facts.architecture,
                parameters=_parameters(facts.parameters),
                layers=facts.layers,
                context=context_of(facts, settings),
                trained=facts.context_length,
            )
        )
        self.path.setText(tr("{path} · {size}", path=facts.path, size=size(facts.file_bytes)))
        self.memory.show_fit(facts, fit)
        per_token = tr("A token of KV takes {n}.", n=size(facts.kv_bytes_per_token))
        words = fit_words(fit)
        self.verdict.setText(words or tr("It fits. {per_token}", per_token=per_token))
        self._set_role(self.verdict, "danger" if fit.verdict == "too_large" else "muted")
        self.verdict.show()
        self.types.setText("  ·  ".join(f"{n:,} × {kind}" for kind, n in facts.tensor_types))
        self._items.setRowCount(0)
        for key, value in facts.metadata:
            self._items.appendRow([QStandardItem(key), QStandardItem(" ".join(value.split()))])

    def _make_table(self) -> QTableView:
        rows = QSortFilterProxyModel(self)
        rows.setSourceModel(self._items)
        rows.setFilterKeyColumn(-1)
        rows.setFilterCaseSensitivity(Qt.CaseSensitivity.CaseInsensitive)
        self.filter.textChanged.connect(rows.setFilterFixedString)
        table = QTableView()
        table.setModel(rows)
        table.setAccessibleName(tr("Metadata"))
        table.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        table.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        table.setShowGrid(False)
        table.setTabKeyNavigation(False)
        table.setWordWrap(False)
        table.verticalHeader().hide()
        table.verticalHeader().setDefaultSectionSize(24)
        table.horizontalHeader().hide()
        table.horizontalHeader().setSectionResizeMode(0, QHeaderView.ResizeMode.ResizeToContents)
        table.horizontalHeader().setStretchLastSection(True)
        table.setMinimumHeight(120)
        return table

    @staticmethod
    def _set_role(widget: QWidget, role: str) -> None:
        if widget.property("role") != role:
            widget.setProperty("role", role)
            widget.style().unpolish(widget)
            widget.style().polish(widget)


def _parameters(number: int) -> str:
    return f"{number / 1e9:.1f} B" if number >= 1e9 else f"{number / 1e6:.0f} M"
