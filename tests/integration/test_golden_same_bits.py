"""The same bits: a row's result depends on its tokens, their positions and its lane, and on nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from engine.cache.prefix import PrefixCache
from engine.cache.session import Session
from engine.model.language_model import LanguageModel


@pytest.fixture(scope="module")
def text(golden: Callable[[str], Any]) -> list[int]:
    ids: list[int] = golden("forward-smollm2-135m.json")["long_text"]["ids"][:200]
    return ids


@pytest.fixture(scope="module")
def cold(smollm2: LanguageModel, text: list[int]) -> np.ndarray:
    """Logits after the whole text, read at once."""
    return smollm2.logits(text)


@pytest.fixture
def threads(smollm2: LanguageModel) -> Iterator[Callable[[int], None]]:
    """Sets the number of threads for one test."""
    before = smollm2.threads
    yield smollm2.set_threads
    smollm2.set_threads(before)


@pytest.mark.parametrize("cuts", [[1, 2, 3], [16, 32, 48], [7, 100, 199], list(range(150, 200, 5)), [127, 129]])
def test_any_chunks(smollm2: LanguageModel, text: list[int], cold: np.ndarray, cuts: list[int]) -> None:
    with smollm2.new_session() as session:
        for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True):
            smollm2.eval(session, text[start:end], logits=end == len(text))
        assert np.array_equal(session.logits, cold)


@pytest.mark.parametrize("page_rows", [16, 32, 208])
def test_paged_and_flat(smollm2: LanguageModel, text: list[int], cold: np.ndarray, page_rows: int) -> None:
    """Pages in reverse order of memory, other page sizes, and one flat slab."""
    pool = smollm2.new_pool(capacity_pages=-(-len(text) // page_rows), page_rows=page_rows)
    pages = pool.allocate(pool.capacity_pages)
    pool.release(pages)  # the pool gives pages in another order from now on
    with smollm2.new_session(pool) as session:
        smollm2.eval(session, text)
        assert np.array_equal(session.logits, cold)
    pool.close()
    with Session(None, spec=smollm2.kv_spec, n_ctx=256, page_rows=256) as flat:
        smollm2.eval(flat, text)
        assert np.array_equal(flat.logits, cold)


@pytest.mark.parametrize("n", [1, 2])
def test_threads_in_a_prompt(
    smollm2: LanguageModel, text: list[int], cold: np.ndarray, threads: Callable[[int], None], n: int
) -> None:
    threads(n)
    assert np.array_equal(smollm2.logits(text), cold)


def generated(model: LanguageModel, text: list[int], width: int, steps: int) -> list[list[np.ndarray]]:
    """Logits of each step of ``width`` streams of different length that advance together."""
    pool = model.new_pool(capacity_pages=16 * width)
    sessions = [model.new_session(pool) for _ in range(width)]
    for i, session in enumerate(sessions):
        model.eval(session, text[: 5 + 29 * i])
    rows = []
    for step in range(steps):
        model.eval_batch(sessions, [text[(step + 11 * i) % len(text)] for i in range(width)])
        rows.append([session.logits.copy() for session in sessions])
    for session in sessions:
        session.release()
    pool.close()
    return rows


def test_batched_and_solo(smollm2: LanguageModel, text: list[int]) -> None:
    together = generated(smollm2, text, 6, 4)
    for i in range(6):
        with smollm2.new_session() as alone:
            smollm2.eval(alone, text[: 5 + 29 * i])
            for step in range(4):
                smollm2.eval_batch([alone], [text[(step + 11 * i) % len(text)]])
                assert np.array_equal(alone.logits, together[step][i])


def test_prompts_beside_generated_rows(smollm2: LanguageModel, text: list[int], cold: np.ndarray) -> None:
    """A prompt that is read in the same passes as others decode, and those others."""
    if not smollm2.shared_rows:  # the tiles of this processor have another arithmetic for prompts
        assert smollm2.executor.tiles is not None
        return
    pool = smollm2.new_pool(capacity_pages=64)
    with smollm2.new_session(pool) as a, smollm2.new_session(pool) as b, smollm2.new_session(pool) as reader:
        smollm2.eval(a, text[:5])
        smollm2.eval(b, text[:34])
        step, start = 0, 0
        while start < len(text):
            part = text[start : start + 1 + 7 * step]
            start += len(part)
            tokens = [text[step], text[step + 11]]
            smollm2.eval_together([a, b], tokens, reader, part, logits=start == len(text))
            step += 1
        assert np.array_equal(reader.logits, cold)
        for session, first in ((a, 0), (b, 11)):
            with smollm2.new_session() as alone:
                smollm2.eval(alone, session.tokens[:-step])
                for token in text[first : first + step]:
                    smollm2.eval_batch([alone], [token])
                assert np.array_equal(alone.logits, session.logits)
    pool.close()


def test_threads_in_a_batch(smollm2: LanguageModel, text: list[int], threads: Callable[[int], None]) -> None:
    threads(1)
    one = generated(smollm2, text, 3, 2)
    threads(2)
    two = generated(smollm2, text, 3, 2)
    assert np.array_equal(np.array(one), np.array(two))


def test_warm_and_cold(smollm2: LanguageModel, text: list[int], cold: np.ndarray) -> None:
    pool = smollm2.new_pool(capacity_pages=64)
    cache = PrefixCache(pool)
    with smollm2.new_session(pool) as first:
        smollm2.eval(first, text[:150])
        cache.insert(first, text[:150], label="first")
    with smollm2.new_session(pool) as second:
        assert cache.attach(second, text) == 144
        smollm2.eval(second, text[144:])
        assert np.array_equal(second.logits, cold)
    cache.release_all()
    pool.close()


def test_exact_makes_replies_and_prompts_equal(
    smollm2: LanguageModel, text: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one lane a token gives the same bits whether it was generated or is read again as a prompt."""
    monkeypatch.setattr(smollm2, "exact", True)
    whole = smollm2.logits(text[:40])
    with smollm2.new_session() as session:
        smollm2.eval(session, text[:20])
        for token in text[20:40]:
            smollm2.eval_batch([session], [token])
        assert np.array_equal(session.logits, whole)


def test_generated_rows_agree_with_prompt_rows(smollm2: LanguageModel, text: list[int]) -> None:
    """The two lanes may round differently, but not by more than the stated tolerance."""
    prompt, again = smollm2.logits(text[:60]), smollm2.logits(text[:60], lane="generated")
    assert np.abs(prompt - again).max() <= 0.4
