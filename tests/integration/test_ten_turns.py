"""The ten-turn table: in a chat driven through the window, each later turn computes little more than what is new.

Three chats of ten turns are had at once, one for each way a reply can end. Each row of the table is a test.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from PySide6.QtWidgets import QApplication

from engine.model.language_model import LanguageModel
from engine.scheduling.request import SamplingParams
from tests.gui.real_engine import NEVER, RealWindow, real_window, shared_loader, wait_until

TURNS = 10
PAGE = 16
STATUS = {"stop": "done", "length": "length", "cancel": "stopped"}
THINGS = ("Germany", "Japan", "Norway", "Brazil", "Egypt", "Canada", "Kenya", "Peru", "Spain", "Cuba")


@dataclass(frozen=True)
class Row:
    """One turn: the prompt, how its reply ended, the reply's visible ids, and how much of the prompt was reused."""

    prompt: tuple[int, ...]
    status: str
    ids: tuple[int, ...]
    n_cached: int


Table = dict[str, list[Row]]


def settings(model: LanguageModel, ending: str, turn: int) -> dict[str, object]:
    """What makes the reply of this turn end in this way, after a length of its own."""
    bias = 8.0 if ending == "stop" else NEVER
    sampling = SamplingParams(logit_bias=tuple((token, bias) for token in sorted(model.renderer().stop_ids)))
    return {"sampling": sampling, "max_new": 5 + 3 * turn if ending == "length" else 200}


def question(ending: str, turn: int) -> str:
    """What is asked: short answers where the reply shall end by itself."""
    about = THINGS[turn - 1]
    if ending == "stop":
        return f"What is the capital city of {about}?"
    return f"Write a long story about {about}, " + "with a dragon and a river and a long road " * (turn % 4)


def take_turn(window: RealWindow, model: LanguageModel, chats: dict[str, str], turn: int) -> dict[str, Row]:
    """One turn in every chat, all at the same time."""
    replies = {}
    for ending, chat in chats.items():
        window.set_chat(chat, **settings(model, ending, turn))
        replies[ending] = window.send(question(ending, turn), chat)
    streams = {ending: window.live(chat).stream for ending, chat in chats.items()}
    wait_until(lambda: len(window.live(chats["cancel"]).ids) >= 3 + 2 * turn, "some of the reply that is stopped")
    window.window.show_chat(chats["cancel"])
    window.press_escape()
    window.wait_for(*replies.values())
    window.rest()
    rows = {}
    for ending, reply in replies.items():
        assert reply.stats is not None
        prompt = window.prepared[streams[ending]].prompt
        rows[ending] = Row(prompt, reply.status, tuple(reply.ids), reply.stats.n_cached)
    return rows


@pytest.fixture(scope="module")
def table(qapp: QApplication, smollm2: LanguageModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Table]:
    """Ten turns of each chat."""
    rows: Table = {ending: [] for ending in STATUS}
    folder = tmp_path_factory.mktemp("ten_turns")
    with real_window(folder, shared_loader(smollm2), str(smollm2.file.path)) as window:
        chats = {}
        for ending in STATUS:
            chats[ending] = window.new_chat()
            window.controller.rename(chats[ending], ending)
        for turn in range(1, TURNS + 1):
            for ending, row in take_turn(window, smollm2, chats, turn).items():
                rows[ending].append(row)
    yield rows


@pytest.mark.parametrize("turn", range(2, TURNS + 1))
@pytest.mark.parametrize("ending", STATUS)
def test_a_later_turn_computes_what_is_new(table: Table, smollm2: LanguageModel, ending: str, turn: int) -> None:
    """At most its new tokens, the tokens that close the reply before it, and one page."""
    before, now = table[ending][turn - 2], table[ending][turn - 1]
    assert before.status == STATUS[ending], "the reply before did not end as it should"
    assert before.ids, "the reply before is empty"
    history = (*before.prompt, *before.ids)
    close = smollm2.renderer().render_close()
    assert now.prompt[: len(history) + len(close)] == (*history, *close), "the exact ids were not kept"
    new = len(now.prompt) - len(history) - len(close)
    computed = len(now.prompt) - now.n_cached
    assert 0 < computed <= new + len(close) + PAGE
    assert now.n_cached % PAGE == 0


@pytest.mark.parametrize("ending", STATUS)
def test_the_first_turn_computes_everything_but_what_chats_share(table: Table, ending: str) -> None:
    first = table[ending][0]
    shared = max(_common(first.prompt, other[0].prompt) for name, other in table.items() if name != ending)
    assert first.n_cached <= shared


def _common(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """How many tokens two prompts begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
