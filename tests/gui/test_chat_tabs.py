"""Tabs, the list of chats, drafts, search, settings, and what survives a restart."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
import shiboken6
from PySide6.QtCore import QByteArray, QCoreApplication, QEvent, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDropEvent
from PySide6.QtTest import QAbstractItemModelTester
from PySide6.QtWidgets import QApplication, QMessageBox, QToolButton, QWidget

from app.state.sampling import ChatSettings
from app.state.store import MemoryStore
from app.theme import Theme
from app.views.chat_list import CHAT_ROLE, ChatListModel
from app.views.chat_settings import ChatSettingsDialog
from app.views.error_card import ErrorCard
from app.views.tab_group import MIME
from engine.port import EngineState
from tests.gui.fake_engine import MODEL


def rows(window):
    model = window.window.sidebar.model
    return [model.index(number).data() for number in range(model.rowCount())]


def test_split_shows_two_chats_side_by_side_and_both_stream(window):
    first = window.chat
    a = window.type_and_send("one")
    second = window.new_chat()
    b = window.type_and_send("two")
    window.window.split_current()
    window.settle()
    groups = window.window.tabs.groups
    assert [group.chats() for group in groups] == [[first], [second]]
    window.engine.write((a, "left "), (b, "right "))
    window.settle()
    assert window.reply_view(first).isVisible() and window.reply_view(second).isVisible()
    assert window.reply_view(first).canvas.blocks[0].text.strip() == "left"
    assert window.reply_view(second).canvas.blocks[0].text.strip() == "right"


def test_closing_the_last_tab_of_a_group_removes_the_group(window):
    first = window.chat
    window.reply_to("one", "x")
    second = window.new_chat()
    window.window.split_current()
    window.window.tabs.close_chat(second)
    assert [group.chats() for group in window.window.tabs.groups] == [[first]]


def test_a_tab_dropped_at_the_side_makes_a_group_and_dropped_back_joins_again(window):
    first = window.chat
    window.reply_to("one", "x")
    second = window.new_chat()
    (group,) = window.window.tabs.groups
    data = QMimeData()
    data.setData(MIME, QByteArray(second.encode()))

    def drop(target, x):
        target.dropEvent(
            QDropEvent(
                QPointF(x, 200),
                Qt.DropAction.MoveAction,
                data,
                Qt.MouseButton.LeftButton,
                Qt.KeyboardModifier.NoModifier,
            )
        )
        window.settle()

    drop(group, group.width() - 5)
    assert [g.chats() for g in window.window.tabs.groups] == [[first], [second]]
    drop(window.window.tabs.groups[0], 20)
    assert [g.chats() for g in window.window.tabs.groups] == [[first, second]]


def test_closing_a_tab_does_not_stop_its_reply(window):
    stream = window.type_and_send("one")
    chat = window.chat
    window.window.close_current()
    window.write(stream, "goes on")
    window.engine.finish(stream)
    window.settle()
    assert window.path(chat)[-1].text == "goes on "
    window.window.show_chat(chat)
    window.settle()
    assert window.reply_view(chat).canvas.source == "goes on "


def test_chats_stand_under_their_day(make_window):
    store = MemoryStore()
    window = make_window(store)
    day = 86_400
    for title, age in (("new", 0), ("old", day), ("older", 5 * day)):
        chat = window.new_chat()
        window.reply_to(title, "x")
        window.controller.conversation(chat).updated = time.time() - age
        window.controller.rename(chat, title)
    window.settle()
    assert rows(window) == ["Today", "new", "Yesterday", "old", "Earlier", "older"]


def test_search_finds_text_and_opens_the_chat(window):
    window.reply_to("Tell me about Porto", "A city with a river.")
    first = window.chat
    window.new_chat()
    window.reply_to("Something else", "Nothing.")
    search = window.window.sidebar.search
    window.window.focus_search()
    window.qtbot.keyClicks(search, "river")
    assert rows(window) == ["Found", "Tell me about Porto"]
    index = window.window.sidebar.model.index(1)
    window.window.sidebar.list.clicked.emit(index)
    assert window.chat == first == index.data(CHAT_ROLE)
    search.setText("nothing at all")
    assert rows(window) == ["Nothing found"]


def test_the_list_is_a_sound_model(window, qtbot):
    model = ChatListModel(window.controller)
    tester = QAbstractItemModelTester(model, QAbstractItemModelTester.FailureReportingMode.Fatal)
    window.reply_to("one", "x")
    stream = window.type_and_send("two")
    window.write(stream, "y")
    model.search("two")
    model.search("")
    assert model.setData(model.index_of(window.chat), "Renamed")
    assert model.index_of(window.chat).data() == "Renamed"
    tester.deleteLater()
    model.deleteLater()


def test_delete_can_be_undone(window):
    window.reply_to("keep me", "x")
    chat = window.chat
    window.window.delete_chat(chat)
    assert chat not in {head.id for head in window.controller.heads()}
    assert window.window.toast.isVisible()
    window.qtbot.mouseClick(window.window.toast.action, Qt.MouseButton.LeftButton)
    window.settle()
    assert window.chat == chat and [m.text for m in window.path()] == ["keep me", "x "]


def test_drafts_tabs_and_places_survive_a_restart(make_window):
    store = MemoryStore()
    window = make_window(store)
    first = window.chat
    window.reply_to("long", "\n\n".join(f"paragraph {n}" for n in range(80)))
    window.scroll(120)
    window.pane().composer.input.setPlainText("a draft")
    second = window.new_chat()
    window.reply_to("two", "y")
    window.window.split_current()
    window.close()
    again = make_window(store)
    assert [group.chats() for group in again.window.tabs.groups] == [[first], [second]]
    again.window.show_chat(first)
    again.settle()
    assert again.pane(first).composer.text == "a draft"
    again.qtbot.waitUntil(lambda: again.pane(first).view.verticalScrollBar().value() == 120)
    assert not again.pane(first).view.at_end


def test_an_empty_chat_is_used_again_instead_of_another_one(window):
    first = window.chat
    assert window.new_chat() == first
    window.reply_to("one", "x")
    assert window.new_chat() != first


def test_the_menu_is_short_and_reaches_every_command(window):
    menu = window.window.commands.menu(window.window)
    submenus = [action.menu() for action in menu.actions() if action.menu() is not None]
    reached = {action for part in (menu, *submenus) for action in part.actions()}
    assert reached >= set(window.window.commands.actions.values())
    assert menu.actions()[-1].text() == "Quit"
    assert all(part.sizeHint().height() < 400 for part in (menu, *submenus))
    menu.deleteLater()


def test_every_shortcut_is_listed_once(window):
    commands = window.window.commands.known.values()
    shortcuts = [command.shortcut for command in commands if command.shortcut]
    assert len(shortcuts) == len(set(shortcuts)) >= 15
    assert all(command.words for command in commands)


def test_docks_can_be_toggled_by_command(window):
    for key, dock in (("cache", window.window.cache_dock), ("sidebar", window.window.sidebar_dock)):
        before = dock.isHidden()
        window.window.commands.actions[key].trigger()
        assert dock.isHidden() != before
        window.window.commands.actions[key].trigger()
        assert dock.isHidden() == before


def test_settings_of_a_chat_reach_the_next_job(window):
    dialog = ChatSettingsDialog("T", ChatSettings())
    window.qtbot.addWidget(dialog)
    dialog.form.system.setPlainText("Be brief.")
    dialog.form.preset.setCurrentIndex(dialog.form.preset.findData("greedy"))
    dialog.form.seed.setText("42")
    dialog.form.max_new.setValue(99)
    chosen = dialog.settings()
    assert (chosen.sampling.temperature, chosen.sampling.seed, chosen.max_new) == (0.0, 42, 99)
    dialog.form.temperature.setValue(0.33)
    assert dialog.form.preset.currentData() == ""
    window.controller.set_settings(window.chat, chosen)
    job = window.engine.jobs[window.type_and_send("hi")]
    assert (job.turns[0].role, job.turns[0].text, job.max_new) == ("system", "Be brief.", 99)
    assert job.sampling == chosen.sampling


def test_links_are_asked_about(window, monkeypatch):
    opened = []
    monkeypatch.setattr("app.main_window.QDesktopServices.openUrl", opened.append)
    window.window.ask_link("https://a.example/")
    box = window.window.findChild(QMessageBox)
    assert box is not None and "https://a.example/" in box.informativeText()
    box.button(QMessageBox.StandardButton.Cancel).click()
    assert opened == []
    window.window.ask_link("https://a.example/")
    box = window.window.findChildren(QMessageBox)[-1]
    box.button(QMessageBox.StandardButton.Open).click()
    assert opened == [QUrl("https://a.example/")]


def test_a_model_file_dropped_on_the_window_is_opened(window):
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile("/models/other.txt"), QUrl.fromLocalFile(__file__ + ".gguf")])
    event = QDropEvent(
        QPointF(5, 5), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    )
    window.window.dropEvent(event)
    window.settle()
    assert "There is no file" in window.window.toast.words.text()


def test_why_not_all_opens_the_cache_dock(window):
    from engine.scheduling.events import Miss

    window.reply_to("zero", "x")
    window.reply_to("one", "x", n_prompt=171, n_cached=144, miss=Miss("diverged", 144, 150, 3, "one"), chain=3)
    footer = window.reply_view().footer
    assert footer.why.isVisible() and "144 of 171" in footer.tokens.text()
    window.window.cache_dock.hide()
    window.qtbot.mouseClick(footer.why, Qt.MouseButton.LeftButton)
    window.settle()
    assert not window.window.cache_dock.isHidden()


def test_copying_a_reply_gives_back_what_was_written(window):
    window.reply_to("one", "It costs **$5**")
    window.reply_view().footer.actions_row.copy.click()
    assert QApplication.clipboard().text() == "It costs **$5** "


@pytest.mark.parametrize("form", ["markdown", "json"])
def test_export_writes_a_file(window, tmp_path, monkeypatch, form):
    window.reply_to("one", "It costs **$5**")
    target = tmp_path / "chat.out"
    monkeypatch.setattr("app.main_window.QFileDialog.getSaveFileName", lambda *_: (str(target), ""))
    window.window.export_chat(None, form)
    assert "It costs **$5**" in target.read_text(encoding="utf-8")
    monkeypatch.setattr("app.main_window.QFileDialog.getSaveFileName", lambda *_: (str(tmp_path / "no" / "x"), ""))
    window.window.export_chat(None, form)
    assert "was not exported" in window.window.toast.words.text()


def test_a_chat_that_outgrew_the_context_can_leave_out_its_oldest_turns(window):
    window.reply_to("a " * 40, "b")
    stream = window.type_and_send("c " * 13_000)
    window.engine.fail(stream, "prompt_too_long", "The prompt leaves no room.")
    window.settle()
    card = window.reply_view().card
    assert card is not None
    window.qtbot.mouseClick(card.buttons["drop_oldest"], Qt.MouseButton.LeftButton)
    window.settle()
    job = window.engine.jobs[max(window.engine.jobs)]
    assert [turn.text for turn in job.turns] == ["c " * 13_000]


def test_closing_a_chat_that_nobody_wrote_in_leaves_no_trace(window):
    window.reply_to("one", "x")
    empty = window.new_chat()
    window.window.close_current()
    assert empty not in {head.id for head in window.controller.heads()}
    drafted = window.new_chat()
    window.pane().composer.input.setPlainText("a draft")
    window.window.close_current()
    assert drafted in {head.id for head in window.controller.heads()}


def test_whatever_takes_the_keyboard_has_a_name(window):
    window.reply_to("one", "x\n\n```py\ny = 1\n```")
    nameless = []
    for widget in window.window.findChildren(QWidget):
        if not widget.isVisible() or widget.focusPolicy() == Qt.FocusPolicy.NoFocus:
            continue
        name = widget.accessibleName() or getattr(widget, "text", str)() or widget.focusProxy()
        if not name and widget.focusPolicy() & Qt.FocusPolicy.TabFocus:
            nameless.append(f"{type(widget).__name__} in {type(widget.parentWidget()).__name__}")
    assert not nameless, nameless


@pytest.mark.parametrize("answers", [(), ("x",), ("x", "y")])
def test_a_click_on_a_tab_leads_to_the_input_and_to_nothing_else(window, answers):
    first = window.chat
    for answer in answers:
        window.reply_to("one", answer, n_prompt=40, n_cached=16)
    window.pane(first).composer.set_text("so that the tab stays")
    window.new_chat()
    group = window.window.tabs.groups[0]
    bar = group.tabBar()
    window.qtbot.mouseClick(bar, Qt.MouseButton.LeftButton, pos=bar.tabRect(group.index_of(first)).center())
    assert window.chat == first
    assert window.pane(first).composer.input.hasFocus()


def test_closing_a_tab_leads_to_the_input_of_the_next(window):
    first = window.chat
    window.reply_to("one", "x")
    second = window.new_chat()
    window.pane(second).composer.input.setFocus()
    window.window.close_current()
    assert window.pane(first).composer.input.hasFocus()


def test_what_the_engine_says_after_a_tab_was_closed_meets_no_dead_widget(window):
    chat = window.chat
    window.reply_to("one", "x")
    pane = window.pane(chat)
    pane.composer.set_text("a draft that asks for a forecast")
    pane.composer.draft_changed.emit(pane.composer.text)
    window.window.close_current()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    assert not shiboken6.isValid(pane)
    window.engine.ready()
    window.settle()
    window.window.show_chat(chat)
    assert window.pane(chat).composer.text == "a draft that asks for a forecast"


def test_a_last_message_that_is_too_long_on_its_own_can_be_edited(window):
    stream = window.type_and_send("c " * 13_000)
    window.engine.fail(stream, "prompt_too_long", "The prompt leaves no room.")
    window.settle()
    card = window.reply_view().card
    window.qtbot.mouseClick(card.buttons["drop_oldest"], Qt.MouseButton.LeftButton)
    window.settle()
    assert "no older turns" in window.window.toast.words.text()
    window.qtbot.mouseClick(card.buttons["edit"], Qt.MouseButton.LeftButton)
    assert window.bubble().editor is not None


@pytest.mark.parametrize("width", [260, 420, 900])
def test_an_error_card_keeps_its_words_and_buttons_within_itself(qtbot, width):
    card = ErrorCard("prompt_too_long", "The prompt has 97,817 tokens; the context of 8,192 leaves no room. " * 2)
    qtbot.addWidget(card)
    card.setFixedSize(width, card.height_for(width))
    card.show()
    for part in card.findChildren(QWidget):
        assert card.rect().contains(part.geometry().translated(part.parentWidget().mapTo(card, QPoint())))
        assert not part.hasHeightForWidth() or part.height() >= part.heightForWidth(part.width())


def test_escape_in_the_search_shows_all_chats_again(window):
    window.reply_to("one", "x")
    window.window.focus_search()
    search = window.window.sidebar.search
    window.qtbot.keyClicks(search, "nothing has this")
    assert rows(window) == ["Nothing found"]
    window.qtbot.keyClick(search, Qt.Key.Key_Escape)
    assert search.text() == ""
    assert "one" in rows(window)


def test_a_title_has_no_characters_that_steer_a_terminal_or_turn_the_text(window):
    window.type_and_send("a\x1b[31m \u202ered\x07 \u2066שלום\u2069")
    assert window.controller.title(window.chat) == "a [31m red שלום"


def test_a_file_that_is_loaded_already_is_not_loaded_again_by_another_start(window, tmp_path, monkeypatch):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    window.bridge.announce(EngineState("ready", model=replace(MODEL, path=str(path))))
    opened = []
    monkeypatch.setattr(window.app.opener, "open", opened.append)
    window.app.come_forward(str(path))
    assert opened == []
    window.app.come_forward(str(tmp_path / "other.gguf"))
    assert opened == [str(tmp_path / "other.gguf")]


def test_many_tabs_stay_readable_and_scroll(window):
    for number in range(9):
        window.new_chat()
        window.reply_to(f"Question number {number} about rivers and lakes", "x")
    window.window.split_current()
    window.settle()
    bar = window.window.tabs.groups[0].tabBar()
    assert min(bar.tabRect(index).width() for index in range(bar.count())) >= 150
    assert bar.tabRect(bar.count() - 1).right() - bar.tabRect(0).left() > bar.width()
    arrows = [button for button in bar.findChildren(QToolButton) if button.arrowType() != Qt.ArrowType.NoArrow]
    assert len(arrows) == 2 and all(button.isVisible() for button in arrows)
    assert bar.rect().contains(bar.tabRect(bar.currentIndex()).center())


@pytest.mark.parametrize("words", ["word " * 300, "/folder" * 200, "short"])
def test_a_long_message_is_wrapped_and_takes_little_room(window, words):
    toast = window.window.toast
    toast.say(words, "Undo", lambda: None)
    window.settle()
    assert toast.words.text() == words
    assert toast.width() <= 640 and toast.height() <= 130
    assert window.window.rect().contains(toast.geometry())
    shown = " ".join(toast.words.shown())
    assert (shown == words) if words == "short" else (shown.endswith("…") and toast.words.toolTip() == words)
    widest = max(toast.words.fontMetrics().horizontalAdvance(line) for line in toast.words.shown())
    assert widest <= toast.words.width()
    window.qtbot.mouseClick(toast.words, Qt.MouseButton.LeftButton)
    assert not toast.isVisible()


@pytest.fixture
def dark(window):
    """Switches to dark colours; light ones are back at the end."""
    yield lambda: (Theme.current().set_mode("dark"), window.settle())
    Theme.current().set_mode("light")


def test_a_chat_behind_others_is_the_same_after_the_colours_changed(window, dark):
    first = window.chat
    for number in range(12):
        window.reply_to(f"question {number}", "a few words\n\n" * 6)
    window.scroll(200)
    stream = window.type_and_send("one more")
    window.scroll(200)
    window.write(stream, "before")
    window.new_chat()
    dark()
    window.write(stream, "after")
    window.window.show_chat(first)
    window.settle()
    view = window.pane(first).view
    assert [one.message.text for one in view.views.values()] == [one.text for one in window.path(first)]
    assert window.reply_view(first).canvas.source == "before after "
    assert view.verticalScrollBar().value() == 200


def test_a_message_being_edited_behind_other_tabs_survives_a_change_of_colours(window, dark):
    window.reply_to("question", "answer")
    first, bubble = window.chat, window.bubble()
    bubble.start_editing()
    bubble.editor.setPlainText("half typed")
    window.new_chat()
    dark()
    window.window.show_chat(first)
    assert window.bubble().editor.toPlainText() == "half typed"
