"""The program may be killed at any moment: the chats open again and nothing that was saved is lost."""

from __future__ import annotations

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.state.document import Conversation
from app.state.sqlite_open import open_store

ROOT = Path(__file__).parents[2]
ALLOWED_LOSS_S = 0.5
SLACK_S = 0.15
"""Beyond the half second: a busy machine runs timers late."""

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has no fork and no kill -9")


class Victims:
    """Processes that chat until they are killed."""

    def __init__(self) -> None:
        self._parent = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.kill_child"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run_and_kill(self, folder: Path, seed: int, after: float) -> float:
        """Let one work in ``folder`` and kill it ``after`` seconds from its first saved message; returns when."""
        process, journal = self._start(folder, seed), folder / "journal"
        known = journal.stat().st_size if journal.exists() else 0
        deadline = time.monotonic() + 20
        while not journal.exists() or journal.stat().st_size == known:
            assert time.monotonic() < deadline, "nothing was written"
            select.select([], [], [], 0.002)
        select.select([], [], [], after)
        killed = time.monotonic()
        os.kill(process, signal.SIGKILL)
        assert self._read() == "ended"
        return killed

    def close(self) -> None:
        """No more of them."""
        assert self._parent.stdin is not None and self._parent.stdout is not None
        self._parent.stdin.close()
        self._parent.wait(10)
        self._parent.stdout.close()

    def _start(self, folder: Path, seed: int) -> int:
        assert self._parent.stdin is not None
        self._parent.stdin.write(f"{folder} {seed}\n")
        self._parent.stdin.flush()
        return int(self._read())

    def _read(self) -> str:
        assert self._parent.stdout is not None
        return self._parent.stdout.readline().strip()


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    made = Victims()
    yield made
    made.close()


def facts(folder: Path) -> list[list]:
    """What the processes noted, in order."""
    return [json.loads(line) for line in (folder / "journal").read_text(encoding="utf-8").splitlines()]


def check(folder: Path, killed: list[float]) -> tuple[int, int]:
    """Compare the database with the notes; returns how many messages and characters of replies were compared."""
    noted = facts(folder)
    assert [fact for fact in noted if fact[0] == "problem"] == []
    store, notice = open_store(folder / "data", lambda sentence: pytest.fail(sentence))
    assert notice == ""
    chats = {head.id: store.load(head.id) for head in store.heads()}
    store.close()
    deleted = {fact[2] for fact in noted if fact[0] == "deleting"}
    saved = [(chat, text) for what, _, *rest in noted if what == "saved" for chat, text in [rest]]
    for chat, text in saved:
        if chat in chats:
            assert text in {message.text for message in chats[chat].messages.values()}
        else:
            assert chat in deleted, "a chat that nobody deleted is gone"
    return len(saved), check_replies(noted, chats, deleted, killed)


def check_replies(noted: list[list], chats: dict[str, Conversation], deleted: set[str], killed: list[float]) -> int:
    """Each reply holds what was shown of it, but for the last half second before its process was killed."""
    shown: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for what, at, *rest in noted:
        if what == "grew":
            chat, message, text = rest
            shown.setdefault((chat, message), []).append((at, text))
    compared = 0
    for (chat, message), pieces in shown.items():
        if chat in deleted and chat not in chats:
            continue
        stored = chats[chat].messages[message].text
        at = 0
        for when, text in pieces:
            # A reply that went on after a kill was cut there: its next piece follows what was kept.
            if stored.startswith(text, at):
                at += len(text)
                continue
            end = next(moment for moment in killed if moment >= when)
            assert when > end - ALLOWED_LOSS_S - SLACK_S, f"lost {end - when:.2f} s before the kill"
        compared += at
        assert at == len(stored)
    return compared


@pytest.mark.parametrize(
    "kills", [15, pytest.param(100, marks=pytest.mark.long)], ids=["a few times", "a hundred times"]
)
def test_killed_at_random_moments(victims: Victims, tmp_path: Path, kills: int) -> None:
    """Every process goes on in the same chats, so that each opens what the one before it left."""
    chance = random.Random(7)
    killed = []
    for number in range(kills):
        after = chance.choice((0.0, 0.05, 0.2, 0.9)) + chance.random() * 0.3
        killed.append(victims.run_and_kill(tmp_path, number, after))
        messages, characters = check(tmp_path, killed)
    assert messages > kills
    assert characters > 20 * kills
