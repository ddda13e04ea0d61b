"""Chatting in the window over the real engine and the real model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.settings.values import EngineSettings
from engine.cache.session import Session
from engine.hosting.bundle import Loader
from engine.model.language_model import LanguageModel
from engine.model.loading import load_bundle
from engine.port import EngineState
from engine.scheduling.request import SamplingParams
from tests.gui.real_engine import RealWindow, never_ends, real_window, wait_until, words

pytestmark = pytest.mark.usefixtures("installed_theme")

LONG = "The quick brown fox jumps over the lazy dog. " * 260
"""About 2,600 tokens."""


@pytest.fixture
def window(real_loader: Loader, smollm2_path: Path, tmp_path: Path) -> Iterator[RealWindow]:
    with real_window(tmp_path, real_loader, str(smollm2_path)) as window:
        yield window


def test_a_reply_and_its_figures(window: RealWindow) -> None:
    window.new_chat(max_new=24)
    reply = window.ask("What is the capital city of Germany?")
    assert reply.status == "done" and "Berlin" in reply.text
    assert reply.stats is not None and reply.stats.n_gen == len(reply.ids)
    told = words(window.reply_view(reply).footer.told())
    assert "tok/s" in told and "first token" in told
    assert told.endswith(f"reused 0 · computed {reply.stats.n_prompt:,} · generated {reply.stats.n_gen:,}")
    assert window.reply_view(reply).canvas.source == reply.text
    assert window.pane().composer.context.text() == f"context {reply.stats.n_prompt + reply.stats.n_gen:,} / 8,192"
    window.rest()


def test_two_tabs_stream_together(window: RealWindow, smollm2: LanguageModel) -> None:
    replies = []
    for question in ("Tell me about rivers.", "Tell me about mountains."):
        window.new_chat(sampling=never_ends(smollm2), max_new=40)
        replies.append(window.send(question))
    window.wait_for(*replies)
    assert [reply.status for reply in replies] == ["length", "length"]
    assert [reply.stats.n_gen for reply in replies if reply.stats] == [40, 40]
    assert replies[0].text and replies[1].text and replies[0].text != replies[1].text
    together = [step for step in window.steps if len(step.decoded) == 2]
    assert len(together) >= 30, "one was written after the other"
    assert "× 2 chats" in window.reply_view(replies[1]).footer.words.text()
    window.rest()


def test_a_reply_is_the_same_alone_and_beside_others(window: RealWindow, smollm2: LanguageModel) -> None:
    sampling = never_ends(smollm2)
    window.new_chat(sampling=sampling, max_new=24)
    alone = window.ask("Tell me about rivers.")
    replies = []
    for question in ("Tell me about rivers.", "Count to ten.", "Name a colour."):
        window.new_chat(sampling=sampling, max_new=24)
        replies.append(window.send(question))
    window.wait_for(*replies)
    assert replies[0].ids == alone.ids and replies[0].text == alone.text
    assert len({tuple(reply.ids) for reply in replies}) == 3


def test_the_second_round_reuses(window: RealWindow) -> None:
    window.new_chat(max_new=16)
    first = window.ask("Name three colours of the rainbow.")
    window.rest()
    second = window.ask("And three more?")
    assert first.stats is not None and second.stats is not None
    assert first.stats.n_cached == 0
    assert second.stats.n_cached >= (first.stats.n_prompt + first.stats.n_gen) // 16 * 16 > 0
    assert second.stats.n_cached % 16 == 0
    assert f"reused {second.stats.n_cached:,} · computed" in words(window.reply_view(second).footer.told())
    assert not window.reply_view(second).footer.why.isVisible()
    window.rest()


def test_the_forecast_is_what_comes(window: RealWindow) -> None:
    window.new_chat()
    window.ask("Name three colours of the rainbow.")
    window.rest()
    composer = window.pane().composer
    composer.input.setPlainText("And three more?")
    wait_until(lambda: composer.hint.text().startswith("reuses"), "the forecast")
    told = composer.hint.text()
    reply = window.ask("And three more?")
    assert reply.stats is not None
    assert told.startswith(f"reuses {reply.stats.n_cached:,} of {reply.stats.n_prompt:,} tokens")


def test_a_long_prompt_is_read_in_sight_and_stops(window: RealWindow, smollm2: LanguageModel) -> None:
    """While it is read another chat goes on, its progress is shown, and Esc ends it with its pages given back."""
    writing = window.new_chat(sampling=never_ends(smollm2), max_new=2000)
    other = window.send("Tell me about rivers.")
    window.wait_for_phase("decoding")
    window.new_chat()
    reading = window.send(LONG)
    window.wait_for_phase("prefilling")
    wait_until(lambda: window.live().n_read >= 256, "some of the prompt is read")
    assert "reading" in window.reply_view(reading).footer.words.text()
    before = window.live(writing).n_gen
    n_read = window.live().n_read
    wait_until(lambda: window.live(writing).n_gen >= before + 2, "the other chat goes on")
    window.press_escape()
    window.wait_for(reading)
    assert reading.status == "stopped" and reading.text == ""
    assert reading.stats is not None and reading.stats.n_gen == 0 and n_read < reading.stats.n_prompt
    assert other.is_open
    window.controller.stop(writing)
    window.wait_for(other)
    window.rest()


def test_stop_keeps_what_is_written_and_continue_goes_on(window: RealWindow, smollm2: LanguageModel) -> None:
    window.new_chat(sampling=never_ends(smollm2), max_new=1000)
    reply = window.send("Tell me about rivers.")
    wait_until(lambda: window.live().n_gen >= 5, "some of the reply")
    window.press_escape()
    window.wait_for(reply)
    assert reply.status == "stopped" and len(reply.ids) >= 5
    text, ids = reply.text, list(reply.ids)
    assert text and window.reply_view(reply).footer.outcome.text() == "stopped"
    window.rest()
    window.set_chat(window.chat, max_new=8)
    window.window.continue_current()
    window.wait_for(reply)
    assert reply.status == "length"
    assert reply.text.startswith(text) and reply.ids[: len(ids)] == ids and len(reply.ids) == len(ids) + 8
    assert reply.stats is not None and reply.stats.n_cached >= 16
    window.rest()


def test_another_version_is_drawn_anew_and_a_seed_repeats(window: RealWindow) -> None:
    warm = SamplingParams(temperature=1.5, top_p=0.98)
    chat = window.new_chat(sampling=warm, max_new=16)
    first = window.ask("Write a line of nonsense.")
    window.window.regenerate_current()
    second = window.controller.conversation(chat).last()
    assert second is not None and second is not first
    window.wait_for(second)
    assert first.seed is not None and second.seed is not None and first.seed != second.seed
    assert first.ids != second.ids
    assert second.stats is not None and second.stats.n_cached > 0
    again = []
    for _ in range(2):
        window.new_chat(sampling=replace(warm, seed=first.seed), max_new=16)
        again.append(window.ask("Write a line of nonsense."))
    assert [reply.seed for reply in again] == [first.seed] * 2
    assert [reply.ids for reply in again] == [first.ids] * 2
    window.rest()


def test_more_chats_than_streams_wait_for_their_turn(
    smollm2: LanguageModel, real_loader: Loader, smollm2_path: Path, tmp_path: Path
) -> None:
    options = EngineSettings(max_streams=1)
    with real_window(tmp_path, real_loader, str(smollm2_path), engine=options) as window:
        first_chat = window.new_chat(sampling=never_ends(smollm2), max_new=1000)
        first = window.send("Tell me about rivers.")
        window.wait_for_phase("decoding")
        window.new_chat()
        second = window.send("Name a colour.")
        footer = window.reply_view(second).footer
        wait_until(lambda: "waiting for a free stream" in footer.words.text(), "the words of a queued reply")
        window.new_chat()
        third = window.send("Name an animal.")
        window.wait_for_phase("queued")
        window.press_escape()
        window.wait_for(third)
        assert third.status == "stopped" and second.is_open and first.is_open
        window.controller.stop(first_chat)
        window.wait_for(first, second)
        assert first.status == "stopped" and second.status in ("done", "length") and second.text
        window.rest()


def test_the_youngest_gives_way_when_the_pool_is_full(
    smollm2: LanguageModel, real_loader: Loader, smollm2_path: Path, tmp_path: Path
) -> None:
    options = EngineSettings(pool_mb=4)
    with real_window(tmp_path, real_loader, str(smollm2_path), engine=options) as window:
        assert window.snapshot().pool.capacity == 10
        replies = []
        for question in ("Tell me about rivers.", "Tell me about mountains."):
            window.new_chat(sampling=never_ends(smollm2), max_new=90)
            replies.append(window.send(question))
        window.wait_for(*replies)
        assert [reply.status for reply in replies] == ["length", "evicted"]
        assert replies[1].text and len(replies[0].ids) == 90
        assert window.reply_view(replies[1]).footer.outcome.text() == "ended early: the KV memory ran out"
        window.rest()


def test_a_prompt_that_does_not_fit_fails_in_its_chat_alone(window: RealWindow, smollm2: LanguageModel) -> None:
    window.new_chat(sampling=never_ends(smollm2), max_new=60)
    good = window.send("Tell me about rivers.")
    window.wait_for_phase("decoding")
    window.new_chat()
    bad = window.ask(LONG * 4)
    assert bad.status == "failed" and bad.error_code == "prompt_too_long"
    card = window.reply_view(bad).card
    assert card is not None and card.accessibleName().startswith("The chat has outgrown the context")
    window.wait_for(good)
    assert good.status == "length" and good.error == ""
    window.rest()


def test_a_defect_ends_the_chat_that_causes_it_alone(
    window: RealWindow, smollm2: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation that fails for one stream: its chat tells, the other goes on to the same reply as ever."""
    window.new_chat(sampling=never_ends(smollm2), max_new=30)
    right = window.ask("Tell me about rivers.")
    window.rest()
    whole = LanguageModel.eval_batch

    def failing(self: LanguageModel, sessions: Sequence[Session], tokens: Sequence[int]) -> None:
        if any(session.seed == 77 and session.n_past > 45 for session in sessions):
            raise RuntimeError("a numerical accident")
        whole(self, sessions, tokens)

    monkeypatch.setattr(LanguageModel, "eval_batch", failing)
    window.new_chat(sampling=never_ends(smollm2), max_new=30)
    good = window.send("Tell me about rivers.")
    window.new_chat(sampling=replace(never_ends(smollm2), seed=77), max_new=30)
    bad = window.send("Tell me about the mountains of the world.")
    window.wait_for(good, bad)
    assert (bad.status, bad.error_code) == ("failed", "internal") and "a numerical accident" in bad.error
    assert bad.text, "what was written before is kept"
    assert window.reply_view(bad).card is not None
    assert (good.status, good.ids) == ("length", right.ids)
    window.rest()
    monkeypatch.undo()
    window.window.show_chat(window.chat)
    again = window.ask("Go on.")
    assert again.status in ("done", "length") and again.text
    window.rest()


def test_chats_come_back_with_their_exact_ids(
    smollm2: LanguageModel, real_loader: Loader, smollm2_path: Path, tmp_path: Path
) -> None:
    """After a restart the next prompt begins with what was evaluated before, token for token."""

    def prompt_of(window: RealWindow) -> tuple[int, ...]:
        return window.prepared[max(window.prepared)].prompt

    with real_window(tmp_path, real_loader, str(smollm2_path)) as window:
        chat = window.new_chat(sampling=SamplingParams(temperature=1.2, seed=3), max_new=24)
        reply = window.ask("Write a line of nonsense.")
        history = [*prompt_of(window), *reply.ids]
    with real_window(tmp_path, real_loader, str(smollm2_path)) as window:
        assert window.chat == chat and window.controller.conversation(chat).last() is not None
        again = window.ask("Another one.")
        assert list(prompt_of(window)[: len(history)]) == history
        assert again.stats is not None and again.stats.n_cached == 0
        window.rest()
        third = window.ask("One more.")
        assert third.stats is not None and third.stats.n_cached >= len(history) // 16 * 16
        window.rest()


def test_one_progress_goes_forward_in_plain_words(
    smollm2: LanguageModel, smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first load on a new machine: kernels, then weights, one bar that never goes back."""
    monkeypatch.setattr("engine.kernels.warm.is_warm", lambda *_: False)
    with real_window(tmp_path, load_bundle, str(smollm2_path), wait=False) as window:
        states: list[EngineState] = []
        window.bridge.state.connect(states.append)
        bar = window.window.sidebar.status.bar
        shown: list[int] = []
        bar.valueChanged.connect(shown.append)
        window.wait_for_model()
    working = [state for state in states if state.stage in ("compiling", "loading")]
    assert {state.stage for state in working} == {"compiling", "loading"}
    progress = [state.progress for state in working]
    assert progress == sorted(progress) and 0.99 <= progress[-1] <= 1
    assert shown[:-1] == sorted(shown[:-1])
    for state in working:
        assert "_" not in state.detail, "the name of a kernel is no word"


def test_loading_again_keeps_the_chats(window: RealWindow) -> None:
    window.new_chat()
    before = window.ask("Name a colour.")
    stages: list[Any] = []
    window.bridge.state.connect(lambda state: stages.append(state.stage))
    window.window.reload_model()
    wait_until(lambda: "loading" in stages and stages[-1] == "ready", "the model is loaded again")
    assert window.rest().pool.cached == 0
    after = window.ask("And another one?")
    assert after.stats is not None and after.stats.n_cached == 0 and after.text
    assert window.controller.conversation(window.chat).path()[1] is before
