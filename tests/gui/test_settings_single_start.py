"""A second start hands its file to the first; whoever ended badly is in nobody's way."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QProcess

from app.local_socket import ask
from app.single_instance import SingleInstance

ROOT = Path(__file__).parents[2]

posix_only = pytest.mark.skipif(os.name == "nt", reason="Windows has no sockets in the file system")

START = """
import sys
from pathlib import Path
from PySide6.QtCore import QCoreApplication
from app.single_instance import SingleInstance
app = QCoreApplication([])
single = SingleInstance(Path(sys.argv[1]))
print(single.claim(sys.argv[2], float(sys.argv[3])), flush=True)
if sys.argv[4] == "stay":
    sys.stdin.readline()
single.release()
"""


@pytest.fixture
def single(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], SingleInstance]]:
    """Makes claimants for a data folder by its name; all let go at the end."""
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("XDG_ACTIVATION_TOKEN", "a token")
    made = []

    def make(name: str = "data") -> SingleInstance:
        made.append(SingleInstance(tmp_path / name))
        return made[-1]

    yield make
    for one in made:
        one.release()
        one.deleteLater()


def start(folder: Path, file: str = "", answer_s: float = 20, then: str = "end") -> QProcess:
    """Another start of the program; its first line is how its claim ended."""
    process = QProcess()
    process.setWorkingDirectory(str(ROOT))
    process.start(sys.executable, ["-c", START, str(folder), file, str(answer_s), then])
    assert process.waitForStarted(5000)
    return process


def first_line(qtbot, process: QProcess) -> str:
    qtbot.waitUntil(process.canReadLine, timeout=20_000)
    return process.readLine().data().decode().strip()


def test_a_second_start_hands_its_file_over(qtbot, single, tmp_path):
    first = single("data")
    assert first.claim() == "first"
    with qtbot.waitSignal(first.asked, timeout=20_000) as heard:
        second = start(tmp_path / "data", "/models/ü b.gguf")
    assert heard.args == ["/models/ü b.gguf", "a token"]
    assert first_line(qtbot, second) == "handed_over"
    qtbot.waitUntil(lambda: second.state() == QProcess.ProcessState.NotRunning, timeout=5000)


def test_another_data_folder_is_another_program(single):
    assert single("data").claim() == "first"
    assert single("other").claim() == "first"


@posix_only
def test_the_one_that_was_killed_leaves_nothing_in_the_way(qtbot, single, tmp_path):
    killed = start(tmp_path / "data", then="stay")
    assert first_line(qtbot, killed) == "first"
    killed.kill()
    killed.waitForFinished(5000)
    assert list((tmp_path / "runtime").glob("*.sock"))
    first = single("data")
    assert first.claim() == "first"
    with qtbot.waitSignal(first.asked, timeout=20_000):
        second = start(tmp_path / "data")
    assert first_line(qtbot, second) == "handed_over"
    qtbot.waitUntil(lambda: second.state() == QProcess.ProcessState.NotRunning, timeout=5000)


def test_a_start_that_meets_one_that_is_ending_waits_for_it(qtbot, single, tmp_path):
    first = single("data")
    assert first.claim() == "first"
    first.stop_listening()
    second = start(tmp_path / "data")
    assert not second.waitForReadyRead(300)
    first.release()
    assert first_line(qtbot, second) == "first"
    qtbot.waitUntil(lambda: second.state() == QProcess.ProcessState.NotRunning, timeout=5000)


def test_one_that_does_not_answer_is_noticed(single):
    assert single("data").claim() == "first"
    assert single("data").claim(answer_s=0.1) == "no_answer"


def test_of_two_starts_at_once_one_is_first(tmp_path, single):
    single("unused")
    command = [sys.executable, "-c", START, str(tmp_path / "data"), "", "1", "stay"]
    starts = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    said = sorted(one.stdout.readline().strip() for one in starts)
    for one in starts:
        one.communicate("\n", timeout=20)
    assert said == ["first", "no_answer", "no_answer"]


@posix_only
@pytest.mark.parametrize("nonsense", [b"\xff\xfe", b"[]", b'{"open": 3, "token": ""}', b"x" * 70_000])
def test_nonsense_through_the_socket_is_ignored(qtbot, single, tmp_path, nonsense):
    first = single("data")
    assert first.claim() == "first"
    heard = []
    first.asked.connect(lambda *wish: heard.append(wish))
    socket = next((tmp_path / "runtime").glob("*.sock"))
    answers = []
    asking = threading.Thread(
        target=lambda: answers.append(ask(socket.with_suffix(""), nonsense, time.monotonic() + 10))
    )
    asking.start()
    qtbot.waitUntil(lambda: answers == [b""], timeout=5000)
    asking.join()
    assert heard == []


@posix_only
def test_the_socket_is_the_persons_own(single, tmp_path):
    first = single("data")
    assert first.claim() == "first"
    socket = next((tmp_path / "runtime").glob("*.sock"))
    assert stat.S_IMODE(socket.stat().st_mode) == 0o600
    first.stop_listening()
    assert not socket.exists()
