"""Compiled sampling chooses what its NumPy definition chooses."""

from __future__ import annotations

import numpy as np
import pytest

from engine.kernels.sample_row import SampleRow
from engine.kernels.sampling import log_probabilities, sample_rows
from engine.kernels.sampling_reference import adjust, draw


def logits(n: int, seed: int, size: float = 2.0) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal(n) * size).astype(np.float32)


@pytest.mark.parametrize("n", [7, 50, 257, 3000, 49152])
@pytest.mark.parametrize("temperature", [0, 0.3, 1, 1.7])
@pytest.mark.parametrize("top_k", [0, 1, 5, 40, 300])
def test_tokens_equal_the_twins(n: int, temperature: float, top_k: int) -> None:
    """With every top-p and min-p, ties, -inf and NaN among the logits."""
    rng = np.random.default_rng(n + top_k)
    x = logits(n, top_k)
    if top_k % 2 == 0:
        x = np.round(x * 2) / 2
    x[rng.integers(0, n, n // 10)] = -np.inf
    x[rng.integers(1, n)] = np.nan
    clean = adjust(x, np.zeros(0, np.int64))
    for top_p in (1, 0.95, 0.5, 0.05):
        for min_p in (0, 0.05, 0.3):
            how = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
            draws = rng.random(3).tolist()
            expected = [draw(clean, u, **how) for u in draws]
            assert sample_rows([SampleRow(x, **how, u=u) for u in draws]) == expected


@pytest.mark.parametrize("past", [0, 64, 1000])
def test_bias_and_penalties_equal_the_twins_and_leave_no_trace(past: int) -> None:
    x = logits(3000, 1)
    before = x.copy()
    history = np.random.default_rng(2).integers(0, 60, past)
    bias = ((3, 9.0), (7, -5.0), (3, 1.0), (2999, 8.0))
    penalties = {"repetition": 1.3, "presence": 0.4, "frequency": 0.1}
    adjusted = adjust(x, history, bias=bias, **penalties)
    for u in (0.1, 0.5, 0.9):
        row = SampleRow(x, temperature=1.0, top_k=50, history=history.tolist(), bias=bias, u=u, **penalties)
        assert sample_rows([row]) == [draw(adjusted, u, temperature=1.0, top_k=50)]
    assert (x == before).all()


def test_draws_follow_the_distribution() -> None:
    x = np.log(np.array([0.5, 0.2, 0.2, 0.1], np.float32))
    rows = [SampleRow(x, temperature=1.0, u=(i + 0.5) / 1000) for i in range(1000)]
    counts = np.bincount(sample_rows(rows), minlength=4)
    assert np.abs(counts - [500, 200, 200, 100]).max() <= 1


def test_log_probabilities() -> None:
    x = logits(1000, 5)
    x[10] = np.nan
    own, best = log_probabilities(x, 42, 3)
    y = np.where(np.isnan(x), -np.inf, x).astype(np.float64)
    expected = y - np.log(np.exp(y).sum())
    assert own == pytest.approx(expected[42])
    assert [token for token, _ in best] == np.argsort(-expected)[:3].tolist()
    assert [value for _, value in best] == pytest.approx(np.sort(expected)[::-1][:3].tolist())
