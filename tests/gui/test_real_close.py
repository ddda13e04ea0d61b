"""Closing the window at any moment: it ends within two seconds, and nothing is left running."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.hosting.bundle import Loader, LoadProgress
from engine.model.language_model import LanguageModel
from engine.model.loading import ModelBundle, load_bundle
from engine.port import LoadOptions
from tests.gui.real_engine import RealWindow, never_ends, real_window, wait_until
from tests.gui.test_real_chats import LONG

pytestmark = pytest.mark.usefixtures("installed_theme")

LIMIT_S = 2.0


def started_with(marker: str) -> list[str]:
    """Ids of the processes that were started with this text in their environment."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (process / "environ").read_bytes():
                found.append(process.name)
        except OSError:  # it ended meanwhile, or is not ours
            continue
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="this system does not list its processes in /proc")
def test_while_kernels_compile(smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiling process and its helpers are gone with the window."""
    kernels = str(tmp_path / "kernels")
    monkeypatch.setenv("NUMBA_CACHE_DIR", kernels)
    monkeypatch.setattr("engine.kernels.warm.is_warm", lambda *_: False)
    with real_window(tmp_path, load_bundle, str(smollm2_path), wait=False) as window:
        wait_until(lambda: window.bridge.engine_state.stage == "compiling", "kernels compile")
        wait_until(lambda: started_with(kernels), "the compiling process runs")
        window.new_chat()
        waiting = window.send("Name a colour.")
        assert window.close() < LIMIT_S
    assert started_with(kernels) == []
    assert (waiting.status, waiting.error_code) == ("failed", "unanswered")


def test_while_the_model_loads(smollm2_path: Path, tmp_path: Path) -> None:
    """Closed in the middle of packing weights."""
    bundles: list[ModelBundle] = []

    def load(options: LoadOptions, progress: LoadProgress) -> ModelBundle:
        bundles.append(load_bundle(options, progress))
        return bundles[-1]

    with real_window(tmp_path, load, str(smollm2_path), wait=False) as window:
        bridge = window.bridge
        wait_until(lambda: bridge.engine_state.stage == "loading" and bridge.engine_state.progress > 0, "packing")
        assert window.close() < LIMIT_S
    assert not bundles, "the load was not cancelled, it ended"


def close_while(window: RealWindow, phase: str) -> None:
    """Wait for a phase, close, and look at what is left."""
    window.wait_for_phase(phase)
    reply = window.live().message
    if phase == "decoding":
        wait_until(lambda: len(window.live().ids) >= 3, "some of the reply")
    assert window.close() < LIMIT_S
    assert (reply.status, reply.error_code) == left_by(phase)
    assert bool(reply.text) == (phase == "decoding")


def left_by(phase: str) -> tuple[str, str]:
    """How a reply ends that was in this phase when the window was closed."""
    return ("stopped", "closed_early") if phase == "decoding" else ("failed", "unanswered")


@pytest.mark.parametrize("phase", ["prefilling", "decoding"])
def test_while_the_engine_works(
    smollm2: LanguageModel, real_loader: Loader, smollm2_path: Path, tmp_path: Path, phase: str
) -> None:
    with real_window(tmp_path, real_loader, str(smollm2_path)) as window:
        chat = window.new_chat(sampling=never_ends(smollm2), max_new=2000)
        window.send(LONG * 2 if phase == "prefilling" else "Tell me about rivers.")
        close_while(window, phase)
    with real_window(tmp_path, real_loader, str(smollm2_path)) as again:
        path = again.controller.conversation(chat).path()
        assert [message.role for message in path] == ["user", "assistant"]
        assert (path[-1].status, path[-1].error_code) == left_by(phase)
        assert bool(path[-1].text) == (phase == "decoding")


def test_with_eight_streams_and_a_queue(
    smollm2: LanguageModel, real_loader: Loader, smollm2_path: Path, tmp_path: Path
) -> None:
    with real_window(tmp_path, real_loader, str(smollm2_path)) as window:
        replies = []
        for number in range(10):
            window.new_chat(sampling=never_ends(smollm2), max_new=500)
            replies.append(window.send(f"Tell me {number} things."))
        wait_until(lambda: any(len(step.decoded) == 8 for step in window.steps), "eight are written at once")
        assert window.close() < LIMIT_S
        assert {reply.status for reply in replies if reply.text} == {"stopped"}
        assert [reply.error_code for reply in replies if not reply.text][-2:] == ["unanswered"] * 2


def test_right_after_the_start(smollm2: LanguageModel, real_loader: Loader, smollm2_path: Path, tmp_path: Path) -> None:
    with real_window(tmp_path, real_loader, str(smollm2_path), wait=False) as window:
        assert window.close() < LIMIT_S
        assert not window.steps
