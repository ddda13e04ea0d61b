"""What a chat job's wish for the fallback template does on its way to a request."""

from __future__ import annotations

import pytest

from engine.hosting.prepare import prepare
from engine.port import ChatJob, Turn
from tests.fakes import FakeBundle


@pytest.mark.parametrize("fallback", [False, True])
def test_the_fallback_reaches_the_renderer_and_is_reported(fallback: bool) -> None:
    job = ChatJob(1, "a", (Turn("user", "hi"),), fallback=fallback)
    prepared, request = prepare(FakeBundle(), job)
    assert prepared.used_fallback is fallback and prepared.reasoning_open is False
    assert request.prompt == prepared.prompt
