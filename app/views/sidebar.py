"""The left side: new chat, search, all chats, and what the engine is doing."""

from __future__ import annotations

from PySide6.QtCore import QModelIndex, QPoint, QSize, Qt, Signal
from PySide6.QtGui import QKeyEvent, QKeySequence, QShortcut
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListView,
    QMenu,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app.engine_thread import EngineBridge
from app.state.chat_controller import ChatController
from app.text import tr
from app.theme import app_icon, icon
from app.views.chat_list import CHAT_ROLE, ChatDelegate, ChatListModel
from app.views.engine_status import EngineStatus
from app.views.parts import label, tool_button

MARGIN = 10
MIN_WIDTH = 200
"""A window that becomes narrower takes from every dock alike; the list of chats stays readable."""


class _List(QListView):
    """The list itself: Enter opens, F2 renames, Delete deletes."""

    opened = Signal(str)
    delete_asked = Signal(str)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        chat = self.currentIndex().data(CHAT_ROLE) or ""
        if self.state() == QAbstractItemView.State.EditingState:
            super().keyPressEvent(event)  # Enter ends the renaming; it does not open the chat as well
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and chat:
            self.opened.emit(chat)
        elif event.key() == Qt.Key.Key_Delete and chat:
            self.delete_asked.emit(chat)
        else:
            super().keyPressEvent(event)


class Sidebar(QWidget):
    """Chats and search.

    Signals:
        new_chat_asked: start a chat.
        chat_chosen: (chat) show it.
        delete_asked: (chat).
        export_asked: (chat, "markdown" or "json").
        model_asked: the person wants to choose a model.
    """

    new_chat_asked = Signal()
    chat_chosen = Signal(str)
    delete_asked = Signal(str)
    export_asked = Signal(str, str)
    model_asked = Signal()

    def __init__(self, controller: ChatController, bridge: EngineBridge, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setProperty("surface", "panel")
        self.setAttribute(Qt.WidgetAttribute.WA_StyledBackground)
        self.setMinimumWidth(MIN_WIDTH)
        self.model = ChatListModel(controller, self)
        self.new_chat = QPushButton(tr("New chat") + "   " + tr("Ctrl N"))
        self.new_chat.setProperty("variant", "primary")
        self.new_chat.setAccessibleName(tr("New chat"))
        self.new_chat.clicked.connect(self.new_chat_asked)
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Search all chats"))
        self.search.setAccessibleName(tr("Search all chats"))
        self.search.setClearButtonEnabled(True)
        self.search.textChanged.connect(self.model.search)
        back = QShortcut(QKeySequence(Qt.Key.Key_Escape), self.search)
        back.setContext(Qt.ShortcutContext.WidgetShortcut)  # elsewhere Esc stops a reply
        back.activated.connect(self.search.clear)
        self.list = self._make_list()
        self.status = EngineStatus(bridge)
        self.status.clicked.connect(self.model_asked)
        box = QVBoxLayout(self)
        box.setContentsMargins(MARGIN, 12, MARGIN, 8)
        box.setSpacing(8)
        box.addLayout(self._heading())
        box.addWidget(self.new_chat)
        box.addWidget(self.search)
        box.addWidget(self.list, 1)
        box.addWidget(self.status)
        self._box = box

    def add_foot(self, widget: QWidget) -> None:
        """Put a widget above the line about the engine."""
        self._box.insertWidget(self._box.indexOf(self.status), widget)

    def sizeHint(self) -> QSize:
        return QSize(230, 400)

    def show_current(self, chat: str) -> None:
        """Mark the chat that is in front."""
        index = self.model.index_of(chat)
        if index.isValid():
            self.list.setCurrentIndex(index)
        else:
            self.list.clearSelection()

    def rename(self, chat: str) -> None:
        """Let the person type another title for a chat."""
        self.search.clear()
        index = self.model.index_of(chat)
        if index.isValid():
            self.list.setCurrentIndex(index)
            self.list.edit(index)

    def set_menu(self, menu: QMenu) -> None:
        """All commands, behind the button beside the name."""
        self._menu_button.clicked.connect(
            lambda: menu.popup(self._menu_button.mapToGlobal(QPoint(0, self._menu_button.height())))
        )

    def _heading(self) -> QHBoxLayout:
        row = QHBoxLayout()
        row.setContentsMargins(6, 0, 6, 2)
        row.setSpacing(8)
        mark = QLabel()
        mark.setPixmap(app_icon().pixmap(QSize(20, 20)))
        row.addWidget(mark)
        row.addWidget(label("KVScope", "title"))
        row.addStretch(1)
        self._menu_button = tool_button("menu", tr("All commands"), lambda: None)
        row.addWidget(self._menu_button)
        return row

    def _make_list(self) -> _List:
        view = _List()
        view.setModel(self.model)
        view.setItemDelegate(ChatDelegate(view))
        view.setMouseTracking(True)
        view.setUniformItemSizes(False)
        view.setVerticalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        view.setEditTriggers(QAbstractItemView.EditTrigger.EditKeyPressed)
        view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        view.setAccessibleName(tr("Chats"))
        view.clicked.connect(self._on_clicked)
        view.opened.connect(self.chat_chosen)
        view.delete_asked.connect(self.delete_asked)
        view.customContextMenuRequested.connect(self._show_menu)
        return view

    def _on_clicked(self, index: QModelIndex) -> None:
        if chat := index.data(CHAT_ROLE):
            self.chat_chosen.emit(chat)

    def _show_menu(self, at: QPoint) -> None:
        index = self.list.indexAt(at)
        chat = index.data(CHAT_ROLE) if index.isValid() else ""
        if not chat:
            return
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(icon("edit"), tr("Rename"), lambda: self.list.edit(index))
        menu.addAction(icon("export"), tr("Export as Markdown…"), lambda: self.export_asked.emit(chat, "markdown"))
        menu.addAction(icon("export"), tr("Export as JSON…"), lambda: self.export_asked.emit(chat, "json"))
        menu.addSeparator()
        menu.addAction(icon("delete"), tr("Delete"), lambda: self.delete_asked.emit(chat))
        menu.popup(self.list.viewport().mapToGlobal(at))
