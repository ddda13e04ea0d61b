"""Chatting in the window, over a fake engine that takes every step when the test says so."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from PySide6.QtCore import QRect, Qt
from PySide6.QtWidgets import QApplication

from app.main_window import MainWindow
from app.state.store import MemoryStore
from app.views.error_card import ErrorCard


def test_first_start_shows_a_chat_ready_to_type_into(window):
    assert window.window.tabs.open_chats() == [window.chat]
    assert window.pane().composer.input.hasFocus() or window.pane().composer.input.focusPolicy()
    assert window.path() == []


def test_two_tabs_stream_together(window):
    first = window.chat
    a = window.type_and_send("one")
    second = window.new_chat()
    b = window.type_and_send("two")
    for number in range(5):
        window.engine.write((a, f"a{number} "), (b, f"b{number} "))
    window.settle()
    assert window.path(first)[-1].text == "a0 a1 a2 a3 a4 "
    assert window.path(second)[-1].text == "b0 b1 b2 b3 b4 "
    assert [window.controller.activity(chat) for chat in (first, second)] == ["writing", "writing"]
    assert window.reply_view(second).canvas.source == "b0 b1 b2 b3 b4 "
    window.window.show_chat(first)
    window.settle()
    assert window.reply_view(first).canvas.source == "a0 a1 a2 a3 a4 "
    assert window.reply_view(first).canvas.blocks


def test_enter_sends_and_shift_enter_breaks_the_line(window):
    field = window.pane().composer.input
    field.setFocus()
    window.qtbot.keyClicks(field, "one")
    window.qtbot.keyClick(field, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    window.qtbot.keyClicks(field, "two")
    assert field.toPlainText() == "one\ntwo"
    window.qtbot.keyClick(field, Qt.Key.Key_Return)
    window.settle()
    assert field.toPlainText() == ""
    (job,) = window.engine.jobs.values()
    assert [(turn.role, turn.text) for turn in job.turns] == [("user", "one\ntwo")]


def test_a_blank_message_is_not_sent(window):
    field = window.pane().composer.input
    field.setPlainText("  \n ")
    window.qtbot.keyClick(field, Qt.Key.Key_Return)
    window.settle()
    assert not window.engine.jobs
    assert not window.pane().composer.send.isEnabled()


def test_stop_keeps_the_partial_reply(window):
    stream = window.type_and_send("Tell a story")
    window.write(stream, "Once upon")
    window.qtbot.keyClick(window.pane().composer.input, Qt.Key.Key_Escape)
    window.settle()
    reply = window.path()[-1]
    assert window.engine.cancelled == [stream]
    assert (reply.status, reply.text, reply.ids) == ("stopped", "Once upon ", [1001, 1002])
    assert window.reply_view().footer.outcome.text() == "stopped"
    assert not window.pane().composer.stop.isVisible()


def test_continue_passes_the_exact_ids_and_appends(window):
    stream = window.type_and_send("Tell a story")
    window.write(stream, "Once upon")
    window.window.stop_current()
    window.settle()
    window.window.continue_current()
    window.settle()
    again = max(window.engine.jobs)
    job = window.engine.jobs[again]
    assert job.resume and job.turns[-1].ids == (1001, 1002)
    window.write(again, "a time.")
    window.engine.finish(again)
    window.settle()
    assert window.path()[-1].text == "Once upon a time. "
    assert window.path()[-1].ids == [1001, 1002, 1001, 1002]
    assert window.reply_view().canvas.source == "Once upon a time. "


def test_the_next_turn_carries_the_exact_ids_cut_to_what_is_visible(window):
    window.reply_to("one", "yes it is", n_kept=2)
    window.type_and_send("two")
    turns = window.engine.jobs[max(window.engine.jobs)].turns
    assert [turn.role for turn in turns] == ["user", "assistant", "user"]
    assert turns[1].ids == (1001, 1002)


def test_text_typed_during_a_reply_waits_for_its_end(window):
    stream = window.type_and_send("one")
    field = window.pane().composer.input
    field.setPlainText("two")
    window.qtbot.keyClick(field, Qt.Key.Key_Return)
    window.settle()
    assert window.pane().composer.waiting and len(window.engine.jobs) == 1
    window.write(stream, "done")
    window.engine.finish(stream)
    window.settle()
    assert len(window.engine.jobs) == 2
    assert [message.text for message in window.path()] == ["one", "done ", "two", ""]


def test_the_view_follows_only_while_scrolled_to_the_end(window):
    stream = window.type_and_send("long")
    window.write(stream, "\n\n".join(f"paragraph {n}" for n in range(60)))
    bar = window.pane().view.verticalScrollBar()
    assert bar.maximum() > 0 and bar.value() == bar.maximum()
    window.scroll(10)
    window.write(stream, "\n\n".join(f"more {n}" for n in range(20)))
    assert bar.value() == 10
    window.scroll(bar.maximum())
    window.write(stream, "\n\n".join(f"even more {n}" for n in range(20)))
    assert bar.value() == bar.maximum()


def test_reading_progress_is_shown_in_the_tab_and_under_the_reply(window):
    stream = window.type_and_send("a long contract")
    window.engine.read(stream, 1200, 4000)
    window.settle()
    assert "reading 1,200 / 4,000" in window.window.tabs.active_group.tabText(0)
    assert window.reply_view().footer.words.text() == "reading 1,200 / 4,000"
    assert window.pane().composer.context.text() == "context 4,000 / 8,192"


def test_figures_under_a_finished_reply(window):
    window.reply_to("hello", "fine", n_prompt=171, n_cached=144, n_gen=58, gen_us=1_000_000, ttft_us=21_000)
    words = window.reply_view().footer.told()
    for part in ("58</span> tok/s", "21 ms", "144", "27", "generated"):
        assert part in words
    assert len(window.reply_view().footer.ribbon.cells) == 15


def test_an_error_reaches_only_its_chat_and_can_be_retried(window):
    healthy = window.chat
    a = window.type_and_send("one")
    broken = window.new_chat()
    b = window.type_and_send("two")
    window.engine.fail(b, "queue_full", "The queue is full.")
    window.write(a, "all well")
    card = window.reply_view(broken).card
    assert isinstance(card, ErrorCard) and "The queue is full." in card.accessibleName()
    assert window.controller.activity(broken) == "failed"
    assert window.path(healthy)[-1].text == "all well "
    window.qtbot.mouseClick(card.buttons["retry"], Qt.MouseButton.LeftButton)
    window.settle()
    c = max(window.engine.jobs)
    assert c != b
    window.write(c, "better")
    window.engine.finish(c)
    window.settle()
    assert window.reply_view(broken).card is None
    assert [message.status for message in window.path(broken)] == ["done", "done"]


def test_an_engine_error_in_the_middle_keeps_the_text_and_goes_on(window):
    stream = window.type_and_send("one")
    window.write(stream, "half of")
    window.engine.finish(stream, "error", error="A page was lost.", error_code="integrity")
    window.settle()
    reply = window.path()[-1]
    assert (reply.status, reply.text) == ("failed", "half of ")
    card = window.reply_view().card
    assert card is not None
    window.qtbot.mouseClick(card.buttons["retry"], Qt.MouseButton.LeftButton)
    window.settle()
    assert window.engine.jobs[max(window.engine.jobs)].resume


def test_editing_a_message_keeps_the_old_branch(window):
    window.reply_to("first", "one")
    window.reply_to("second", "two")
    bubble = window.bubble(0)
    bubble.start_editing()
    assert bubble.editor is not None
    bubble.editor.setPlainText("first, better")
    window.qtbot.keyClick(bubble.editor, Qt.Key.Key_Return)
    window.settle()
    stream = max(window.engine.jobs)
    window.write(stream, "other")
    window.engine.finish(stream)
    window.settle()
    assert [message.text for message in window.path()] == ["first, better", "other "]
    assert window.bubble(0).versions.words.text() == "2 of 2"
    window.qtbot.mouseClick(window.bubble(0).versions.back, Qt.MouseButton.LeftButton)
    window.settle()
    assert [message.text for message in window.path()] == ["first", "one ", "second", "two "]


def test_editing_while_a_reply_streams_leaves_that_branch_at_once(window):
    stream = window.type_and_send("first")
    window.write(stream, "old words")
    window.controller.edit(window.chat, window.path()[0].id, "second")
    window.settle()
    assert window.engine.cancelled == [stream]
    assert [message.text for message in window.path()] == ["second", ""]
    old = next(m for m in window.controller.conversation(window.chat).messages.values() if m.text.startswith("old"))
    assert (old.status, old.ids) == ("stopped", [1001, 1002])


def test_regenerate_draws_a_new_seed_and_keeps_the_old_reply(window):
    settings = window.controller.conversation(window.chat).settings
    window.controller.set_settings(window.chat, _with_seed(settings, 11))
    window.reply_to("first", "one")
    assert window.engine.jobs[1].sampling.seed == 11
    window.window.regenerate_current()
    window.settle()
    assert window.engine.jobs[2].sampling.seed is None
    window.write(2, "two")
    window.engine.finish(2)
    window.settle()
    assert window.path()[-1].text == "two "
    window.controller.show_version(window.chat, window.path()[-1].id, -1)
    window.settle()
    assert window.path()[-1].text == "one "
    assert window.reply_view().canvas.source == "one "


def test_a_question_asked_before_the_model_is_ready_is_sent_when_it_is(make_window):
    window = make_window(ready=False)
    field = window.pane().composer.input
    field.setPlainText("hello")
    window.qtbot.keyClick(field, Qt.Key.Key_Return)
    window.settle()
    assert not window.engine.jobs
    assert "waiting" in window.reply_view().footer.words.text()
    window.engine.ready()
    window.settle()
    assert [job.turns[-1].text for job in window.engine.jobs.values()] == ["hello"]


def test_forecast_while_typing(window):
    window.pane().composer.input.setPlainText("x" * 400)
    window.qtbot.waitUntil(lambda: window.pane().composer.hint.text() != "", timeout=2000)
    assert window.pane().composer.hint.text() == "reuses 80 of 104 tokens"
    assert window.pane().composer.context.text() == "context 104 / 8,192"
    window.qtbot.keyClick(window.pane().composer.input, Qt.Key.Key_Return)
    window.settle()
    assert window.pane().composer.hint.text() == ""


def test_close_while_streaming(window):
    a = window.type_and_send("one")
    window.new_chat()
    b = window.type_and_send("two")
    window.engine.write((a, "half "), (b, "also half "))
    assert window.close()
    assert window.engine.closed
    texts = [m.text for head in window.store.heads() for m in window.store.load(head.id).path()]
    assert sorted(texts) == ["also half ", "half ", "one", "two"]
    statuses = {m.status for head in window.store.heads() for m in window.store.load(head.id).path()}
    assert statuses == {"done", "stopped"}


def _with_seed(settings, seed):
    return replace(settings, sampling=replace(settings.sampling, seed=seed))


def test_thinking_is_folded_and_copied_with_the_rest(window):
    window.reply_to("hard question", "<think>\nlet me see\n</think>\n\nForty-two.")
    view = window.reply_view()
    assert view.text.fold is not None and view.text.fold.canvas.isHidden()
    assert view.canvas.source.strip() == "Forty-two."
    view.text.fold.button.click()
    window.settle()
    assert view.text.fold.canvas.isVisible() and "let me see" in view.text.fold.canvas.source
    view.footer.actions_row.raw.click()
    window.settle()
    assert view.text.fold is None and "<think>" in view.canvas.source
    assert view.text.source == window.path()[-1].text


def test_typing_anywhere_in_a_chat_goes_to_the_composer(window):
    window.reply_to("one", "x")
    canvas = window.reply_view().canvas
    canvas.setFocus()
    window.qtbot.keyClicks(canvas, "hi")
    assert window.pane().composer.text in ("hi", "h")
    stream = window.type_and_send("two")
    window.write(stream, "y")
    canvas.setFocus()
    window.qtbot.keyClick(canvas, Qt.Key.Key_Escape)
    window.settle()
    assert window.engine.cancelled == [stream]


def test_a_reply_of_20_000_tokens_lays_out_only_its_last_block(window):
    stream = window.type_and_send("write a book")
    paragraph = "Words and **more** words, `code` and words again.\n\n- item\n- item\n\n"
    text = paragraph * 250 + "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 200 + "\n" + paragraph * 250
    pieces = [text[at : at + 3] for at in range(0, len(text), 3)]
    assert len(pieces) > 10_000
    for number, piece in enumerate(pieces):
        window.engine.write((stream, piece))
        if number % 200 == 0:
            window.settle()
    window.engine.finish(stream)
    window.settle()
    blocks = window.reply_view().canvas.blocks
    assert len(blocks) > 1400
    assert sum(block.layouts for block in blocks) < 1.5 * len(blocks)
    assert window.reply_view().canvas.source == text
    assert len(window.path()[-1].ids) == len(pieces)


def test_a_chat_may_leave_out_its_oldest_turns_by_itself(window):
    settings = window.controller.conversation(window.chat).settings
    window.controller.set_settings(window.chat, replace(settings, overflow="drop_oldest"))
    window.reply_to("a " * 40, "b")
    stream = window.type_and_send("c " * 40)
    window.engine.fail(stream, "prompt_too_long", "The prompt leaves no room.")
    window.settle()
    assert len(window.engine.jobs) == 2, "what fits is not dropped, and a failure is not repeated for ever"
    window.controller.conversation(window.chat).messages[window.path()[1].id].ids.extend(range(8000))
    window.controller.drop_oldest(window.chat, window.path()[-1].id)
    window.settle()
    job = window.engine.jobs[max(window.engine.jobs)]
    assert [turn.text for turn in job.turns] == ["c " * 40]
    assert window.pane().view._dropped.isVisible()


def test_a_long_message_is_folded_until_it_is_asked_for(window):
    window.reply_to("line\n" * 100, "x")
    bubble = window.bubble()
    low = bubble.height()
    bubble._unfold.click()
    window.settle()
    assert bubble.height() > 3 * low and bubble._unfold.isHidden()


@pytest.fixture
def screen(monkeypatch):
    """Puts the windows that are made from then on onto a screen of this size."""

    def put(width: int, height: int) -> None:
        room = SimpleNamespace(availableGeometry=lambda: QRect(0, 0, width, height))
        monkeypatch.setattr(MainWindow, "screen", lambda _: room)

    return put


def docks(window) -> tuple[bool, bool, bool]:
    """Whether the list of chats, the Cache dock and the Engine dock are there."""
    return tuple(not dock.isHidden() for dock in (window.sidebar_dock, window.cache_dock, window.engine_dock))


def test_a_small_screen_shows_one_dock_beside_the_chat(make_window, screen):
    screen(720, 450)
    window = make_window().window
    assert docks(window) == (True, False, False)
    window.toggle(window.cache_dock)
    QApplication.processEvents()
    assert window.sidebar_dock.isHidden() and window.width() <= 720 and window.height() <= 450
    window.focus_search()
    assert window.cache_dock.isHidden() and not window.sidebar_dock.isHidden()


def test_what_a_small_screen_has_no_room_for_is_back_on_a_large_one(make_window, screen):
    store = MemoryStore()
    for (width, height), shown in [
        ((720, 450), (True, False, False)),
        ((1440, 900), (True, True, True)),
        ((1440, 450), (True, True, False)),
        ((720, 900), (True, False, True)),
        ((1440, 900), (True, True, True)),
    ]:
        screen(width, height)
        window = make_window(store)
        assert docks(window.window) == shown, (width, height)
        window.close()


def test_what_a_person_shows_or_hides_stays_so_on_screens_of_every_size(make_window, screen):
    store = MemoryStore()
    screen(720, 450)
    first = make_window(store)
    first.window.toggle(first.window.cache_dock)
    first.close()
    small = make_window(store)
    assert docks(small.window) == (False, True, False)
    small.close()
    screen(1440, 900)
    large = make_window(store)
    assert docks(large.window) == (True, True, True)
    large.window.toggle(large.window.engine_dock)
    large.close()
    screen(720, 450)
    make_window(store).close()
    screen(1440, 900)
    assert docks(make_window(store).window) == (True, True, False)
