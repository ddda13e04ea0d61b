"""Reasoning and answer: split while the text arrives, the same for every cut."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.text.thinking import MARKERS, ThinkingSplitter, markers_of, opens_reasoning, split_reasoning

CASES = [
    ("<think>why</think>\n\nbecause", "why", "because"),
    ("\n<think>\nwhy\n</think>because", "\nwhy\n", "because"),
    ("plain answer", "", "plain answer"),
    ("  plain", "", "  plain"),
    ("<thin air", "", "<thin air"),
    ("a <think>b</think>", "", "a <think>b</think>"),
    ("<think>never closed </thin", "never closed </thin", ""),
    ("<think></think>x", "", "x"),
    ("<think>a</think>b</think>c", "a", "b</think>c"),
    ("", "", ""),
    ("<thi", "", "<thi"),
]


@pytest.mark.parametrize(("text", "reasoning", "answer"), CASES)
def test_a_whole_reply(text: str, reasoning: str, answer: str) -> None:
    assert split_reasoning(text) == (reasoning, answer)


def test_a_prompt_that_opened_the_reasoning() -> None:
    assert split_reasoning("why</think>\nyes", inside=True) == ("why", "yes")
    assert opens_reasoning("…assistant\n<think>\n") and not opens_reasoning("<think>\n\n</think>\n\n")
    assert not opens_reasoning("assistant\n")


def test_markers_come_from_the_template() -> None:
    assert markers_of("{{ x.split('[/THINK]') }}") == (("[THINK]", "[/THINK]"),)
    assert markers_of(None) == markers_of("nothing") == (("<think>", "</think>"),)
    assert split_reasoning("[THINK]a[/THINK]b", markers_of("[/THINK]")) == ("a", "b")


@given(
    st.lists(st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", "a", " ", "\n", "<", "[THINK]", "[/THINK]"])),
    st.lists(st.integers(0, 60)),
    st.booleans(),
)
def test_every_cut_gives_the_same_parts(words: list[str], places: list[int], inside: bool) -> None:
    text = "".join(words)
    borders = [0, *sorted(place % (len(text) + 1) for place in places), len(text)]
    splitter = ThinkingSplitter(MARKERS, inside=inside)
    parts = [part for a, b in itertools.pairwise(borders) for part in splitter.push(text[a:b])] + splitter.flush()
    joined = {kind: "".join(p.text for p in parts if p.kind == kind) for kind in ("reasoning", "answer")}
    assert (joined["reasoning"], joined["answer"]) == split_reasoning(text, MARKERS, inside=inside)
    assert all(part.text for part in parts)


def test_reasoning_is_shown_while_it_arrives() -> None:
    splitter = ThinkingSplitter()
    assert splitter.push("<th") == [] and not splitter.in_reasoning
    assert [part.text for part in splitter.push("ink>abc</")] == ["abc"] and splitter.in_reasoning
    assert [part.text for part in splitter.push("b")] == ["</b"]
