"""The settings of the program: three pages, and a foot that says what saving them means."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QDialog,
    QFrame,
    QHBoxLayout,
    QListWidget,
    QListWidgetItem,
    QPushButton,
    QRadioButton,
    QScrollArea,
    QStackedWidget,
    QVBoxLayout,
    QWidget,
)

from app.settings.checks import Surroundings
from app.settings.engine_page import EnginePage
from app.settings.values import Settings
from app.text import tr, trn
from app.theme import ThemeMode, icon
from app.views.chat_settings_form import ChatSettingsForm, PresetShelf
from app.views.parts import label, size_dialog

PAGE_MARGIN = 24


class SettingsDialog(QDialog):
    """Edits a copy; ``value()`` gives the result when it was accepted.

    Signals:
        saved: (Settings, whether the model has to be loaded again).
    """

    saved = Signal(Settings, bool)

    def __init__(
        self,
        settings: Settings,
        around: Surroundings,
        shelf: PresetShelf | None = None,
        *,
        streaming: int = 0,
        parent: QWidget | None = None,
    ) -> None:
        """``streaming`` replies are being written now (loading the model again stops them)."""
        super().__init__(parent)
        self._given = settings
        self._loaded = around.model is not None
        self._streaming = streaming
        self.setWindowTitle(tr("Settings"))
        self.setModal(True)
        size_dialog(self, 760, 640)
        self.engine = EnginePage(settings.engine, around)
        self.chat = ChatSettingsForm(settings.chat, shelf)
        self.themes = QButtonGroup(self)
        self.pages = QStackedWidget()
        self.list = QListWidget()
        self._add_page("engine", tr("Model and engine"), self.engine)
        self._add_page("chat", tr("New chats"), self.chat)
        self._add_page("moon", tr("Appearance"), self._appearance(settings.theme))
        self.foot = label("", "muted", wrap=True)
        self.cancel = QPushButton(tr("Cancel"))
        self.cancel.clicked.connect(self.reject)
        self.save = QPushButton(tr("Save"))
        self.save.setProperty("variant", "primary")
        self.save.setDefault(True)
        self.save.clicked.connect(self._on_save)
        self._lay_out()
        self.engine.changed.connect(self._judge)
        self.chat.changed.connect(self._judge)
        self.list.setCurrentRow(0)
        self._judge()

    def value(self) -> Settings:
        """What was chosen; presets may have been kept meanwhile, so they are not touched here."""
        checked = self.themes.checkedButton()
        mode: ThemeMode = self._given.theme if checked is None else checked.property("mode")
        return replace(self._given, theme=mode, engine=self.engine.settings(), chat=self.chat.settings())

    @property
    def reloads(self) -> bool:
        """Whether saving loads the model again."""
        return self._loaded and self._given.engine.needs_reload(self.engine.settings())

    def _add_page(self, icon_name: str, words: str, content: QWidget) -> None:
        page = QWidget()
        page.setProperty("surface", "clear")
        box = QVBoxLayout(page)
        box.setContentsMargins(PAGE_MARGIN, 20, PAGE_MARGIN, 16)
        box.setSpacing(16)
        box.addWidget(label(words, "title"))
        box.addWidget(content, 1)
        scroll = QScrollArea()
        scroll.setFrameShape(QFrame.Shape.NoFrame)
        scroll.setWidgetResizable(True)
        scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        scroll.setWidget(page)
        self.pages.addWidget(scroll)
        item = QListWidgetItem(icon(icon_name), words)
        item.setSizeHint(QSize(0, 32))
        self.list.addItem(item)

    def _appearance(self, mode: ThemeMode) -> QWidget:
        page = QWidget()
        box = QVBoxLayout(page)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(10)
        box.addWidget(label(tr("Colours"), "heading"))
        choices: tuple[tuple[ThemeMode, str], ...] = (
            ("system", tr("Like the system")),
            ("light", tr("Light")),
            ("dark", tr("Dark")),
        )
        for key, words in choices:
            button = QRadioButton(words)
            button.setProperty("mode", key)
            button.setChecked(key == mode)
            self.themes.addButton(button)
            box.addWidget(button)
        box.addStretch(1)
        return page

    def _lay_out(self) -> None:
        side = QFrame()
        side.setProperty("surface", "panel")
        side.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        side.setFixedWidth(190)
        self.list.setAccessibleName(tr("Pages"))
        self.list.setIconSize(QSize(16, 16))
        self.list.setSpacing(1)
        self.list.currentRowChanged.connect(self.pages.setCurrentIndex)
        side_box = QVBoxLayout(side)
        side_box.setContentsMargins(10, 16, 10, 10)
        side_box.addWidget(self.list)
        foot = QHBoxLayout()
        foot.setContentsMargins(PAGE_MARGIN, 12, PAGE_MARGIN, 16)
        foot.setSpacing(8)
        foot.addWidget(self.foot, 1)
        foot.addSpacing(12)
        self.save.setText(tr("Save and load again"))
        self.save.setMinimumWidth(self.save.sizeHint().width())
        for button in (self.cancel, self.save):  # neither longer words nor a higher foot move them
            foot.addWidget(button, 0, Qt.AlignmentFlag.AlignBottom)
        line = QFrame()
        line.setProperty("surface", "line")
        right = QVBoxLayout()
        right.setSpacing(0)
        right.addWidget(self.pages, 1)
        right.addWidget(line)
        right.addLayout(foot)
        box = QHBoxLayout(self)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addWidget(side)
        box.addLayout(right, 1)

    def _judge(self) -> None:
        """What saving means now, or why it cannot be done."""
        wrong = bool(self.engine.problems()) or bool(self.chat.problem())
        self.save.setEnabled(not wrong)
        self.save.setText(tr("Save and load again") if self.reloads and not wrong else tr("Save"))
        if wrong:
            self.foot.setText(tr("One value has to be put right first."))
        elif self.reloads:
            self.foot.setText(self._reload_words())
        else:
            self.foot.setText("")

    def _reload_words(self) -> str:
        words = tr("The model is loaded again for this. All chats stay; the prefix cache begins empty.")
        if self._streaming:
            words += " " + trn(
                "The reply that is being written stops; it can be continued.",
                "The {n} replies that are being written stop; they can be continued.",
                self._streaming,
            )
        return words

    def _on_save(self) -> None:
        self.saved.emit(self.value(), self.reloads)
        self.accept()
