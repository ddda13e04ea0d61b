"""The three real models against right values: logits, log-likelihoods and greedy choices, in each lane."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.model.language_model import LanguageModel

CASES = [
    ("smollm2", "forward-smollm2-135m.json", 0.4),
    ("qwen", "forward-qwen2.5-coder-0.5b.json", 0.3),
    ("gemma", "forward-gemma3-270m.json", 0.7),
]
"""Fixture, file of right values, how far the top-8 logits may be off."""


@pytest.fixture(params=CASES, ids=[case[0] for case in CASES], scope="module")
def case(request: pytest.FixtureRequest, golden: Callable[[str], Any]) -> tuple[LanguageModel, dict[str, Any], float]:
    fixture, file, tolerance = request.param
    return request.getfixturevalue(fixture), golden(file), tolerance


@pytest.mark.parametrize("lane", ["prompt", "generated"])
def test_logits_after_prompts(case: tuple[LanguageModel, dict[str, Any], float], lane: Any) -> None:
    model, golden, tolerance = case
    for prompt in golden["prompts"]:
        top = prompt["next_top8"]
        ours = model.logits(prompt["prompt_ids"], lane=lane)[top["ids"]]
        assert np.abs(ours - np.array(top["logits"])).max() <= tolerance


@pytest.mark.parametrize("lane", ["prompt", "generated"])
def test_greedy_choices(case: tuple[LanguageModel, dict[str, Any], float], lane: Any) -> None:
    """Fed the golden continuation, our first choice is theirs wherever their second is at least 0.8 behind."""
    model, golden, _ = case
    checked = 0
    for prompt in golden["prompts"]:
        with model.new_session(seed=0) as session:
            model.eval(session, prompt["prompt_ids"], lane=lane)
            for step in prompt["greedy"]:
                if step["gap"] >= 0.8:
                    assert int(session.logits.argmax()) == step["id"]
                    checked += 1
                model.eval(session, [step["id"]], lane=lane)
    assert checked > 100


@pytest.mark.parametrize("lane", ["prompt", "generated"])
def test_likelihood_of_a_long_text(case: tuple[LanguageModel, dict[str, Any], float], lane: Any) -> None:
    model, golden, _ = case
    text = golden["long_text"]
    nll = model.score(text["ids"], lane=lane)
    assert len(nll) == len(text["nll"])
    assert abs(nll.mean() - text["mean_nll"]) < 0.01


@pytest.mark.parametrize("lane", ["prompt", "generated"])
def test_likelihood_beyond_the_sliding_window(case: tuple[LanguageModel, dict[str, Any], float], lane: Any) -> None:
    model, golden, _ = case
    text = golden["window_text"]
    nll = model.score(text["ids"], lane=lane)
    assert len(nll) > 1300
    assert abs(nll.mean() - text["mean_nll"]) < 0.01
    assert abs(nll[512:].mean() - text["mean_nll_after_512"]) < 0.01
