"""From logits to tokens: order of the steps, penalties, draws that can be replayed, the right frequencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.model.language_model import LanguageModel, load_model
from engine.model.sampling import draw
from engine.scheduling.request import SamplingParams

LOGITS = np.array([1.0, 3.0, 2.0, 3.0, -1.0, 0.5], np.float32)
"""Tokens 0 to 5; the model's other tokens are far below."""

Choose = Callable[..., int]


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def model(request: pytest.FixtureRequest) -> Iterator[LanguageModel]:
    path = Path(__file__).parents[1] / "data" / "tiny" / "llama.gguf"
    with load_model(path, backend=request.param) as model:
        yield model


@pytest.fixture
def choose(model: LanguageModel) -> Iterator[Choose]:
    """Samples one token of a session with these logits and tokens."""
    with model.new_session(seed=7) as session:

        def sample(
            history: list[int], params: SamplingParams, index: int = 0, mask: Any = None, logits: np.ndarray = LOGITS
        ) -> int:
            session.logits = np.full(model.n_vocab, -1e6, np.float32)
            session.logits[: len(logits)] = logits
            session.tokens, session.n_drawn = history, index
            before = session.logits.copy()
            masks = None
            if mask is not None:
                masks = [np.zeros(model.n_vocab, bool)]
                masks[0][: len(mask)] = mask
            (token,) = model.sample_batch([session], [params], masks=masks)
            assert np.array_equal(session.logits, before), "the row itself must not change"
            assert session.n_drawn == index + 1
            return token

        yield sample
        session.tokens = []


@pytest.fixture
def frequencies(choose: Choose) -> Callable[..., np.ndarray]:
    def count(params: SamplingParams, n: int = 2000, mask: np.ndarray | None = None) -> np.ndarray:
        counts = np.zeros(len(LOGITS))
        for i in range(n):
            counts[choose([], params, i, mask)] += 1
        return counts / n

    return count


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max())
    return e / e.sum()


def test_greedy_takes_the_first_of_equals(choose: Choose) -> None:
    assert choose([], SamplingParams(), 99) == 1


def test_draws_are_uniform_and_depend_on_seed_and_index_alone() -> None:
    draws = np.array([[draw(seed, index) for index in range(500)] for seed in range(8)])
    assert draws.min() >= 0 and draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.02 and abs(draws.var() - 1 / 12) < 0.01
    assert abs(np.corrcoef(draws)[0, 1:]).max() < 0.15
    assert draw(3, 17) == draws[3, 17]
    assert draw(-1, 0) == draw((1 << 64) - 1, 0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_temperature(temperature: float, frequencies: Callable[..., np.ndarray]) -> None:
    seen = frequencies(SamplingParams(temperature=temperature))
    assert np.abs(seen - softmax(LOGITS / temperature)).max() < 0.03


def test_top_k_keeps_the_largest_by_id_where_equal(frequencies: Callable[..., np.ndarray]) -> None:
    assert set(np.flatnonzero(frequencies(SamplingParams(temperature=1.0, top_k=1), 50))) == {1}
    assert set(np.flatnonzero(frequencies(SamplingParams(temperature=1.0, top_k=3), 300))) == {1, 2, 3}
    assert set(np.flatnonzero(frequencies(SamplingParams(temperature=9.0, top_k=100), 900))) == {0, 1, 2, 3, 4, 5}


def test_top_p_keeps_the_fewest_that_reach_it(frequencies: Callable[..., np.ndarray]) -> None:
    cumulative = np.sort(softmax(LOGITS))[::-1].cumsum()
    just_two = SamplingParams(temperature=1.0, top_p=float(cumulative[1]) - 1e-6)
    three = SamplingParams(temperature=1.0, top_p=float(cumulative[1]) + 1e-6)
    assert set(np.flatnonzero(frequencies(just_two, 300))) == {1, 3}
    assert set(np.flatnonzero(frequencies(three, 300))) == {1, 2, 3}


def test_min_p_is_relative_to_the_best(frequencies: Callable[..., np.ndarray]) -> None:
    assert set(np.flatnonzero(frequencies(SamplingParams(temperature=1.0, min_p=0.3), 300))) == {1, 2, 3}
    assert set(np.flatnonzero(frequencies(SamplingParams(temperature=1.0, min_p=1.0), 300))) == {1, 3}


def test_bias_comes_first(choose: Choose) -> None:
    assert choose([], SamplingParams(logit_bias=((4, 10.0),))) == 4
    assert choose([], SamplingParams(logit_bias=((1, -100.0), (3, -100.0)))) == 2


def test_penalties_count_the_last_tokens_only(choose: Choose) -> None:
    repeat = SamplingParams(repetition_penalty=2.0, penalty_last_n=2)
    assert choose([1], repeat) == 3
    assert choose([1, 3], repeat) == 2
    assert choose([1, 3, 0, 0], repeat) == 1
    assert choose([1], SamplingParams(presence_penalty=0.5)) == 3
    assert choose([1, 3, 1], SamplingParams(presence_penalty=0.2, frequency_penalty=0.5)) == 3
    assert choose([1, 1, 3, 3], SamplingParams(frequency_penalty=0.6)) == 2
    assert choose([1, 3], SamplingParams(repetition_penalty=2.0, penalty_last_n=0)) == 1


def test_a_negative_logit_is_made_smaller_by_repetition(choose: Choose) -> None:
    logits = np.array([-1.0, -1.5], np.float32)
    assert choose([0], SamplingParams(repetition_penalty=2.0), logits=logits) == 1


def test_masks(choose: Choose, frequencies: Callable[..., np.ndarray]) -> None:
    mask = np.array([True, False, False, False, True, False])
    assert choose([], SamplingParams(), 0, mask) == 0
    seen = frequencies(SamplingParams(temperature=2.0), 2000, mask)
    expected = softmax(np.array([1.0, -1.0]) / 2.0)
    assert np.abs(seen[[0, 4]] - expected).max() < 0.04 and seen.sum() == pytest.approx(seen[[0, 4]].sum())
    assert set(np.flatnonzero(frequencies(SamplingParams(temperature=1.0, top_k=4), 200, mask))) == {0, 4}
