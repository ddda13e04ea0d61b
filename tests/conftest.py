"""Fixtures that the whole suite shares: model files, and each real model loaded once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from engine.catalog import resolve
from engine.errors import EngineError

DATA = Path(__file__).parent / "data"

# Property tests are the same in every run and do not judge how fast a busy machine is.
settings.register_profile("suite", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("suite")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="also run what is meant to be run by hand")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave the long tests out of an ordinary run (deselected, not skipped)."""
    if config.getoption("--long"):
        return
    long = [item for item in items if item.get_closest_marker("long")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


def _optional_model(identifier: str) -> Path:
    try:
        return resolve(identifier, fetch=False)
    except EngineError:
        pytest.skip(f"the model is not in the cache; python -m engine.catalog fetch {identifier} gets it")


@pytest.fixture(scope="session")
def golden() -> Callable[[str], Any]:
    """Reads one of the right-value files by name."""
    return lambda name: json.loads((DATA / name).read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The default model's file, fetched if it is not there."""
    return resolve("smollm2-135m-instruct")


@pytest.fixture(scope="session")
def qwen_path() -> Path:
    return _optional_model("qwen2.5-coder-0.5b-instruct")


@pytest.fixture(scope="session")
def gemma_path() -> Path:
    return _optional_model("gemma-3-270m")


def _loaded(path: Path) -> Iterator[Any]:
    from engine.model.language_model import load_model

    model = load_model(path)
    yield model
    model.close()


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[Any]:
    """SmolLM2-135M-Instruct, compiled, float16 KV."""
    yield from _loaded(smollm2_path)


@pytest.fixture(scope="session")
def qwen(qwen_path: Path) -> Iterator[Any]:
    yield from _loaded(qwen_path)


@pytest.fixture(scope="session")
def gemma(gemma_path: Path) -> Iterator[Any]:
    yield from _loaded(gemma_path)
