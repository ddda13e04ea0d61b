"""The main window: it wires views, docks and controller together, and decides nothing itself."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Qt, QUrl
from PySide6.QtGui import QCloseEvent, QDesktopServices, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QDockWidget, QFileDialog, QMainWindow, QMessageBox, QVBoxLayout, QWidget

from app.commands import Commands
from app.engine_thread import EngineBridge
from app.panels.cache_dock import CacheDock
from app.panels.engine_dock import EngineDock
from app.settings.keeper import SettingsKeeper
from app.settings.window_layout import WindowLayout
from app.state.chat_controller import ChatController
from app.state.export import to_json, to_markdown, write_export
from app.state.model_opener import ModelOpener
from app.state.serving import Serving
from app.text import tr
from app.theme import Theme, ThemeMode
from app.views.chat_pane import ChatPane
from app.views.chat_settings import ChatSettingsDialog
from app.views.notice import NoticeBar
from app.views.serving_status import ServingStatus
from app.views.sidebar import Sidebar
from app.views.tab_area import TabArea
from app.views.toast import Toast
from app.window_commands import window_commands
from app.window_dialogs import WindowDialogs

CACHE_MIN_WIDTH = 260


class MainWindow(QMainWindow):
    """Chats on the left, tabs in the middle, the Cache dock right, the Engine dock below."""

    def __init__(
        self, bridge: EngineBridge, controller: ChatController, opener: ModelOpener, settings: SettingsKeeper
    ) -> None:
        super().__init__()
        self.bridge = bridge
        self.controller = controller
        self.opener = opener
        self.settings = settings
        self.setWindowTitle("KVScope")
        self.setAcceptDrops(True)
        self.setDockOptions(QMainWindow.DockOption.AnimatedDocks | QMainWindow.DockOption.AllowNestedDocks)
        self.sidebar = Sidebar(controller, bridge)
        self.tabs = TabArea(controller, bridge)
        self.notices = NoticeBar()
        self._place_centre()
        self.sidebar_dock = self._make_sidebar_dock()
        self.cache_dock = CacheDock(bridge, self, chat_title=controller.title)
        self.engine_dock = EngineDock(bridge, self, chat_title=controller.title)
        self._place_docks()
        self.toast = Toast(self)
        self.commands = Commands(self)
        self.dialogs = WindowDialogs(self, self)
        self.serving = Serving(bridge, self)
        self.sidebar.add_foot(ServingStatus(self.serving, self.toast.say))
        self.commands.add(*window_commands(self, self.cache_dock, self.engine_dock))
        self.sidebar.set_menu(self.commands.menu(self))
        self._connect()
        docks = self.sidebar_dock, self.cache_dock, self.engine_dock
        self._layout = WindowLayout(self, controller.store, *docks)
        self._restore()

    # Chats

    def new_chat(self) -> None:
        """A fresh chat in a tab, ready to type into."""
        self.show_chat(self.controller.new_chat())

    def show_chat(self, chat: str) -> None:
        """Bring a chat to the front."""
        if chat in {head.id for head in self.controller.heads()}:
            self.tabs.open(chat)

    def close_current(self) -> None:
        """Close the tab in front; its reply goes on."""
        if (chat := self.tabs.current_chat()) is not None:
            self.tabs.close_chat(chat)

    def delete_chat(self, chat: str) -> None:
        """Delete a chat, with a way back."""
        title = self.controller.title(chat)
        self.tabs.close_chat(chat)
        self.controller.delete(chat)
        self.toast.say(tr("“{title}” was deleted.", title=title), tr("Undo"), self.undo_delete)

    def undo_delete(self) -> None:
        """Bring the last deleted chat back."""
        if (chat := self.controller.undo_delete()) is not None:
            self.show_chat(chat)

    def current_pane(self) -> ChatPane | None:
        """The pane in front."""
        chat = self.tabs.current_chat()
        return self.tabs.pane(chat) if chat is not None else None

    def stop_current(self) -> None:
        """Stop the reply of the chat in front."""
        if (chat := self.tabs.current_chat()) is not None:
            self.controller.stop(chat)

    def regenerate_current(self) -> None:
        """Write the last reply of the chat in front anew."""
        chat = self.tabs.current_chat()
        last = self.controller.conversation(chat).last() if chat is not None else None
        if chat is not None and last is not None and last.role == "assistant":
            self.controller.regenerate(chat, last.id)

    def continue_current(self) -> None:
        """Go on with the last reply of the chat in front."""
        chat = self.tabs.current_chat()
        last = self.controller.conversation(chat).last() if chat is not None else None
        if chat is not None and last is not None and last.role == "assistant" and last.text:
            self.controller.resume(chat, last.id)

    def edit_last(self) -> None:
        """Edit the person's last message of the chat in front."""
        if (pane := self.current_pane()) is not None:
            pane.view.edit_last()

    def split_current(self) -> None:
        """Show the chat in front beside the others."""
        if (chat := self.tabs.current_chat()) is not None:
            self.tabs.split(chat)

    def rename_current(self) -> None:
        """Give the chat in front another title, in the list on the left."""
        if (chat := self.tabs.current_chat()) is not None:
            self.sidebar_dock.show()
            self.sidebar.rename(chat)

    def delete_current(self) -> None:
        """Delete the chat in front, with a way back."""
        if (chat := self.tabs.current_chat()) is not None:
            self.delete_chat(chat)

    def copy_last_reply(self) -> None:
        """Put the last reply of the chat in front on the clipboard, as the model wrote it."""
        chat = self.tabs.current_chat()
        path = self.controller.conversation(chat).path() if chat is not None else []
        reply = next((message for message in reversed(path) if message.role == "assistant" and message.text), None)
        if reply is not None:
            QApplication.clipboard().setText(reply.text)
            self.toast.say(tr("The reply is on the clipboard."))

    def focus_input(self) -> None:
        """Type into the chat in front."""
        if (pane := self.current_pane()) is not None:
            pane.composer.input.setFocus()

    def focus_search(self) -> None:
        """Type to search all chats."""
        self.sidebar_dock.show()
        self.sidebar.search.setFocus()
        self.sidebar.search.selectAll()

    def toggle(self, dock: QDockWidget) -> None:
        """Show or hide a dock."""
        dock.setVisible(dock.isHidden())

    def next_theme(self) -> None:
        """Go through: like the system, light, dark."""
        modes: tuple[ThemeMode, ...] = ("system", "light", "dark")
        mode = modes[(modes.index(Theme.current().mode) + 1) % 3]
        self.settings.change(theme=mode)
        words = {"system": tr("Colours follow the system."), "light": tr("Light colours."), "dark": tr("Dark colours.")}
        self.toast.say(words[mode])

    def edit_settings(self, chat: str | None = None) -> None:
        """System prompt and sampling of a chat."""
        chat = chat or self.tabs.current_chat()
        if chat is None:
            return
        known = self.controller.conversation(chat).settings
        dialog = ChatSettingsDialog(self.controller.title(chat), known, self, shelf=self.dialogs.presets)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.accepted.connect(lambda: self.controller.set_settings(chat, dialog.settings()))
        dialog.open()

    def export_chat(self, chat: str | None = None, form: str = "markdown") -> None:
        """Write a chat to a file."""
        chat = chat or self.tabs.current_chat()
        if chat is None:
            return
        suffix = "md" if form == "markdown" else "json"
        suggested = f"{self.controller.title(chat)[:60].replace('/', '-')}.{suffix}"
        path, _ = QFileDialog.getSaveFileName(self, tr("Export the chat"), suggested, f"*.{suffix}")
        if not path:
            return
        conversation = self.controller.conversation(chat)
        try:
            write_export(Path(path), to_markdown(conversation) if form == "markdown" else to_json(conversation))
        except OSError as error:
            self.toast.say(tr("The chat was not exported: {reason}.", reason=error.strerror or str(error)))
        else:
            self.toast.say(tr("Exported to {path}.", path=path))

    def come_forward(self) -> None:
        """Show the window above the others."""
        self.setWindowState(self.windowState() & ~Qt.WindowState.WindowMinimized)
        self.show()
        self.raise_()
        self.activateWindow()

    # Models and links

    def choose_model(self) -> None:
        """Open a GGUF file."""
        folder = str(self.opener.folder())
        path, _ = QFileDialog.getOpenFileName(self, tr("Open a model"), folder, tr("GGUF models (*.gguf)"))
        if path:
            self.opener.open(path)

    def reload_model(self) -> None:
        """Load the model again, with the settings of now."""
        self.opener.reload()

    def stop_loading(self) -> None:
        """Stop a download or a load."""
        self.opener.cancel()

    def ask_link(self, address: str) -> None:
        """A link that a model wrote is opened only when the person says so."""
        box = QMessageBox(self)
        box.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        box.setIcon(QMessageBox.Icon.Question)
        box.setWindowTitle(tr("Open this link?"))
        box.setTextFormat(Qt.TextFormat.PlainText)
        box.setText(tr("The model wrote a link to:"))
        box.setInformativeText(address)
        box.setStandardButtons(QMessageBox.StandardButton.Open | QMessageBox.StandardButton.Cancel)
        box.setDefaultButton(QMessageBox.StandardButton.Cancel)
        opening = box.button(QMessageBox.StandardButton.Open)
        opening.clicked.connect(lambda: QDesktopServices.openUrl(QUrl(address)))
        box.open()

    # Wiring

    def _connect(self) -> None:
        side, tabs = self.sidebar, self.tabs
        side.new_chat_asked.connect(self.new_chat)
        side.chat_chosen.connect(self.show_chat)
        side.delete_asked.connect(self.delete_chat)
        side.export_asked.connect(self.export_chat)
        side.model_asked.connect(self.dialogs.models)
        tabs.current_changed.connect(self._on_current)
        tabs.layout_changed.connect(self._save_workspace)
        tabs.pane_opened.connect(self._wire_pane)
        self.cache_dock.chat_activated.connect(self.show_chat)
        self.cache_dock.said.connect(self.toast.say)
        self.cache_dock.feed.arrived.connect(self.engine_dock.note_snapshot)
        self.opener.failed.connect(self.toast.say)
        self.opener.said.connect(self.toast.say)
        self.controller.chats_changed.connect(self._mark_current)
        self.controller.nothing_to_drop.connect(self._on_nothing_to_drop)

    def _wire_pane(self, pane: ChatPane) -> None:
        pane.settings_asked.connect(self.edit_settings)
        pane.view.why_asked.connect(self._show_miss)
        pane.view.chain_asked.connect(self._show_chain)
        pane.view.step_chosen.connect(self._on_step)
        pane.view.link_clicked.connect(self.ask_link)

    def _on_step(self, chat: str, message: str, step: str) -> None:
        match step:
            case "retry" | "ask_again":
                self.controller.retry(chat, message)
            case "plain_template":
                self.controller.retry(chat, message, plain_template=True)
            case "drop_oldest":
                self.controller.drop_oldest(chat, message)
            case "edit":
                self.edit_last()
            case "new_chat":
                self.new_chat()
            case "show_cache":
                self.cache_dock.show()
                self.cache_dock.raise_()
            case "choose_model":
                self.dialogs.models()
            case "settings":
                self.edit_settings(chat)

    def _on_nothing_to_drop(self, chat: str) -> None:
        self.toast.say(tr("There are no older turns to leave out: shorten the last message."))

    def _show_miss(self, chat: str, message: str) -> None:
        evidence = self.controller.evidence(chat, message)
        if evidence is not None:
            self.cache_dock.show_miss(evidence.finished, evidence.prepared, evidence.turns, chat=chat)

    def _show_chain(self, chat: str, message: str) -> None:
        stats = self.controller.conversation(chat).messages[message].stats
        if stats is not None and stats.chain is not None:
            self.cache_dock.reveal_chain(stats.chain)

    def _on_current(self, chat: str) -> None:
        self.setWindowTitle(f"{self.controller.title(chat)} — KVScope" if chat else "KVScope")
        self.sidebar.show_current(chat)

    def _mark_current(self) -> None:
        self._on_current(self.tabs.current_chat() or "")

    # Layout

    def _make_sidebar_dock(self) -> QDockWidget:
        dock = QDockWidget(tr("Chats"), self)
        dock.setObjectName("SidebarDock")
        dock.setTitleBarWidget(QWidget())
        dock.setFeatures(QDockWidget.DockWidgetFeature.DockWidgetClosable)
        dock.setWidget(self.sidebar)
        return dock

    def _place_centre(self) -> None:
        centre = QWidget()
        box = QVBoxLayout(centre)
        box.setContentsMargins(0, 0, 0, 0)
        box.setSpacing(0)
        box.addWidget(self.notices)
        box.addWidget(self.tabs, 1)
        self.setCentralWidget(centre)

    def _place_docks(self) -> None:
        self.setCorner(Qt.Corner.BottomLeftCorner, Qt.DockWidgetArea.LeftDockWidgetArea)
        self.setCorner(Qt.Corner.BottomRightCorner, Qt.DockWidgetArea.RightDockWidgetArea)
        self.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, self.sidebar_dock)
        self.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self.cache_dock)
        self.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self.engine_dock)
        self.cache_dock.setMinimumWidth(CACHE_MIN_WIDTH)
        self.resizeDocks([self.sidebar_dock, self.cache_dock], [230, 330], Qt.Orientation.Horizontal)
        self.resizeDocks([self.engine_dock], [196], Qt.Orientation.Vertical)

    def _restore(self) -> None:
        self._layout.restore()
        known = {head.id for head in self.controller.heads()}
        self.tabs.restore(self.controller.store.workspace(), known)
        if not self.tabs.open_chats():
            self.new_chat()

    def _save_workspace(self) -> None:
        self.controller.store.save_workspace(self.tabs.workspace())

    def closeEvent(self, event: QCloseEvent) -> None:
        self._layout.end()
        self.tabs.save_views()
        self.controller.save()
        super().closeEvent(event)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if _gguf_of(event) is not None:
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        if (path := _gguf_of(event)) is not None:
            self.opener.open_other(path)
            event.acceptProposedAction()


def _gguf_of(event: QDropEvent) -> str | None:
    """The first model file among what is dragged."""
    paths = [url.toLocalFile() for url in event.mimeData().urls() if url.isLocalFile()]
    return next((path for path in paths if path.lower().endswith(".gguf")), None)
