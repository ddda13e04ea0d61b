"""The dialogs of the main window: settings, models, log, palette; each is made when it is first wanted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from PySide6.QtCore import QObject, Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtWidgets import QMessageBox, QWidget

from app import crash
from app.commands import Commands
from app.engine_thread import EngineBridge
from app.log_view import LogDialog
from app.palette import Entry, Palette
from app.settings.checks import Surroundings, cores
from app.settings.dialog import SettingsDialog
from app.settings.keeper import SettingsKeeper
from app.settings.model_dialog import ModelDialog
from app.settings.model_facts import Fit, ModelFacts, fit_words
from app.settings.presets import Presets
from app.settings.values import Settings
from app.state.chat_controller import ChatController
from app.state.model_opener import ModelOpener
from app.text import tr
from app.views.notice import NoticeBar
from app.views.toast import Toast
from engine.cache.memory import free_memory

PALETTE_CHATS = 200


class Window(Protocol):
    """What the dialogs need of the main window (which is their parent)."""

    bridge: EngineBridge
    controller: ChatController
    opener: ModelOpener
    settings: SettingsKeeper
    commands: Commands
    notices: NoticeBar
    toast: Toast

    def show_chat(self, chat: str) -> None: ...
    def choose_model(self) -> None: ...


class WindowDialogs(QObject):
    """Opens dialogs and carries out what is chosen in them."""

    def __init__(self, window: Window, parent: QObject) -> None:
        super().__init__(parent)
        self._window = window
        self._models: ModelDialog | None = None
        self._log: LogDialog | None = None
        self.presets = Presets(window.settings)
        window.opener.doubtful.connect(self._ask_doubtful)

    def settings(self) -> None:
        """The settings of the program."""
        window = self._window
        around = Surroundings(cores(), free_memory(), window.bridge.engine_state.model)
        dialog = SettingsDialog(
            window.settings.value,
            around,
            self.presets,
            streaming=len(window.controller.tracker.all_live()),
            parent=self._parent(),
        )
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.saved.connect(self._save_settings)
        dialog.open()

    def models(self, path: str = "") -> None:
        """The models; with ``path`` that file is shown."""
        window = self._window
        if self._models is None:
            self._models = ModelDialog(window.bridge, window.opener, window.settings, self._parent())
            self._models.open_file.clicked.connect(window.choose_model)
        if path:
            self._models.look_at(path)
        else:
            self._models.refresh()
        self._models.show()
        self._models.raise_()
        self._models.activateWindow()

    def log(self, report: Path | None = None) -> None:
        """The log, or a crash report."""
        if self._log is None:
            self._log = LogDialog(self._parent())
        self._log.list_sources(report)
        self._log.show()
        self._log.raise_()
        self._log.activateWindow()

    def palette(self) -> None:
        """Everything that can be done, and every chat."""
        Palette(self._entries(), self._parent()).open_over(self._parent())

    def offer_crash_report(self) -> None:
        """Offer the report that an earlier run left, once."""
        newest = next(iter(crash.reports()), None)
        if newest is None or newest.name == self._window.settings.value.seen_crash:
            return
        self._window.settings.change(seen_crash=newest.name)
        self._window.notices.say(
            "crash",
            tr("KVScope did not end well the last time. Your chats are here; a report of it lies on this computer."),
            tr("Show the report"),
            lambda: self.log(newest),
        )

    def tell_error(self, report: str) -> None:
        """Something went wrong in this run and was caught at the last moment."""
        self._window.settings.change(seen_crash=Path(report).name)
        self._window.notices.say(
            "error",
            tr("Something went wrong inside KVScope; it goes on. A report lies on this computer."),
            tr("Show the report"),
            lambda: self.log(Path(report)),
        )

    def _save_settings(self, chosen: Settings, reload: bool) -> None:
        window = self._window
        before = window.settings.value.engine
        window.settings.change(theme=chosen.theme, engine=chosen.engine, chat=chosen.chat)
        if reload:
            window.opener.reload()
        elif chosen.engine.threads != before.threads and window.bridge.engine_state.model is not None:
            done = window.bridge.port.set_threads(chosen.engine.threads or cores())
            window.bridge.ask(done, lambda _: None, lambda error: window.toast.say(str(error)))

    def _ask_doubtful(self, facts: ModelFacts, fit: Fit) -> None:
        """A model that does not fit is loaded only when the person says so."""
        box = QMessageBox(self._parent())
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setIcon(QMessageBox.Icon.Warning)
        box.setWindowTitle(tr("Not enough memory"))
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setText(tr("{name} does not fit into the free memory.", name=facts.name))
        box.setInformativeText(fit_words(fit))
        load = box.addButton(tr("Load all the same"), QMessageBox.ButtonRole.DestructiveRole)
        look = box.addButton(tr("Look at it"), QMessageBox.ButtonRole.ActionRole)
        box.setDefaultButton(box.addButton(QMessageBox.StandardButton.Cancel))
        load.clicked.connect(lambda: self._window.opener.load(facts))
        look.clicked.connect(lambda: self.models(facts.path))
        box.open()

    def _entries(self) -> list[Entry]:
        window, known = self._window, self._window.commands.known
        entries = [
            Entry(command.words.rstrip("…"), command.run, _keys(command.shortcut), command.icon_name)
            for key, command in known.items()
            if key != "palette"
        ]
        for head in window.controller.heads()[:PALETTE_CHATS]:
            words, run = window.controller.title(head.id), _later(window.show_chat, head.id)
            entries.append(Entry(words, run, tr("chat"), "chat", only_searched=True))
        for path in window.settings.value.recent:
            words = tr("Load {name}", name=Path(path).name)
            entries.append(Entry(words, _later(window.opener.open, path), tr("model"), "model", only_searched=True))
        return entries

    def _parent(self) -> QWidget:
        parent = self.parent()
        assert isinstance(parent, QWidget)
        return parent


def _later(run: Callable[[str], object], given: str) -> Callable[[], object]:
    return lambda: run(given)


def _keys(shortcut: str) -> str:
    return QKeySequence(shortcut).toString(QKeySequence.SequenceFormat.NativeText) if shortcut else ""
