"""Questions that wait: for a model, for a free stream, over the change of a model, over the end of the program."""

from __future__ import annotations

from dataclasses import replace

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel

from app.state.sqlite_open import open_store
from app.state.store import MemoryStore
from app.views.error_card import ErrorCard
from engine.port import EngineState
from tests.gui.fake_engine import MODEL

OTHER = replace(MODEL, path="/models/other.gguf", name="Other 1B", n_vocab=32_000)


def ask(window, text: str) -> None:
    """Type and send, whether the engine takes the question or not."""
    field = window.pane().composer.input
    field.setPlainText(text)
    window.qtbot.keyClick(field, Qt.Key.Key_Return)
    window.settle()


def words(window, chat: str | None = None) -> str:
    """What the line under the last reply says."""
    return window.reply_view(chat).footer.words.text()


def card_of(window) -> ErrorCard:
    """The card under the last question."""
    card = window.reply_view().card
    assert isinstance(card, ErrorCard)
    return card


def test_while_another_model_loads_the_one_that_runs_answers(window):
    window.engine.sink.on_state(EngineState("loading", 0.4, model=MODEL))
    window.settle()
    stream = window.type_and_send("hello")
    window.write(stream, "from the old one")
    window.engine.finish(stream)
    window.settle()
    assert (window.path()[-1].text, window.path()[-1].status) == ("from the old one ", "done")
    window.pane().composer.input.setPlainText("x" * 400)
    window.qtbot.waitUntil(lambda: "reuses" in window.pane().composer.hint.text(), timeout=2000)


def test_a_question_the_old_model_had_not_begun_goes_to_the_new_one(window):
    first = window.type_and_send("hello")
    window.engine.switch(OTHER)
    window.settle()
    assert [job.turns[-1].text for job in window.engine.jobs.values()] == ["hello"]
    window.write(first, "from the new one")
    window.engine.finish(first)
    window.settle()
    reply = window.path()[-1]
    assert (reply.text, reply.status) == ("from the new one ", "done")
    assert "Other 1B" in reply.model and len(reply.ids) == 4


def test_a_reply_that_a_new_model_cuts_short_says_so_and_can_go_on(window):
    stream = window.type_and_send("hello")
    window.write(stream, "half of")
    window.engine.switch(OTHER)
    window.settle()
    assert (window.path()[-1].text, window.path()[-1].status) == ("half of ", "stopped")
    footer = window.reply_view().footer
    assert footer.outcome.text() == "stopped: another model was loaded"
    assert footer.actions_row.go_on.isVisible()


def test_a_load_that_is_given_up_leaves_no_question_waiting(make_window):
    window = make_window(ready=False)
    ask(window, "hello")
    assert words(window).startswith("waiting")
    window.engine.cancel_load()
    window.settle()
    assert "No model is loaded" in card_of(window).accessibleName()
    window.engine.ready()
    window.settle()
    card_of(window).buttons["retry"].click()
    window.settle()
    assert len(window.engine.jobs) == 1


def test_a_queued_chat_tells_its_place_and_moves_up(window):
    chats, streams = [], []
    for text in ("one", "two", "three"):
        chats.append(window.new_chat())
        streams.append(window.type_and_send(text))
    window.engine.write((streams[0], "a "))
    window.settle()
    assert words(window, chats[2]).endswith("number 2 in line")
    window.window.show_chat(chats[1])
    assert words(window, chats[1]).endswith("next in line")
    window.window.show_chat(chats[2])
    window.engine.finish(streams[0])
    window.engine.write((streams[1], "b "))
    window.settle()
    assert words(window, chats[2]).endswith("next in line")


@pytest.mark.parametrize("ready", [True, False], ids=["sent", "before the model was ready"])
def test_a_question_left_without_an_answer_comes_back_and_is_asked_again_in_one_click(make_window, ready):
    store = MemoryStore()
    first = make_window(store, ready=ready)
    ask(first, "hello")
    first.close()
    window = make_window(store)
    card = card_of(window)
    assert "not answered" in card.accessibleName() and "closed" in card.accessibleName()
    assert list(card.buttons) == ["ask_again"]
    card.buttons["ask_again"].click()
    window.settle()
    stream = max(window.engine.jobs)
    assert window.engine.jobs[stream].turns[-1].text == "hello"
    window.write(stream, "at last")
    window.engine.finish(stream)
    window.settle()
    assert [message.text for message in window.path()] == ["hello", "at last "]
    assert window.reply_view().card is None


def test_a_question_that_a_kill_left_without_an_answer_comes_back_too(make_window, tmp_path):
    stores = [open_store(tmp_path / "data", pytest.fail)[0] for _ in range(1)]
    first = make_window(stores[0])
    first.type_and_send("hello")
    first.qtbot.waitUntil(lambda: len(first.store.load(first.chat).path()) == 2, timeout=5000)
    stores.append(open_store(tmp_path / "data", pytest.fail)[0])
    assert "not answered" in card_of(make_window(stores[1])).accessibleName()
    for store in stores:
        store.close()


def test_a_reply_that_the_end_cut_short_says_so(make_window):
    store = MemoryStore()
    first = make_window(store)
    first.write(first.type_and_send("hello"), "half of")
    first.close()
    assert make_window(store).reply_view().footer.outcome.text() == "stopped: KVScope was closed"


def test_a_template_that_refuses_a_chat_can_be_done_without(window):
    window.engine.fail(window.type_and_send("hello"), "template", "Roles must alternate.")
    window.settle()
    card_of(window).buttons["plain_template"].click()
    window.settle()
    stream = max(window.engine.jobs)
    assert window.engine.jobs[stream].fallback
    window.write(stream, "fine")
    window.engine.finish(stream)
    window.settle()
    assert window.engine.jobs[window.type_and_send("and now?")].fallback
    assert window.controller.conversation(window.chat).settings.plain_template
    window.new_chat()
    assert not window.engine.jobs[window.type_and_send("another chat")].fallback


def test_thinking_that_the_prompt_opened_is_folded_from_its_first_word_on(make_window, tmp_path):
    store, _ = open_store(tmp_path / "data", pytest.fail)
    window = make_window(store)
    window.engine.opens_reasoning = True
    stream = window.type_and_send("hard question")
    window.write(stream, "let me see")
    text = window.reply_view().text
    assert text.fold is not None and text.canvas.source == ""
    window.write(stream, "</think> Forty-two.")
    assert text.canvas.source.strip() == "Forty-two."
    window.engine.finish(stream)
    window.settle()
    window.close()
    again, _ = open_store(tmp_path / "data", pytest.fail)
    reopened = make_window(again).reply_view().text
    assert reopened.fold is not None and "let me see" in reopened.fold.canvas.source
    assert reopened.canvas.source.strip() == "Forty-two."


def test_an_empty_chat_says_who_answers_while_another_model_loads(window):
    window.engine.sink.on_state(EngineState("loading", 0.4, model=MODEL))
    window.settle()
    shown = " ".join(label.text() for label in window.pane().view.findChildren(QLabel) if label.isVisible())
    assert "Loading another model" in shown and "Fake 135M answers" in shown


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (EngineState("compiling", 0.5, "kernel 52 of 104"), "until the engine is ready for this processor: 50%"),
        (EngineState("loading", 0.25, "downloading SmolLM2"), "for the model: downloading SmolLM2, 25%"),
        (EngineState("loading", 0.25), "for the model: loading, 25%"),
    ],
    ids=["compiling", "downloading", "loading"],
)
def test_a_question_says_in_plain_words_what_it_waits_for(make_window, state, told):
    window = make_window(ready=False)
    window.bridge.announce(state)
    ask(window, "hello")
    assert words(window) == f"waiting {told}"
