"""Loading as the engine loop does it: progress, cancelling, memory, the compiling child."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.errors import CancelledError, ModelFileError, ModelMemoryError
from engine.hosting.bundle import LoadProgress
from engine.model.language_model import load_model
from engine.model.loading import load_bundle
from engine.model.warming import warm_kernels
from engine.port import LoadOptions
from engine.scheduling.request import Request

TINY = Path(__file__).parents[1] / "data" / "tiny"
LLAMA = str(TINY / "llama.gguf")


def test_bundle() -> None:
    told: list[tuple[str, float, str]] = []
    options = LoadOptions(LLAMA, n_ctx=256, threads=1, pool_bytes=1 << 20, kv_dtype="float32", max_streams=3)
    bundle = load_bundle(options, LoadProgress(lambda *report: told.append(report)))
    info = bundle.info
    assert (info.path, info.architecture, info.name) == (LLAMA, "llama", "tiny random model")
    assert (info.n_ctx, info.n_ctx_train, info.n_vocab, info.max_streams, info.threads) == (256, 512, 260, 3, 1)
    assert info.page_bytes == 16 * 2 * 3 * 2 * 16 * 4
    assert info.capacity_pages == (1 << 20) // info.page_bytes
    assert info.tensor_types == (("F32", 29),) and not info.has_chat_template
    loading = [fraction for stage, fraction, _ in told if stage == "loading"]
    assert loading == sorted(loading) and loading[-1] == 1.0
    ids = bundle.encode_prompt("hello")
    assert bundle.tokenizer.decode(ids) == "hello"
    *_, vector = bundle.embed(ids)
    assert vector.shape == (64,)
    assert bundle.text_stream(Request(1, tuple(ids))).push(ids[0])[0] == bundle.tokenizer.decode(ids[:1])
    before = bundle.evaluator.logits(ids)
    bundle.set_threads(2)
    assert bundle.evaluator.threads == 2
    assert np.array_equal(bundle.evaluator.logits(ids), before)
    bundle.close()


def test_a_cancelled_load_ends_and_leaves_no_thread() -> None:
    threads = set(threading.enumerate())
    progress = LoadProgress(lambda stage, fraction, detail: progress.cancel() if stage == "loading" else None)
    with pytest.raises(CancelledError):
        load_bundle(LoadOptions(LLAMA), progress)
    assert set(threading.enumerate()) <= threads


def test_not_enough_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.model.memory.free_memory", lambda: 1 << 20)
    with pytest.raises(ModelMemoryError, match=r"needs \d MiB of memory, but only 1 MiB are free"):
        load_model(LLAMA)


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "letter.gguf").write_text("Dear reader")
    with pytest.raises(ModelFileError):
        load_bundle(LoadOptions(str(tmp_path / "letter.gguf")), LoadProgress(lambda *_: None))


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if nothing had been compiled yet (the child finds what is in the cache)."""
    monkeypatch.setattr("engine.kernels.warm.is_warm", lambda *_: False)


@pytest.mark.usefixtures("cold")
def test_the_child_tells_its_progress() -> None:
    told: list[tuple[float, str]] = []
    warm_kernels({"F32": 1}, "float32", report=lambda *report: told.append(report))
    fractions = [fraction for fraction, _ in told]
    assert fractions[0] == 0.0 and fractions[-1] == 1.0 and fractions == sorted(fractions)
    assert told[-1][1].startswith("kernel ")


@pytest.mark.usefixtures("cold")
def test_the_child_can_be_killed() -> None:
    told: list[Any] = []
    threads = set(threading.enumerate())
    with pytest.raises(CancelledError):
        warm_kernels({"F32": 1}, "float32", report=lambda *report: told.append(report), cancelled=lambda: bool(told))
    assert len(told) == 1
    assert set(threading.enumerate()) <= threads


@pytest.mark.usefixtures("cold")
def test_a_child_that_fails_is_not_the_end(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warm_kernels(["no such type"], "float32")
    assert "compiling kernels ahead failed" in caplog.text and "no such type" in caplog.text
