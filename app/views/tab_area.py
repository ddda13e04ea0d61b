"""The middle of the window: groups of chat tabs side by side."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QApplication, QSplitter, QWidget

from app.engine_thread import EngineBridge
from app.state.chat_controller import ChatController
from app.state.store import TabGroup as SavedGroup
from app.state.store import Workspace
from app.views.chat_pane import ChatPane
from app.views.tab_group import TabGroup

MIN_WIDTH = 320
"""Fixed, so that words which come and go in a chat never push the docks."""


class TabArea(QSplitter):
    """Opens, closes, moves and splits chat tabs.

    Signals:
        current_changed: (chat) another chat is in front of the active group ("" when none is open).
        layout_changed: tabs were opened, closed or moved.
        pane_opened: (pane) to be wired by the window.
    """

    current_changed = Signal(str)
    layout_changed = Signal()
    pane_opened = Signal(object)

    def __init__(self, controller: ChatController, bridge: EngineBridge, parent: QWidget | None = None) -> None:
        super().__init__(Qt.Orientation.Horizontal, parent)
        self._controller = controller
        self._bridge = bridge
        self._panes: dict[str, ChatPane] = {}
        self._groups: list[TabGroup] = []
        self._active = 0
        self._told = ""
        self.setChildrenCollapsible(False)
        self.setHandleWidth(1)
        self.setMinimumWidth(MIN_WIDTH)
        self.setProperty("lined", True)
        self._add_group()
        QApplication.instance().focusChanged.connect(self._on_focus)  # type: ignore[union-attr]

    @property
    def groups(self) -> list[TabGroup]:
        """The groups from left to right."""
        return list(self._groups)

    @property
    def active_group(self) -> TabGroup:
        """The group that the person works in."""
        return self._groups[min(self._active, len(self._groups) - 1)]

    def current_chat(self) -> str | None:
        """The chat in front of the active group."""
        return self.active_group.current_chat()

    def pane(self, chat: str) -> ChatPane | None:
        """The pane of an open chat."""
        return self._panes.get(chat)

    def open_chats(self) -> list[str]:
        """All open chats."""
        return [chat for group in self._groups for chat in group.chats()]

    def open(self, chat: str, *, focus: bool = True) -> ChatPane:
        """Show a chat: in its tab if it has one, else in a new one of the active group."""
        pane = self._panes.get(chat)
        if pane is None:
            pane = self._panes[chat] = ChatPane(chat, self._controller, self._bridge)
            self.pane_opened.emit(pane)
            self.active_group.take_pane(pane)
        else:
            group = self._group_of(chat)
            self._active = self._groups.index(group)
            group.setCurrentIndex(group.index_of(chat))
        if focus:
            pane.composer.input.setFocus()
        self._tell()
        return pane

    def close_chat(self, chat: str) -> None:
        """Close a chat's tab; its reply goes on."""
        pane = self._panes.pop(chat, None)
        if pane is None:
            return
        group = self._group_of(chat)
        pane.save_view()
        had_focus = QApplication.focusWidget()
        focused = had_focus is not None and pane.isAncestorOf(had_focus)
        group.removeTab(group.index_of(chat))
        pane.hide()
        pane.deleteLater()
        self._drop_if_empty(group)
        self._controller.discard_if_empty(chat)
        if focused and (now := self.current_chat()) is not None:
            self._panes[now].composer.input.setFocus()
        self._tell()

    def split(self, chat: str) -> None:
        """Move a chat to the group on the right, which is made if there is none; from there back to the left."""
        group = self._group_of(chat)
        place = self._groups.index(group)
        if place + 1 < len(self._groups):
            target = self._groups[place + 1]
        elif group.count() > 1:
            target = self._add_group()
        elif place > 0:
            target = self._groups[place - 1]
        else:
            return
        self._move(chat, group, target)

    def cycle(self, step: int) -> None:
        """Show the next or the previous tab of the active group."""
        group = self.active_group
        if group.count():
            group.setCurrentIndex((group.currentIndex() + step) % group.count())
            group.pane_at(group.currentIndex()).composer.input.setFocus()

    def save_views(self) -> None:
        """Keep drafts and places of all open chats."""
        for pane in self._panes.values():
            pane.save_view()

    def workspace(self) -> Workspace:
        """What is open where."""
        groups = tuple(SavedGroup(tuple(group.chats()), group.current_chat()) for group in self._groups)
        return Workspace(groups, self._active)

    def restore(self, saved: Workspace, known: set[str]) -> None:
        """Open what was open; chats that are gone are left out."""
        for entry in saved.groups:
            chats = [chat for chat in entry.chats if chat in known and chat not in self._panes]
            if not chats:
                continue
            if self._groups[-1].count():
                self._add_group()
            self._active = len(self._groups) - 1
            for chat in chats:
                self.open(chat, focus=False)
            if entry.current in chats:
                self._groups[-1].setCurrentIndex(chats.index(entry.current))
        self._active = min(saved.active, len(self._groups) - 1)
        if (current := self.current_chat()) is not None:
            self._panes[current].composer.input.setFocus()
        self._tell()

    def _add_group(self) -> TabGroup:
        group = TabGroup(self._controller)
        group.close_asked.connect(self.close_chat)
        group.split_asked.connect(self.split)
        group.dropped.connect(lambda chat, at_side: self._on_dropped(chat, group, at_side))
        group.focused.connect(lambda: self._activate(group))
        group.changed.connect(self._tell)
        group.tabBarClicked.connect(lambda _: self._activate(group))
        self._groups.append(group)
        self.addWidget(group)
        self.setSizes([1000] * len(self._groups))
        return group

    def _group_of(self, chat: str) -> TabGroup:
        return next(group for group in self._groups if group.index_of(chat) >= 0)

    def _move(self, chat: str, group: TabGroup, target: TabGroup) -> None:
        if group is target:
            return
        pane = group.pane_at(group.index_of(chat))
        target.take_pane(pane)
        self._drop_if_empty(group)
        self._activate(target)
        pane.composer.input.setFocus()
        self._tell()

    def _on_dropped(self, chat: str, target: TabGroup, at_side: bool) -> None:
        if chat not in self._panes:
            return
        group = self._group_of(chat)
        if at_side and target is self._groups[-1] and (group is not target or group.count() > 1):
            target = self._add_group()
        self._move(chat, group, target)

    def _drop_if_empty(self, group: TabGroup) -> None:
        if group.count() == 0 and len(self._groups) > 1:
            self._groups.remove(group)
            group.hide()
            group.deleteLater()
            self._active = min(self._active, len(self._groups) - 1)
            self.setSizes([1000] * len(self._groups))

    def _activate(self, group: TabGroup) -> None:
        if group in self._groups:
            self._active = self._groups.index(group)
            self._tell()

    def _on_focus(self, old: QWidget | None, now: QWidget | None) -> None:
        for group in self._groups:
            if now is not None and (group is now or group.isAncestorOf(now)):
                self._activate(group)

    def _tell(self) -> None:
        self.layout_changed.emit()
        current = self.current_chat() or ""
        if current != self._told:
            self._told = current
            self.current_changed.emit(current)
