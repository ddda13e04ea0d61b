"""What the person said: a bubble on the right, which can be copied and edited."""

from __future__ import annotations

from PySide6.QtCore import QEvent, Qt, Signal
from PySide6.QtGui import QEnterEvent, QKeyEvent
from PySide6.QtWidgets import QApplication, QFrame, QHBoxLayout, QPlainTextEdit, QPushButton, QWidget

from app.state.document import Message
from app.text import tr
from app.theme import Theme
from app.views.blocks.canvas import Canvas
from app.views.parts import label, link_button, tool_button
from app.views.versions import VersionSwitch

PAD_X, PAD_Y = 14, 7
WIDEST = 0.78
"""The widest bubble, as a share of the column."""
TALLEST = 260
"""A longer message shows its beginning, in pixels, until it is unfolded."""


class _Editor(QPlainTextEdit):
    """The text of a message while it is edited.

    Signals:
        accepted: Enter. dropped: Esc.
    """

    accepted = Signal()
    dropped = Signal()

    def keyPressEvent(self, event: QKeyEvent) -> None:
        plain_enter = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and not event.modifiers()
        if plain_enter:
            self.accepted.emit()
        elif event.key() == Qt.Key.Key_Escape:
            self.dropped.emit()
        else:
            super().keyPressEvent(event)


class BubbleView(QWidget):
    """Shows one user message.

    Signals:
        height_changed: it needs another height now.
        edited: (message, text) send this text instead.
        version_asked: (message, step).
        draft_changed: (message, text) the text being edited changed ("" when editing ended).
        link_clicked: (address). selecting: a selection began here.
    """

    height_changed = Signal()
    edited = Signal(str, str)
    version_asked = Signal(str, int)
    draft_changed = Signal(str, str)
    link_clicked = Signal(str)
    selecting = Signal()

    def __init__(self, message: Message, versions: tuple[int, int], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.message = message
        self.editor: _Editor | None = None
        self.busy = False
        self._frame = QFrame(self)
        self._frame.setProperty("surface", "bubble")
        self.canvas = Canvas(self._frame, plain_text=True, surface="accent_soft")
        self.canvas.set_text(message.text)
        self.canvas.selecting.connect(self.selecting)
        self.versions = VersionSwitch(self._frame)
        self.versions.step.connect(lambda step: self.version_asked.emit(self.message.id, step))
        self.versions.show_place(*versions)
        self._unfold = link_button(tr("show all"), self._on_unfold, self._frame)
        self._unfold.setFont(Theme.current().font("caption"))
        self._unfold.hide()
        self._folded = True
        self._copy = tool_button("copy", tr("Copy the message"), self._on_copy, self)
        self._edit = tool_button("edit", tr("Edit and send again"), self.start_editing, self)
        self._buttons = [self._copy, self._edit]
        self._edit_row = QWidget(self._frame)
        self._build_edit_row()
        self.setAccessibleName(message.text[:200])
        self._show_buttons(False)

    def append(self, text: str) -> None:
        """A user's message does not grow."""

    def refresh(self) -> None:
        """Show the rest of a long text."""
        self.canvas.refresh()
        self.busy = self.canvas.busy

    def start_editing(self) -> None:
        """Turn the bubble into an editor."""
        if self.editor is not None:
            return
        self.editor = _Editor(self._frame)
        self.editor.setProperty("flat", True)
        self.editor.setPlainText(self.message.text)
        self.editor.setAccessibleName(tr("Edit the message"))
        self.editor.accepted.connect(self._on_accept)
        self.editor.dropped.connect(self.stop_editing)
        self.editor.textChanged.connect(self._on_text)
        self.editor.moveCursor(self.editor.textCursor().MoveOperation.End)
        self._edit_row.show()
        self.editor.show()
        self.editor.setFocus()
        self.height_changed.emit()
        self._on_text()

    def stop_editing(self) -> None:
        """Drop the changes."""
        if self.editor is not None:
            self.editor.deleteLater()
            self.editor = None
            self._edit_row.hide()
            self.draft_changed.emit(self.message.id, "")
            self.height_changed.emit()

    def set_hint(self, text: str) -> None:
        """What sending the edited text would invalidate."""
        self._hint.setText(text)

    def height_for(self, width: int) -> int:
        """Place the parts for this width; returns the height."""
        if self.editor is not None:
            return self._place_editor(width)
        limit = int(width * WIDEST)
        switch = 0 if self.versions.isHidden() else self.versions.sizeHint().width() + 4
        inner_limit = max(limit - 2 * PAD_X - switch, 60)
        self.canvas.height_for(inner_limit)
        inner = min(self.canvas.natural_width(), inner_limit)
        text_height = self.canvas.height_for(inner)
        folded = self._folded and text_height > TALLEST * 1.3
        if folded:
            text_height = TALLEST
        self._unfold.setVisible(folded)
        link = self._unfold.sizeHint().height() + 4 if folded else 0
        height = text_height + link + 2 * PAD_Y
        bubble = inner + 2 * PAD_X + switch
        self.canvas.show()
        self._frame.setGeometry(width - bubble, 0, bubble, height)
        self.canvas.setGeometry(PAD_X, PAD_Y, inner, text_height)
        if folded:
            hint = self._unfold.sizeHint()
            self._unfold.setGeometry(PAD_X - 3, PAD_Y + text_height + 4, hint.width(), hint.height())
        if switch:
            hint = self.versions.sizeHint()
            self.versions.setGeometry(
                bubble - hint.width() - 6, height - hint.height() - 4, hint.width(), hint.height()
            )
        x = width - bubble - 4
        for button in self._buttons:
            size = button.sizeHint()
            x -= size.width()
            button.setGeometry(x, (min(height, 34) - size.height()) // 2, size.width(), size.height())
        return height

    def _place_editor(self, width: int) -> int:
        assert self.editor is not None
        self.canvas.hide()
        box = int(width * WIDEST)
        self.editor.setFixedWidth(box - 2 * PAD_X)
        lines = self.editor.document().size().height()
        text_height = int(min(max(lines, 2), 12) * self.editor.fontMetrics().lineSpacing()) + 12
        row = self._edit_row.sizeHint().height()
        height = text_height + row + 2 * PAD_Y + 6
        self._frame.setGeometry(width - box, 0, box, height)
        self.editor.setGeometry(PAD_X, PAD_Y, box - 2 * PAD_X, text_height)
        self._edit_row.setGeometry(PAD_X, PAD_Y + text_height + 6, box - 2 * PAD_X, row)
        self._show_buttons(False)
        return height

    def _on_unfold(self) -> None:
        self._folded = False
        self.height_changed.emit()

    def _build_edit_row(self) -> None:
        row = QHBoxLayout(self._edit_row)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        self._hint = label("", "caption")
        cancel = QPushButton(tr("Cancel"))
        cancel.clicked.connect(self.stop_editing)
        send = QPushButton(tr("Send"))
        send.setProperty("variant", "primary")
        send.clicked.connect(self._on_accept)
        row.addWidget(self._hint, 1)
        row.addWidget(cancel)
        row.addWidget(send)
        self._edit_row.hide()

    def _on_accept(self) -> None:
        if self.editor is not None and self.editor.toPlainText().strip():
            text = self.editor.toPlainText()
            self.stop_editing()
            self.edited.emit(self.message.id, text)

    def _on_text(self) -> None:
        if self.editor is not None:
            self.draft_changed.emit(self.message.id, self.editor.toPlainText())
            self.height_changed.emit()

    def _on_copy(self) -> None:
        QApplication.clipboard().setText(self.canvas.selected_text() or self.message.text)

    def _show_buttons(self, on: bool) -> None:
        for button in self._buttons:
            button.setVisible(on)

    def enterEvent(self, event: QEnterEvent) -> None:
        self._show_buttons(self.editor is None)

    def leaveEvent(self, event: QEvent) -> None:
        self._show_buttons(False)
