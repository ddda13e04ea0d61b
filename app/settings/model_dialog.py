"""The models of this computer: look at one before it is loaded, load it, stop loading it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import QSize, Qt
from PySide6.QtWidgets import (
    QDialog,
    QFrame,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.engine_thread import EngineBridge
from app.panels.words import size
from app.settings.keeper import SettingsKeeper
from app.settings.model_card import ModelCard
from app.settings.model_facts import ModelFacts, fit_of
from app.state.model_opener import ModelOpener
from app.text import tr
from app.theme import icon
from app.views.parts import label, size_dialog
from engine.catalog import KnownModel, find, known_models
from engine.errors import EngineError
from engine.port import EngineState

WORKING = ("compiling", "loading")


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the list: a file, or a known model that is not here yet."""

    words: str
    path: str = ""
    known: KnownModel | None = None


class ModelDialog(QDialog):
    """Chooses a model; stays open while it loads. Whoever makes it connects ``open_file``."""

    def __init__(
        self, bridge: EngineBridge, opener: ModelOpener, settings: SettingsKeeper, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._bridge = bridge
        self._opener = opener
        self._settings = settings
        self._facts: ModelFacts | None = None
        self._wanted = ""
        self.setWindowTitle(tr("Models"))
        size_dialog(self, 860, 640)
        self.list = QListWidget()
        self.list.setAccessibleName(tr("Models"))
        self.list.setIconSize(QSize(16, 16))
        self.card = ModelCard()
        self.state = label("", "muted", wrap=True)
        self.bar = QProgressBar()
        self.bar.setRange(0, 1000)
        self.bar.setAccessibleName(tr("Progress"))
        self.open_file = QPushButton(tr("Open a file…"))
        self.stop = QPushButton(tr("Stop loading"))
        self.stop.clicked.connect(opener.cancel)
        self.load = QPushButton(tr("Load"))
        self.load.setProperty("variant", "primary")
        self.load.clicked.connect(self._on_load)
        self._lay_out()
        self.list.currentItemChanged.connect(self._show)
        bridge.state.connect(self._on_state)
        opener.started.connect(lambda facts: self.look_at(facts.path))
        opener.loaded.connect(self.refresh)
        self.refresh()
        self._on_state(bridge.engine_state)

    def refresh(self, *_: object) -> None:
        """List what there is, the loaded model first."""
        model = self._bridge.engine_state.model
        wanted = self._wanted or (model.path if model is not None else "")
        self.list.blockSignals(True)
        self.list.clear()
        for entry in self._entries():
            loaded = model is not None and entry.path == model.path
            name = "check" if loaded else "download" if entry.known else "file"
            item = QListWidgetItem(icon(name, "accent" if loaded else "muted"), entry.words)
            item.setData(Qt.ItemDataRole.UserRole, entry)
            item.setToolTip(entry.path or entry.words)
            item.setSizeHint(QSize(0, 32))
            self.list.addItem(item)
            if entry.path and entry.path == wanted:
                self.list.setCurrentItem(item)
        self.list.blockSignals(False)
        if self.list.currentRow() < 0 and self.list.count():
            self.list.setCurrentRow(0)
        self._show(self.list.currentItem())

    def look_at(self, path: str) -> None:
        """Show a file, whether it is in the list or not."""
        self._wanted = path
        self.refresh()
        self._ask(path)

    def _entries(self) -> list[Entry]:
        model = self._bridge.engine_state.model
        recent = [path for path in self._settings.value.recent if Path(path).is_file()]
        paths = [*([model.path] if model is not None else []), *([self._wanted] if self._wanted else []), *recent]
        names = {str(path): known.name for known in known_models() if (path := find(known)) is not None}
        paths += names
        here = [Entry(names.get(path, Path(path).name), path) for path in dict.fromkeys(paths)]
        missing = [Entry(known.name, known=known) for known in known_models() if find(known) is None]
        return here + missing

    def _lay_out(self) -> None:
        side = QFrame()
        side.setProperty("surface", "panel")
        side.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        side.setFixedWidth(250)
        side_box = QVBoxLayout(side)
        side_box.setContentsMargins(10, 16, 10, 12)
        side_box.setSpacing(10)
        side_box.addWidget(self.list, 1)
        side_box.addWidget(self.open_file)
        foot = QHBoxLayout()
        foot.setSpacing(10)
        foot.addWidget(self.state, 1)
        for button in (self.stop, self.load):  # at the bottom, so that a longer text above does not move them
            foot.addWidget(button, 0, Qt.AlignmentFlag.AlignBottom)
        right = QVBoxLayout()
        right.setContentsMargins(24, 20, 24, 16)
        right.setSpacing(12)
        right.addWidget(self.card, 1)
        right.addWidget(self.bar)
        right.addLayout(foot)
        box = QHBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addWidget(side)
        box.addLayout(right, 1)

    def _show(self, item: QListWidgetItem | None, *_: object) -> None:
        entry: Entry | None = item.data(Qt.ItemDataRole.UserRole) if item is not None else None
        self._facts = None
        if entry is None:
            self.card.show_words(tr("No model is known"), tr("Open a GGUF file to begin."))
        elif entry.known is not None:
            self._wanted = ""
            self.card.show_words(entry.words, _offer(entry.known))
        else:
            self._ask(entry.path)
        self._offer_load()

    def _ask(self, path: str) -> None:
        self._wanted = path
        self._opener.look(path, self._on_facts, self._on_error)

    def _on_facts(self, facts: ModelFacts) -> None:
        if facts.path == self._wanted:
            self._facts = facts
            engine = self._settings.value.engine
            self.card.show_facts(facts, fit_of(facts, engine), engine)
            self._offer_load()

    def _on_error(self, error: EngineError) -> None:
        self.card.show_words(Path(self._wanted).name, str(error), wrong=True)
        self._offer_load()

    def _entry(self) -> Entry | None:
        item = self.list.currentItem()
        return item.data(Qt.ItemDataRole.UserRole) if item is not None else None

    def _offer_load(self) -> None:
        entry, model = self._entry(), self._bridge.engine_state.model
        missing = entry is not None and entry.known is not None
        self.load.setVisible(missing or self._facts is not None)
        if missing:
            self.load.setText(tr("Download and load"))
        elif self._facts is not None:
            risky = fit_of(self._facts, self._settings.value.engine).verdict == "too_large"
            again = model is not None and model.path == self._facts.path
            self.load.setText(tr("Load all the same") if risky else tr("Load again") if again else tr("Load"))
            self.load.setProperty("variant", "danger" if risky else "" if again else "primary")
            self.load.style().unpolish(self.load)
            self.load.style().polish(self.load)

    def _on_load(self) -> None:
        entry = self._entry()
        if self._facts is not None:
            self._opener.load(self._facts)
        elif entry is not None and entry.known is not None:
            self._opener.open(entry.known.id)

    def _working_words(self, state: EngineState) -> str:
        """What is being done, and to which model."""
        stage = tr("compiling") if state.stage == "compiling" else tr("loading")
        if self._opener.fetching or not self._opener.loading:
            return state.detail or stage
        words = tr("{name}: {stage}", name=self._opener.loading, stage=stage)
        return f"{words} · {state.detail}" if state.detail and state.detail != stage else words

    def _on_state(self, state: EngineState) -> None:
        working = state.stage in WORKING
        self.bar.setVisible(working)
        self.bar.setValue(round(1000 * state.progress))
        self.stop.setVisible(working)
        self.load.setEnabled(not working)
        if working:
            self.state.setText(self._working_words(state))
        elif state.error:
            self.state.setText(state.error)
        elif state.model is not None:
            self.state.setText(tr("{name} is loaded.", name=state.model.name))
        else:
            self.state.setText("")


def _offer(known: KnownModel) -> str:
    kind = tr("for chatting") if known.chat else tr("a base model, which continues text")
    return tr(
        "{architecture}, {kind}. {size} to download. Licence: {licence}. By {who}.",
        architecture=known.architecture,
        kind=kind,
        size=size(known.download_bytes),
        licence=known.licence,
        who=known.origin_name,
    )
