"""The real models against right values with prompts on tiles: the processor's own, or emulated ones. Slow: by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from engine.kernels.cpu import TILES_VARIABLE, tile_unit
from engine.model.language_model import LanguageModel, load_model
from tests.integration.test_golden import (  # noqa: F401
    CASES,
    test_greedy_choices,
    test_likelihood_beyond_the_sliding_window,
    test_likelihood_of_a_long_text,
    test_logits_after_prompts,
)

pytestmark = pytest.mark.long


@pytest.fixture(params=CASES, ids=[case[0] for case in CASES], scope="module")
def case(
    request: pytest.FixtureRequest, golden: Callable[[str], Any]
) -> Iterator[tuple[LanguageModel, dict[str, Any], float]]:
    fixture, file, tolerance = request.param
    with pytest.MonkeyPatch.context() as patch:
        if tile_unit() is None:
            patch.setenv(TILES_VARIABLE, "emulated")
        model = load_model(request.getfixturevalue(f"{fixture}_path"))
    yield model, golden(file), tolerance
    model.close()


def test_any_chunks_and_threads(case: tuple[LanguageModel, dict[str, Any], float]) -> None:
    model, golden, _ = case
    text = golden["long_text"]["ids"][:150]
    cold, before = model.logits(text), model.threads
    for threads, cuts in ((1, []), (2, [1, 2, 3]), (2, [16, 48]), (2, [7, 100, 149])):
        model.set_threads(threads)
        with model.new_session() as session:
            for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
                model.eval(session, text[start:end], logits=end == len(text))
            assert np.array_equal(session.logits, cold)
    model.set_threads(before)
    assert not np.array_equal(cold, model.logits(text, lane="generated"))
