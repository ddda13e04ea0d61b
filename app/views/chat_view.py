"""The messages of one chat: a scrolling column that follows its end only while the person is there."""

from __future__ import annotations

import shiboken6
from PySide6.QtCore import QEvent, Qt, QTimer, Signal
from PySide6.QtGui import QPalette, QResizeEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QScrollArea, QToolButton, QWidget

from app.engine_thread import EngineBridge
from app.state.chat_controller import ChatController
from app.state.document import Message
from app.text import tr
from app.theme import Theme, icon
from app.views.bubble import BubbleView
from app.views.footer import Place
from app.views.parts import label
from app.views.reply import ReplyView
from app.views.welcome import Welcome
from engine.port import Forecast

SIDE = 34
WIDEST = 860
TOP = 18
GAP = 18
NEAR_END = 24
"""How close to the end counts as being there, in pixels."""

MessageView = ReplyView | BubbleView


class ChatView(QScrollArea):
    """Shows the branch of a chat that is chosen.

    Signals:
        why_asked: (chat, message) why was not all of its prompt reused?
        chain_asked: (chat, message) show what its reply left in the cache.
        step_chosen: (chat, message, NextStep) from an error card.
        link_clicked: (address).
        edit_draft: (chat, message, text) an edited message changed ("": editing ended).
        scrolled: the person moved to another place.
    """

    why_asked = Signal(str, str)
    chain_asked = Signal(str, str)
    step_chosen = Signal(str, str, str)
    link_clicked = Signal(str)
    edit_draft = Signal(str, str, str)
    scrolled = Signal()

    def __init__(
        self, chat: str, controller: ChatController, bridge: EngineBridge, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self.chat = chat
        self.views: dict[str, MessageView] = {}
        self._controller = controller
        self._bridge = bridge
        self._follow = True
        self._goal: int | None = None
        self._placing = False
        self._stale = True
        self._changed: set[str] = set()
        self._heights: dict[str, tuple[int, int]] = {}
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setAccessibleName(tr("Messages"))
        self._column = QWidget()
        # Opaque, so that scrolling moves pixels instead of painting everything anew.
        self._column.setAutoFillBackground(True)
        self._take_colors()
        Theme.current().changing.connect(self._drop_unseen)
        Theme.current().changed.connect(self._take_colors)
        self._welcome = Welcome(self._column)
        self._dropped = self._make_dropped_mark()
        self.setWidget(self._column)
        self._later = QTimer(self)
        self._later.setSingleShot(True)
        self._later.timeout.connect(self.place)
        self._to_end = self._make_end_button()
        self.verticalScrollBar().actionTriggered.connect(self._on_person_scrolled)
        controller.message_added.connect(self._on_message_added)
        controller.path_changed.connect(self._on_path_changed)
        controller.reply_grew.connect(self._on_grew)
        controller.reply_changed.connect(self._on_changed)
        controller.clock.tick.connect(self._on_tick)
        bridge.state.connect(self._on_engine_state)

    @property
    def at_end(self) -> bool:
        """Whether the view follows the end."""
        return self._follow

    def scroll_place(self) -> int | None:
        """Where the person is, None at the end."""
        return None if self._follow else self.verticalScrollBar().value()

    def scroll_to(self, place: int | None) -> None:
        """Go to a place, None: the end, and follow it."""
        self._follow, self._goal = place is None, place
        self.place()

    def place(self) -> None:
        """Give every message its place for the width of this moment."""
        self._later.stop()
        if self._stale:
            return
        width = self.viewport().width()
        inner = max(min(self.width() - 2 * SIDE, WIDEST), 120)
        left = (self.width() - inner) // 2
        y = TOP
        self._placing = True
        kept = self._controller.conversation(self.chat).first_kept
        self._dropped.setVisible(kept in self.views and kept != next(iter(self.views)))
        for key, view in self.views.items():
            if key == kept and not self._dropped.isHidden():
                self._dropped.setGeometry(left, y, inner, self._dropped.sizeHint().height())
                y += self._dropped.sizeHint().height() + GAP
            known = self._heights.get(key)
            if known is None or known[0] != inner:
                known = self._heights[key] = (inner, view.height_for(inner))
            view.setGeometry(left, y, inner, known[1])
            y += known[1] + GAP
        height = max(y, self.viewport().height())
        self._column.resize(width, height)
        self._welcome.setGeometry(left, 0, inner, self.viewport().height())
        self._placing = False
        self._scroll()
        self._place_end_button()

    def _scroll(self) -> None:
        """To the end while it is followed; to a wanted place as soon as there is enough text to reach it."""
        bar = self.verticalScrollBar()
        if self._follow:
            bar.setValue(bar.maximum())
        elif self._goal is not None:
            bar.setValue(self._goal)
            if bar.maximum() >= self._goal and self.isVisible():
                self._goal = None

    def clear_other_selections(self, keep: MessageView) -> None:
        """One selection at a time."""
        for view in self.views.values():
            if view is not keep:
                view.canvas.clear_selection()

    def edit_last(self) -> bool:
        """Edit the last message of the person; False where there is none."""
        for view in reversed(self.views.values()):
            if isinstance(view, BubbleView):
                view.start_editing()
                return True
        return False

    def show_edit_hint(self, message: str, forecast: Forecast | None) -> None:
        """Under a message that is edited: what sending it would reuse."""
        view = self.views.get(message)
        if isinstance(view, BubbleView) and forecast is not None:
            view.set_hint(
                tr("reuses {cached:,} of {total:,} tokens", cached=forecast.n_cached, total=forecast.n_prompt)
            )

    def _rebuild(self) -> None:
        for view in self.views.values():
            view.hide()
            view.deleteLater()
        self.views.clear()
        self._heights.clear()
        self._stale = False
        for message in self._controller.conversation(self.chat).path():
            self._add(message)
        self._welcome.setVisible(not self.views)
        self.place()
        if any(view.busy for view in self.views.values()):
            self._controller.clock.request()

    def _drop_unseen(self) -> None:
        """Before the look changes: messages that nobody sees are made anew when they are shown, not styled anew now."""
        editing = any(isinstance(view, BubbleView) and view.editor is not None for view in self.views.values())
        if self._stale or editing or self.isVisible():
            return
        for view in self.views.values():
            shiboken6.delete(view)  # at once: what waits for its deletion would still be styled
        self.views.clear()
        self._heights.clear()
        self._stale = True

    def _add(self, message: Message) -> None:
        versions = self._controller.conversation(self.chat).siblings(message.id)
        if message.role == "user":
            bubble = BubbleView(message, versions, self._column)
            bubble.edited.connect(lambda key, text: self._controller.edit(self.chat, key, text))
            bubble.draft_changed.connect(lambda key, text: self.edit_draft.emit(self.chat, key, text))
            self._take_view(bubble)
        else:
            reply = ReplyView(message, self._column)
            reply.why_asked.connect(lambda key: self.why_asked.emit(self.chat, key))
            reply.chain_asked.connect(lambda key: self.chain_asked.emit(self.chat, key))
            reply.regenerate_asked.connect(lambda key: self._controller.regenerate(self.chat, key))
            reply.continue_asked.connect(lambda key: self._controller.resume(self.chat, key))
            reply.step_chosen.connect(lambda key, step: self.step_chosen.emit(self.chat, key, step))
            self._take_view(reply)
            self._show_state(reply)

    def _take_view(self, view: MessageView) -> None:
        view.height_changed.connect(lambda: self._place_later(view))
        view.link_clicked.connect(self.link_clicked)
        view.selecting.connect(lambda: self.clear_other_selections(view))
        view.version_asked.connect(lambda key, step: self._controller.show_version(self.chat, key, step))
        self.views[view.message.id] = view
        view.show()

    def _show_state(self, view: ReplyView) -> None:
        live = self._controller.live(self.chat)
        mine = live if live is not None and live.message.id == view.message.id else None
        conversation = self._controller.conversation(self.chat)
        last, path = conversation.last(), conversation.path()
        first = len(path) > 1 and path[1] is view.message and conversation.siblings(path[0].id)[1] == 1
        is_last = last is not None and last.id == view.message.id
        place = Place(conversation.siblings(view.message.id), is_last, first)
        view.show_state(mine, self._bridge.engine_state, place)

    def _place_later(self, view: MessageView) -> None:
        self._heights.pop(view.message.id, None)
        if not self._placing and not self._later.isActive():
            self._later.start(0)

    def _on_message_added(self, chat: str, message: str) -> None:
        if chat != self.chat or self._stale:
            return
        previous = next(reversed(self.views.values()), None)
        self._add(self._controller.conversation(chat).messages[message])
        if isinstance(previous, ReplyView):
            self._show_state(previous)
        self._welcome.hide()
        self._follow = True
        self.place()

    def _on_path_changed(self, chat: str) -> None:
        if chat == self.chat:
            self._stale = True
            if self.isVisible():
                self._rebuild()

    def _on_grew(self, chat: str, message: str, text: str) -> None:
        if chat == self.chat and (view := self.views.get(message)) is not None:
            view.append(text)

    def _on_changed(self, chat: str, message: str) -> None:
        if chat != self.chat or message not in self.views:
            return
        self._changed.add(message)
        if self.views[message].message.is_open or not self.isVisible():
            self._controller.clock.request()
        else:
            self._show_changes()

    def _on_engine_state(self) -> None:
        if self.isVisible() and not self.views:
            self._welcome.show_state(self._bridge.engine_state)

    def _on_tick(self) -> None:
        if not self.isVisible() or self._stale:
            return
        self._show_changes()

    def _show_changes(self) -> None:
        """Everything that came since the last frame, in one go."""
        changed, self._changed = self._changed, set()
        busy = [view for view in self.views.values() if view.busy]
        if not changed and not busy:
            return
        for view in busy:
            view.refresh()
        for key in changed:
            reply = self.views.get(key)
            if isinstance(reply, ReplyView):
                self._show_state(reply)
        if any(view.busy for view in busy):
            self._controller.clock.request()
        if self._later.isActive():
            self.place()

    def _on_person_scrolled(self) -> None:
        """Wheel, keys or handle (not our own placing): whoever leaves the end is not dragged back to it."""
        bar = self.verticalScrollBar()
        self._goal = None
        self._follow = bar.sliderPosition() >= bar.maximum() - NEAR_END
        self._place_end_button()
        self.scrolled.emit()

    def _take_colors(self) -> None:
        palette = self._column.palette()
        palette.setColor(QPalette.ColorRole.Window, Theme.current().color("background"))
        self._column.setPalette(palette)

    def _make_dropped_mark(self) -> QWidget:
        mark = label(tr("The messages above are not sent any more: the context was full."), "caption", self._column)
        mark.setAlignment(Qt.AlignmentFlag.AlignCenter)
        mark.hide()
        return mark

    def _make_end_button(self) -> QToolButton:
        button = QToolButton(self)
        button.setIcon(icon("chevron-down", "text"))
        button.setProperty("variant", "float")
        button.setToolTip(tr("To the end"))
        button.setAccessibleName(tr("To the end"))
        button.setFixedSize(30, 30)
        button.clicked.connect(lambda: self.scroll_to(None))
        button.hide()
        return button

    def _place_end_button(self) -> None:
        self._to_end.setVisible(not self._follow)
        self._to_end.move((self.viewport().width() - 30) // 2, self.height() - 40)
        self._to_end.raise_()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.place()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        if self._stale:
            self._rebuild()
        else:
            self._show_changes()
            self.place()
        self._welcome.show_state(self._bridge.engine_state)

    def viewportEvent(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.MouseButtonPress:
            for view in self.views.values():
                view.canvas.clear_selection()
        return super().viewportEvent(event)
