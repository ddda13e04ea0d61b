"""Everything the window can do is found by typing, and by keyboard alone."""

from __future__ import annotations

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QApplication, QWidget

from app.commands import Command, Commands
from app.fuzzy import score
from app.palette import ENTRY_ROLE, Entry, EntryModel, Palette


@pytest.fixture
def palette(window):
    """The palette over a window."""
    window.window.commands.actions["palette"].trigger()
    shown = window.window.findChild(Palette)
    assert shown is not None
    yield shown
    if shiboken6.isValid(shown):
        shown.close()


def words(palette: Palette) -> list[str]:
    return [palette.model.index(row).data() for row in range(palette.model.rowCount())]


@pytest.mark.parametrize(
    ("typed", "text", "fits"),
    [
        ("", "New chat", True),
        ("new", "New chat", True),
        ("chat new", "New chat", True),
        ("nch", "New chat", True),
        ("ö", "Größe", True),
        ("chatx", "New chat", False),
        ("ns", "Show the engine steps of now and so on", True),
        ("wtf", "Write a message", False),
        ("qqq", "Quit", False),
    ],
)
def test_what_fits(typed, text, fits):
    assert (score(typed, text) is not None) == fits


def test_whole_words_come_before_scattered_letters():
    texts = ["Show the cache", "Stop the reply", "Search all chats"]
    ranked = sorted(texts, key=lambda text: -(score("stop", text) or -1))
    assert ranked[0] == "Stop the reply"
    assert (score("re", "Stop the reply") or 0) > (score("re", "A core") or 0)


def test_the_item_model_keeps_qts_rules(qtbot):
    model = EntryModel()
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    model.set_entries([Entry("New chat", lambda: None, "Ctrl+N"), Entry("A chat", lambda: None, only_searched=True)])
    assert model.rowCount() == 1
    model.search("chat")
    assert model.rowCount() == 2
    assert model.index(0).data(Qt.ItemDataRole.AccessibleTextRole) == "New chat, Ctrl+N"
    model.search("nothing like it")
    assert model.rowCount() == 0
    assert tester.model() is model


def test_every_command_is_listed_with_its_shortcut(window, palette):
    known = window.window.commands.known
    assert len(words(palette)) == len(known) - 1
    for row in range(palette.model.rowCount()):
        entry = palette.model.index(row).data(ENTRY_ROLE)
        command = next(c for c in known.values() if c.words.rstrip("…") == entry.words)
        assert entry.hint == QKeySequence(command.shortcut).toString(QKeySequence.SequenceFormat.NativeText)
        assert entry.hint


def test_every_command_has_a_shortcut_and_none_is_taken_twice(window):
    known = window.window.commands.known.values()
    keys = [QKeySequence(keys).toString() for command in known for keys in command.shortcuts]
    assert all(command.shortcut for command in known)
    assert all(keys)
    assert len(keys) == len(set(keys))
    parent = QWidget()
    commands = Commands(parent)
    commands.add(Command("a", "A", "Ctrl+A", lambda: None, also="Ctrl+B"))
    with pytest.raises(ValueError, match="the shortcut of a"):
        commands.add(Command("b", "B", "Ctrl+B", lambda: None))
    parent.deleteLater()


@pytest.mark.parametrize("keys", ["Ctrl+K", "Ctrl+Shift+P"])
def test_both_shortcuts_open_it(window, keys):
    shortcuts = window.window.commands.actions["palette"].shortcuts()
    assert QKeySequence(keys) in shortcuts


def test_typing_and_enter_run_a_command(window, palette):
    before = len(window.controller.heads())
    window.reply_to("one", "two")
    window.qtbot.keyClicks(palette.search, "new ch")
    assert words(palette)[0] == "New chat"
    window.qtbot.keyClick(palette.search, Qt.Key.Key_Return)
    assert not palette.isVisible()
    assert len(window.controller.heads()) == before + 1


def test_arrow_keys_choose(window, palette):
    shown = palette.list
    assert shown.currentIndex().row() == 0
    for key, row in (
        (Qt.Key.Key_Down, 1),
        (Qt.Key.Key_Down, 2),
        (Qt.Key.Key_Up, 1),
        (Qt.Key.Key_PageDown, 13),
        (Qt.Key.Key_PageUp, 1),
        (Qt.Key.Key_Up, 0),
        (Qt.Key.Key_Up, palette.model.rowCount() - 1),
        (Qt.Key.Key_Down, 0),
    ):
        window.qtbot.keyClick(palette.search, key)
        assert shown.currentIndex().row() == row


def test_escape_closes_it_and_nothing_happens(window, palette):
    window.qtbot.keyClick(palette.search, Qt.Key.Key_Escape)
    assert not palette.isVisible()
    assert window.engine.jobs == {}


def test_what_is_not_there_is_said(window, palette):
    window.qtbot.keyClicks(palette.search, "zzzz")
    assert palette.nothing.isVisible()
    assert not palette.list.isVisible()
    window.qtbot.keyClick(palette.search, Qt.Key.Key_Down)
    window.qtbot.keyClick(palette.search, Qt.Key.Key_Return)
    assert palette.isVisible()


def test_chats_and_recent_models_are_found_too(window):
    window.reply_to("The lighthouse keeper", "x")
    first = window.chat
    window.new_chat()
    window.settings.change(recent=("/models/some-model.gguf",))
    window.window.dialogs.palette()
    palette = window.window.findChildren(Palette)[-1]
    assert "The lighthouse keeper" not in words(palette)
    window.qtbot.keyClicks(palette.search, "some-mod")
    assert words(palette) == ["Load some-model.gguf"]
    palette.search.clear()
    window.qtbot.keyClicks(palette.search, "lighthouse")
    window.qtbot.keyClick(palette.search, Qt.Key.Key_Return)
    assert window.chat == first


def test_the_new_commands_do_what_they_say(window):
    actions = window.window.commands.actions
    window.reply_to("one", "the reply")
    actions["copy"].trigger()
    assert QApplication.clipboard().text() == "the reply "
    chat = window.chat
    actions["rename"].trigger()
    editor = QApplication.focusWidget()
    assert window.window.sidebar.list.isAncestorOf(editor)
    window.qtbot.keyClicks(editor, "Another title")
    window.qtbot.keyClick(editor, Qt.Key.Key_Return)
    window.qtbot.waitUntil(lambda: window.controller.title(chat) == "Another title")
    actions["input"].trigger()
    assert window.pane().composer.input.hasFocus()
    actions["delete"].trigger()
    assert chat not in {head.id for head in window.controller.heads()}
    actions["undo"].trigger()
    assert window.chat == chat
