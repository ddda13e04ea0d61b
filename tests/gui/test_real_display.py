"""The program itself on a real X display: it starts, chats, fits the screen, and ends when told to."""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xvfb

DRIVER = Path(__file__).with_name("real_driver.py")
PATIENCE_S = 60


@contextmanager
def running(*command: str, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """A process that is ended with the block."""
    with subprocess.Popen(command, text=True, **options) as process:
        try:
            yield process
        finally:
            process.kill()


@contextmanager
def screen(size: str) -> Iterator[str]:
    """An X server with a screen of this size; gives its DISPLAY."""
    read, write = os.pipe()
    arguments = ("-displayfd", str(write), "-screen", "0", f"{size}x24", "-nolisten", "tcp", "-noreset")
    with running("Xvfb", *arguments, pass_fds=(write,), stderr=subprocess.DEVNULL), os.fdopen(read) as number:
        os.close(write)
        yield f":{number.readline().strip()}"


@pytest.fixture
def start(smollm2_path: Path, tmp_path: Path, kernels_compiled: None) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts the program: ``start(part, size, manager=…, **environment)``."""
    if shutil.which("Xvfb") is None:
        pytest.skip("Xvfb is not installed; it is the screen that this test draws on")
    with ExitStack() as stack:

        def begin(part: str, size: str = "1440x900", manager: bool = False, **more: str) -> subprocess.Popen[str]:
            display = stack.enter_context(screen(size))
            if manager:
                if shutil.which("openbox") is None:
                    pytest.skip("openbox is not installed; it gives windows the frames that this test is about")
                stack.enter_context(running("openbox", env={**os.environ, "DISPLAY": display}))
            runtime = tmp_path / "runtime"
            runtime.mkdir(mode=0o700, exist_ok=True)
            environment = {
                **os.environ,
                "DISPLAY": display,
                "QT_QPA_PLATFORM": "xcb",
                "KVSCOPE_DATA_DIR": str(tmp_path / "data"),
                "XDG_RUNTIME_DIR": str(runtime),
                **more,
            }
            command = (sys.executable, str(DRIVER), part, str(smollm2_path))
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            return stack.enter_context(running(*command, env=environment, **pipes))

        yield begin


@pytest.fixture(scope="module")
def kernels_compiled(request: pytest.FixtureRequest) -> None:
    """The programs that are started here find their kernels on disk."""
    request.getfixturevalue("smollm2")


def seen(program: subprocess.Popen[str]) -> dict[str, Any]:
    """The next thing that the program says."""
    assert program.stdout is not None and program.stderr is not None
    said, _, _ = select.select([program.stdout], [], [], PATIENCE_S)
    assert said, f"it said nothing for {PATIENCE_S} s"
    line = program.stdout.readline()
    assert line, program.stderr.read()
    told: dict[str, Any] = json.loads(line)
    return told


def end(program: subprocess.Popen[str], *, told: bool = False, limit_s: float = PATIENCE_S) -> None:
    """It ends by itself, or because it is told to, within this time; it leaves with 0 and complains of nothing."""
    begun = time.monotonic()
    if told:
        program.send_signal(signal.SIGTERM)
    code = program.wait(timeout=PATIENCE_S)
    spent = time.monotonic() - begun
    assert program.stderr is not None
    complaints = program.stderr.read()
    assert (code, complaints) == (0, "")
    assert spent < limit_s


def test_a_person_asks_and_closes(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """From a first start: the composer has the focus, the reply appears, and closing ends the program."""
    program = start("chat")
    told = seen(program)
    assert told["text"].strip()
    assert min(told["size"]) > 400 and told["colors"] > 8, "nothing was painted"
    end(program, limit_s=3.0)
    assert (tmp_path / "data" / "chats.db").stat().st_size > 0
    assert not list((tmp_path / "data" / "crashes").glob("*.txt"))


@pytest.mark.parametrize(("size", "scale"), [("1440x900", "1"), ("2560x1600", "2")])
def test_the_window_fits_the_screen(start: Callable[..., subprocess.Popen[str]], size: str, scale: str) -> None:
    """Frame and docks of the first start lie inside what the screen has room for."""
    program = start("look", size, manager=True, QT_SCALE_FACTOR=scale)
    told = seen(program)
    (x, y, width, height), (left, top, across, down) = told["frame"], told["room"]
    assert x >= left and y >= top
    assert x + width <= left + across and y + height <= top + down
    assert told["docks"] == [True] * 3 and told["bottom"] < top + down
    end(program)


def test_told_to_end_while_it_writes(start: Callable[..., subprocess.Popen[str]]) -> None:
    program = start("stream")
    assert seen(program) == {"writing": True}
    end(program, told=True, limit_s=2.0)


def test_told_to_end_while_it_compiles(start: Callable[..., subprocess.Popen[str]], tmp_path: Path) -> None:
    """A first start on a new machine, ended at once: the compiling processes go with it."""
    kernels = str(tmp_path / "kernels")
    program = start("compile", NUMBA_CACHE_DIR=kernels)
    assert seen(program) == {"compiling": True}
    end(program, told=True, limit_s=2.0)
    left = [path for path in Path("/proc").glob("[0-9]*/environ") if kernels.encode() in _bytes(path)]
    assert not left


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it ended meanwhile, or is not ours
        return b""
