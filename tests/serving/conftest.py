"""One server over the real model for the whole run, and small ones over a fake model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from engine.port import LoadOptions
from tests.serving.harness import Served, serving, serving_fake

MODEL = "smollm2-135m-instruct"


@pytest.fixture(scope="session")
def real(smollm2_path: Path) -> Iterator[Served]:
    """SmolLM2 behind a real socket; 16 streams at once."""
    from engine.model.loading import load_bundle

    with serving(load_bundle, LoadOptions(str(smollm2_path), max_streams=16), max_waiting=80) as served:
        yield served


@pytest.fixture
def client(real: Served) -> Iterator[openai.OpenAI]:
    """The openai package, pointed at the real model."""
    with openai.OpenAI(base_url=real.url, api_key="none", max_retries=0, timeout=60) as client:
        yield client
    real.idle()


@pytest.fixture(scope="module")
def fake() -> Iterator[Served]:
    """A server over a fake model."""
    with serving_fake() as served:
        yield served
