"""One group of chat tabs. Groups stand side by side, and tabs can be dragged from one to another."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QByteArray, QEvent, QMimeData, QPoint, QRect, QSize, Qt, Signal
from PySide6.QtGui import (
    QDrag,
    QDragEnterEvent,
    QDropEvent,
    QFocusEvent,
    QIcon,
    QMouseEvent,
    QPainter,
    QPaintEvent,
)
from PySide6.QtWidgets import (
    QApplication,
    QHBoxLayout,
    QMenu,
    QPlainTextEdit,
    QTabBar,
    QTabWidget,
    QToolButton,
    QWidget,
)

from app.state.chat_controller import ChatController
from app.text import tr
from app.theme import Theme, icon
from app.views.chat_pane import ChatPane
from app.views.parts import tool_button
from app.views.state_dot import activity_words, dot_icon

MIME = "application/x-kvscope-chat"
TEAR_OFF = 28
"""How far below the bar a tab must be pulled before it leaves, in pixels."""
TITLE_CHARS = 30
LEAST_TAB = 150
"""Tabs do not shrink below this, in pixels: a title of which three letters are left says nothing. The bar scrolls."""
READ_STEP = 200
"""In steps of so many tokens a tab tells how much of a prompt is read: a new text lays all tabs out anew."""


_CENTRED = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap


class _CloseButton(QToolButton):
    """Closes its tab; keeps its room while it is not shown, so that tabs do not change their width."""

    def __init__(self, run: Callable[[], object]) -> None:
        super().__init__()
        self._shown = False
        self.setProperty("tabclose", True)
        self.setFixedSize(18, 22)
        self.setIconSize(QSize(12, 12))
        self.setToolTip(tr("Close"))
        self.setAccessibleName(tr("Close"))
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.clicked.connect(lambda: run())

    def set_shown(self, on: bool) -> None:
        """Paint the cross or leave its room empty."""
        if on != self._shown:
            self._shown = on
            self.setIcon(icon("close") if on else QIcon())


class _Bar(QTabBar):
    """A tab bar whose tabs can be pulled out."""

    torn = Signal(int)

    def __init__(self) -> None:
        super().__init__()
        self._pressed: tuple[int, QPoint] | None = None
        self._hovered = -1
        self.setMouseTracking(True)
        self.currentChanged.connect(lambda _: self.show_close_buttons())

    def minimumTabSizeHint(self, index: int) -> QSize:
        return self.tabSizeHint(index).boundedTo(QSize(LEAST_TAB, 1000))

    def show_close_buttons(self) -> None:
        """Only the tab in front and the one under the pointer offer to be closed."""
        for index in range(self.count()):
            button = self.tabButton(index, QTabBar.ButtonPosition.RightSide)
            if isinstance(button, _CloseButton):
                button.set_shown(index in (self.currentIndex(), self._hovered))

    def _hover(self, index: int) -> None:
        if index != self._hovered:
            self._hovered = index
            self.show_close_buttons()

    def leaveEvent(self, event: QEvent) -> None:
        self._hover(-1)
        super().leaveEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self)
        line = Theme.current().color("line")
        front = self.tabRect(self.currentIndex())
        y = self.height() - 1
        painter.fillRect(0, y, front.left(), 1, line)
        painter.fillRect(front.right() + 1, y, self.width(), 1, line)
        painter.end()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        at = event.position().toPoint()
        index = self.tabAt(at)
        left = event.button() == Qt.MouseButton.LeftButton and index >= 0
        self._pressed = (index, at) if left else None
        super().mousePressEvent(event)

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._hover(self.tabAt(event.position().toPoint()))
        below = event.position().y() - self.height()
        if self._pressed is not None and below > TEAR_OFF:
            self._pressed = None
            release = QMouseEvent(
                QMouseEvent.Type.MouseButtonRelease,
                event.position(),
                event.globalPosition(),
                Qt.MouseButton.LeftButton,
                Qt.MouseButton.NoButton,
                Qt.KeyboardModifier.NoModifier,
            )
            super().mouseReleaseEvent(release)
            self.torn.emit(self.currentIndex())
            return
        super().mouseMoveEvent(event)


class TabGroup(QTabWidget):
    """Tabs of chats.

    Signals:
        close_asked: (chat).
        split_asked: (chat) show this chat beside the others.
        dropped: (chat, at_the_side) a tab was dropped here.
        focused: the person works in this group now.
        changed: order or current tab changed.
    """

    close_asked = Signal(str)
    split_asked = Signal(str)
    dropped = Signal(str, bool)
    focused = Signal()
    changed = Signal()

    def __init__(self, controller: ChatController, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._controller = controller
        bar = self._bar = _Bar()
        bar.torn.connect(self._drag_out)
        self.setTabBar(bar)
        self.setMovable(True)
        self.setDocumentMode(True)
        self.setElideMode(Qt.TextElideMode.ElideRight)
        self.setIconSize(QSize(12, 12))
        self.setAcceptDrops(True)
        self.setUsesScrollButtons(True)
        bar.setExpanding(False)
        bar.setAccessibleName(tr("Open chats"))
        bar.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)
        bar.customContextMenuRequested.connect(self._show_menu)
        bar.tabMoved.connect(lambda *_: self.changed.emit())
        corner = QWidget()
        row = QHBoxLayout(corner)
        row.setContentsMargins(4, 0, 8, 0)
        row.addWidget(tool_button("split", tr("Show this chat beside the others"), self._on_split))
        self.setCornerWidget(corner, Qt.Corner.TopRightCorner)
        self.currentChanged.connect(self._on_current)
        controller.activity_changed.connect(self._refresh)
        controller.chats_changed.connect(self.refresh_all)

    def chats(self) -> list[str]:
        """The chats in their order."""
        return [self.chat_at(index) for index in range(self.count())]

    def chat_at(self, index: int) -> str:
        """The chat of a tab."""
        return self.pane_at(index).chat

    def pane_at(self, index: int) -> ChatPane:
        """The pane of a tab."""
        pane = self.widget(index)
        assert isinstance(pane, ChatPane)
        return pane

    def index_of(self, chat: str) -> int:
        """The tab of a chat, -1 without one."""
        return next((index for index in range(self.count()) if self.chat_at(index) == chat), -1)

    def current_chat(self) -> str | None:
        """The chat in front."""
        return self.chat_at(self.currentIndex()) if self.count() else None

    def take_pane(self, pane: ChatPane, *, at: int | None = None) -> None:
        """Add a pane as a tab and show it."""
        index = self.insertTab(self.count() if at is None else at, pane, "")
        close = _CloseButton(lambda: self.close_asked.emit(pane.chat))
        self.tabBar().setTabButton(index, QTabBar.ButtonPosition.RightSide, close)
        self._refresh(pane.chat)
        self.setCurrentIndex(index)
        self._bar.show_close_buttons()

    def refresh_all(self) -> None:
        """Titles and dots of all tabs."""
        for chat in self.chats():
            self._refresh(chat)

    def _refresh(self, chat: str) -> None:
        index = self.index_of(chat)
        if index < 0:
            return
        title = self._controller.title(chat)
        shown = title if len(title) <= TITLE_CHARS else title[: TITLE_CHARS - 1] + "…"
        live = self._controller.live(chat)
        activity = self._controller.activity(chat)
        if live is not None and activity == "reading":
            read = live.n_read // READ_STEP * READ_STEP
            shown += " · " + tr("reading {read:,} / {total:,}", read=read, total=live.n_prompt)
        shown = shown.replace("&", "&&")
        if self.tabText(index) != shown:
            self.setTabText(index, shown)
        told = f"{title} – {activity_words(activity)}"
        if self.tabToolTip(index) != told:
            self.setTabToolTip(index, told)
            self.setTabIcon(index, dot_icon(activity))

    def _on_current(self, index: int) -> None:
        """Qt gives the focus to the first thing on a page that comes to the front: a person wants to type there."""
        focused = QApplication.focusWidget()
        pane = self.pane_at(index) if index >= 0 else None
        within = pane is not None and focused is not None and pane.isAncestorOf(focused)
        if pane is not None and within and not isinstance(focused, QPlainTextEdit):  # a message may be being edited
            pane.composer.input.setFocus()
        self.changed.emit()

    def _on_split(self) -> None:
        if (chat := self.current_chat()) is not None:
            self.split_asked.emit(chat)

    def _show_menu(self, at: QPoint) -> None:
        index = self.tabBar().tabAt(at)
        if index < 0:
            return
        chat = self.chat_at(index)
        menu = QMenu(self)
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.addAction(icon("split"), tr("Show beside the others"), lambda: self.split_asked.emit(chat))
        menu.addAction(icon("close"), tr("Close"), lambda: self.close_asked.emit(chat))
        if self.count() > 1:
            menu.addAction(tr("Close the others"), lambda: self._close_others(chat))
        menu.popup(self.tabBar().mapToGlobal(at))

    def _close_others(self, chat: str) -> None:
        for other in self.chats():
            if other != chat:
                self.close_asked.emit(other)

    def _drag_out(self, index: int) -> None:
        drag = QDrag(self)
        data = QMimeData()
        data.setData(MIME, QByteArray(self.chat_at(index).encode()))
        drag.setMimeData(data)
        drag.setPixmap(self.tabBar().grab(self.tabBar().tabRect(index)))
        drag.exec(Qt.DropAction.MoveAction)

    def dragEnterEvent(self, event: QDragEnterEvent) -> None:
        if event.mimeData().hasFormat(MIME):
            event.acceptProposedAction()

    def dropEvent(self, event: QDropEvent) -> None:
        chat = bytes(event.mimeData().data(MIME).data()).decode()
        at_side = event.position().x() > self.width() * 0.66
        event.acceptProposedAction()
        self.dropped.emit(chat, at_side)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        theme = Theme.current()
        bar = QRect(0, 0, self.width(), self.tabBar().height())
        painter.fillRect(bar, theme.color("panel"))
        painter.fillRect(0, bar.height() - 1, self.width(), 1, theme.color("line"))
        if not self.count():
            painter.setPen(theme.color("muted"))
            words = tr("No chat is open. Ctrl+N starts one; the list on the left opens those you have.")
            painter.drawText(self.rect().adjusted(24, 24, -24, -24), _CENTRED, words)
        painter.end()

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.focused.emit()
