"""The Serve switch: other programs use the window's engine, and the window sees what they do."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from PySide6.QtWidgets import QApplication

from app.application import Application
from app.settings.keeper import SettingsKeeper
from app.state.store import MemoryStore
from app.views.serving_status import ServingStatus
from engine.loop import EngineLoop
from engine.port import LoadOptions
from engine.scheduling.events import Finished
from tests.fakes import FakeBundle

WAIT_MS = 20_000


class Desk:
    """A window over a real engine loop with a fake model, its switch on a port that is free."""

    def __init__(self, qtbot: Any, folder: Path) -> None:
        self.qtbot = qtbot
        self.bundle = FakeBundle()
        keeper = SettingsKeeper(folder)
        self.app = Application(lambda sink: EngineLoop(sink, lambda load, progress: self.bundle), MemoryStore(), keeper)
        self.window = self.app.window
        self.serving = self.window.serving
        self.serving._first_port = free_port()
        (self.status,) = self.window.findChildren(ServingStatus)
        self.app.bridge.start()
        self.window.show()
        with qtbot.waitSignal(self.app.bridge.state, timeout=WAIT_MS, check_params_cb=lambda s: s.stage == "ready"):
            self.app.bridge.port.load(LoadOptions(self.bundle.info.path))

    def toggle(self, expected: str) -> None:
        """Use the command and wait until the switch is where it should be."""
        self.window.commands.actions["serve"].trigger()
        self.qtbot.waitUntil(lambda: self.serving.stage == expected, timeout=WAIT_MS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def desk(qtbot: Any, tmp_path: Path) -> Iterator[Desk]:
    made = Desk(qtbot, tmp_path)
    yield made
    assert made.app.close()
    made.window.deleteLater()


def test_the_switch_serves_and_stops(desk: Desk) -> None:
    assert desk.status.isHidden()
    desk.toggle("on")
    url = desk.serving.url
    assert desk.status.isVisible() and desk.status.words.text() == url.removeprefix("http://")
    assert url in desk.status.accessibleName()
    desk.status.copy.click()
    assert QApplication.clipboard().text() == url
    assert httpx.get(f"{url}/models").json()["data"][0]["id"] == "fake"
    desk.toggle("off")
    assert desk.status.isHidden() and desk.serving.url == ""
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")


def test_requests_from_outside_are_streams_of_the_window(desk: Desk) -> None:
    desk.toggle("on")
    finished: list[Finished] = []
    seen: set[tuple[str, str]] = set()
    desk.app.bridge.finished.connect(finished.append)
    desk.app.bridge.step.connect(lambda report: seen.update((s.chat, s.label) for s in report.streams))
    body = {"messages": [{"role": "user", "content": "hello from another program"}], "max_tokens": 40}
    answer = httpx.post(f"{desk.serving.url}/chat/completions", json=body, timeout=20)
    assert answer.status_code == 200
    desk.qtbot.waitUntil(lambda: len(finished) == 1, timeout=WAIT_MS)
    assert (finished[0].n_gen, finished[0].stream >= 1 << 40) == (40, True)
    assert ("API", "hello from another program") in seen
    assert desk.app.controller.title("API") == "API"
    chains = desk.app.bridge.port.snapshot().result(20).chains
    assert [(chain.chat, chain.label) for chain in chains] == [("API", "hello from another program")]
    dock = desk.window.cache_dock
    desk.qtbot.waitUntil(lambda: dock.view.model.rowCount() == 1, timeout=WAIT_MS)


def test_a_taken_port_gives_the_next_one(desk: Desk) -> None:
    first = desk.serving._first_port
    with socket.socket() as other:
        other.bind(("127.0.0.1", first))
        other.listen()
        desk.toggle("on")
        assert desk.serving.url != f"http://127.0.0.1:{first}/v1"
        assert httpx.get(f"{desk.serving.url}/models").status_code == 200


def test_closing_the_window_ends_the_server(qtbot: Any, tmp_path: Path) -> None:
    desk = Desk(qtbot, tmp_path)
    desk.toggle("on")
    url = desk.serving.url
    assert desk.app.close()
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/models")
    desk.window.deleteLater()
