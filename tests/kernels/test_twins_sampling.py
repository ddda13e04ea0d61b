"""Compiled sampling chooses the tokens that ``sampling_reference`` defines."""

from __future__ import annotations

from dataclasses import asdict, replace

import numpy as np
import pytest

from engine.kernels import sampling_reference as reference
from engine.kernels.sample_row import SampleRow
from engine.kernels.sampling import Sampler, sample_rows
from engine.kernels.team import Team

NAN, INF = np.float32(np.nan), np.float32(np.inf)


def filters(row: SampleRow) -> dict[str, float]:
    return {name: asdict(row)[name] for name in ("temperature", "top_k", "top_p", "min_p")}


def adjusted(row: SampleRow) -> np.ndarray:
    logits = row.logits if row.mask is None else np.where(row.mask, row.logits, -INF)
    history = np.array(row.history, np.int64)
    factors = {"repetition": row.repetition, "presence": row.presence, "frequency": row.frequency}
    return reference.adjust(logits, history, bias=row.bias, **factors)


def expected(row: SampleRow) -> int:
    return reference.draw(adjusted(row), row.u, **filters(row))  # type: ignore[arg-type]


def random_row(rng: np.random.Generator, n: int) -> SampleRow:
    """Random logits of any spread (some with ties or tokens that are out), and each step in use or not."""
    logits = (rng.standard_normal(n) * rng.choice([0.1, 1, 5, 30])).astype(np.float32)
    if rng.random() < 0.3:
        logits = np.round(logits)
    if rng.random() < 0.3:
        logits[rng.random(n) < 0.3] = rng.choice([NAN, -INF])
    logits[rng.integers(n)] = 1.5  # one token is always left
    used = rng.random(8) < 0.5
    return SampleRow(
        logits,
        temperature=float(rng.choice([0.0, 0.3, 0.8, 1.0, 2.5])),
        top_k=int(rng.choice([1, 2, 7, 40, n, 2 * n])) if used[0] else 0,
        top_p=float(rng.choice([0.05, 0.5, 0.9, 0.999])) if used[1] else 1.0,
        min_p=float(rng.choice([1e-3, 0.05, 0.5])) if used[2] else 0.0,
        repetition=1.3 if used[3] else 1.0,
        presence=0.7 if used[4] else 0.0,
        frequency=0.2 if used[5] else 0.0,
        history=rng.integers(0, n, rng.choice([1, 30, 64, 300])).tolist() if used[6] else (),
        bias=tuple((int(rng.integers(n)), float(rng.normal() * 5)) for _ in range(5)) if used[7] else (),
        u=float(rng.random()),
    )


@pytest.mark.parametrize("n", [1, 5, 16, 127, 128, 203, 1000, 4096])
def test_the_same_tokens_whatever_is_asked_for(n: int) -> None:
    rng = np.random.default_rng(n)
    rows = [random_row(rng, n) for _ in range(150)]
    kept = [row.logits.copy() for row in rows]
    assert sample_rows(rows) == [expected(row) for row in rows]
    assert all(np.array_equal(row.logits, old, equal_nan=True) for row, old in zip(rows, kept, strict=True))


def test_each_filter_alone_over_the_whole_range_of_draws() -> None:
    logits = np.random.default_rng(1).standard_normal(300).astype(np.float32) * 2
    plain = SampleRow(logits, temperature=0.9)
    kinds = [plain, replace(plain, top_k=9), replace(plain, top_p=0.7), replace(plain, min_p=0.1)]
    rows = [replace(kind, u=u) for kind in kinds for u in np.linspace(0, 1, 101)[:-1].tolist()]
    chosen = np.array(sample_rows(rows)).reshape(len(kinds), -1)
    assert (chosen.ravel() == [expected(row) for row in rows]).all()
    assert (np.diff(chosen, axis=1) >= 0).all(), "a larger draw never gives an earlier token"
    for kind, tokens in zip(kinds[1:], chosen[1:], strict=True):
        allowed, _ = reference.survivors(logits, **filters(kind))  # type: ignore[arg-type]
        assert len(allowed) < 300 and set(tokens) <= set(allowed)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_rows_without_a_largest_finite_logit(temperature: float) -> None:
    n = 150
    nothing, out, some, endless = (np.full(n, value, np.float32) for value in (NAN, -INF, NAN, 0.0))
    some[[3, 140]] = -2.0, -1e30
    endless[[7, 149]] = INF
    rows = [
        SampleRow(logits, temperature, top_p=p, u=0.5) for logits in (nothing, out, some, endless) for p in (1, 0.9)
    ]
    assert sample_rows(rows) == [0, 0, 0, 0, 3, 3, 7, 7]
    assert sample_rows(rows) == [expected(row) for row in rows]


def test_ties_are_broken_in_favour_of_the_lower_token() -> None:
    logits = np.zeros(400, np.float32)
    logits[[11, 205, 333]] = 4.0
    draws = np.linspace(0, 1, 24)[:-1].tolist()

    def seen(**kind: float) -> set[int]:
        rows = [SampleRow(logits, 1.0, u=u, **kind) for u in draws]  # type: ignore[arg-type]
        tokens = sample_rows(rows)
        assert tokens == [expected(row) for row in rows]
        return set(tokens)

    assert sample_rows([SampleRow(logits)]) == [11]
    assert seen(top_k=2) == {11, 205}
    assert seen(top_k=3) == {11, 205, 333}
    assert seen(top_k=4) <= {0, 11, 205, 333}
    assert seen(top_p=0.09) == {11}
    assert seen(top_p=0.18) == {11, 205}
    assert seen(min_p=0.5) == {11, 205, 333}


def test_a_mask_leaves_the_allowed_tokens_only() -> None:
    rng = np.random.default_rng(4)
    rows = [replace(random_row(rng, 203), mask=rng.random(203) < 0.1) for _ in range(80)]
    tokens = sample_rows(rows)
    assert tokens == [expected(row) for row in rows]
    possible = [bool(np.isfinite(row.logits[row.mask]).any()) for row in rows]
    allowed = [bool(row.mask[token]) for row, token in zip(rows, tokens, strict=True) if row.mask is not None]
    assert sum(possible) > 60 and all(ok for ok, can in zip(allowed, possible, strict=True) if can)


def test_a_vocabulary_of_262144_tokens() -> None:
    """Draws may differ by rounding where ``u`` falls on the edge of a token's share of the whole."""
    rng = np.random.default_rng(262)
    logits = (rng.standard_normal(262_144) * 2).astype(np.float32)
    plain = SampleRow(logits, 0.8)
    kinds = [plain, replace(plain, top_k=50), replace(plain, top_k=5000, top_p=0.9), replace(plain, top_p=0.95)]
    kinds += [replace(plain, min_p=0.02), replace(plain, top_p=0.3, temperature=1.5), replace(plain, temperature=0.0)]
    rows = [replace(kind, u=u) for kind in kinds for u in rng.random(3).tolist()]
    for row, token in zip(rows, sample_rows(rows), strict=True):
        if row.temperature == 0:
            assert token == int(logits.argmax())
            continue
        tokens, weights = reference.survivors(logits, **filters(row))  # type: ignore[arg-type]
        shares = np.cumsum(weights, dtype=np.float64) / weights.sum(dtype=np.float64)
        at = int(np.searchsorted(tokens, token))
        assert tokens[at] == token
        below = shares[at - 1] if at else 0.0
        assert below - 1e-6 <= row.u <= shares[at] + 1e-6


def test_a_row_does_not_depend_on_its_neighbours_or_threads() -> None:
    rng = np.random.default_rng(6)
    rows = [random_row(rng, n) for n in (40, 3000, 700, 1, 203) for _ in range(6)]
    alone = [sample_rows([row])[0] for row in rows]
    team = Team(3)
    try:
        sample = Sampler(team)
        assert sample(rows[:3]) == alone[:3]
        assert sample(rows) == alone
        assert sample(rows[::-1]) == alone[::-1]
        assert sample([]) == []
    finally:
        team.close()


def test_tokens_outside_the_vocabulary_are_passed_over() -> None:
    logits = np.array([0.0, 1.0, 0.5], np.float32)
    row = SampleRow(logits, bias=((3, 9.0), (-1, 9.0), (2, 1.0)), history=[5, 2, -4], presence=0.6)
    assert sample_rows([row]) == [1]
    assert sample_rows([replace(row, presence=0.4)]) == [2]
