"""The environment ``.venv`` of a checkout: made once, stamped when whole, made anew when it is not.

A stamp records what was installed, so that a later start only compares digests. While ``.venv`` is being made a mark
stands in it; whatever ends the work (an error, Ctrl-C, a power cut) leaves either nothing or the mark, and the next
start begins afresh. An environment that somebody made by hand is completed, never deleted.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

from requirements.problem import ROOT, Problem, explain, say
from requirements.system import ensure_venv_module

VENV = ROOT / ".venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
STAMP = VENV / "kvscope-stamp.json"
UNFINISHED = VENV / "kvscope-unfinished"
NEEDED_BYTES = 1_200_000_000


def lock_text(lock: str) -> str:
    """What the lock ``lock`` ("app" or "dev") and the one it includes say."""
    names = ["app"] if lock == "app" else ["app", lock]
    return "\n".join((ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8") for name in names)


def fingerprint(lock: str) -> str:
    """A digest of a lock's text."""
    return hashlib.sha256(lock_text(lock).encode()).hexdigest()


def read_stamp() -> dict[str, str]:
    """What the last finished installation wrote down; empty if there is none, or ``.venv`` is half made."""
    if UNFINISHED.exists():
        return {}
    try:
        stamp = json.loads(STAMP.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def write_stamp(values: dict[str, str]) -> None:
    """Add ``values`` to the stamp, in one rename."""
    part = STAMP.with_suffix(".part")
    part.write_text(json.dumps({**read_stamp(), **values}, indent=1), encoding="utf-8")
    os.replace(part, STAMP)


def ready(lock: str) -> bool:
    """Whether ``.venv`` has exactly this lock installed, with the interpreter it was made with."""
    stamp = read_stamp()
    return stamp.get(lock) == fingerprint(lock) and stamp.get("python") == os.path.realpath(PYTHON) and PYTHON.exists()


def ensure_environment(lock: str) -> None:
    """Make or complete ``.venv`` for ``lock``; raises Problem, and then what this made is gone again."""
    if ready(lock):
        return
    with _one_at_a_time():
        if ready(lock):
            return
        # The interpreter changes under an environment when the system's Python is upgraded: then its packages are lost.
        same_python = read_stamp().get("python") in (None, os.path.realpath(PYTHON))
        if PYTHON.exists() and same_python and not UNFINISHED.exists():
            _install(lock)
        else:
            _build(lock)
        write_stamp({"python": os.path.realpath(PYTHON), "app": fingerprint("app"), lock: fingerprint(lock)})


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold a lock while installing, so that two starts do not build one environment."""
    try:
        import fcntl
    except ImportError:  # Windows has no flock; there the second start finds the files in use and says so
        yield
        return
    with open(__file__, "rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("Another start is installing; waiting for it.")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _build(lock: str) -> None:
    """Make ``.venv`` from nothing."""
    ensure_venv_module()
    _remove()
    if shutil.disk_usage(ROOT).free < NEEDED_BYTES:
        raise Problem(explain("No space left on device"))
    say("Making .venv, which happens once")
    base = getattr(sys, "_base_executable", None) or sys.executable
    try:
        VENV.mkdir()
        UNFINISHED.touch()
        made = subprocess.run(
            [base, "-m", "venv", str(VENV)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if made.returncode != 0:
            raise Problem(explain(made.stdout))
        _install(lock)
    except BaseException:
        _remove()
        raise


def _remove() -> None:
    """Delete ``.venv``, whatever state it is in."""
    if VENV.is_symlink() or VENV.is_file():
        VENV.unlink()
    elif VENV.exists():
        shutil.rmtree(VENV, ignore_errors=True)


def _install(lock: str) -> None:
    """Install the packages of a lock with the environment's own pip, showing which one it is at."""
    command = [str(PYTHON), "-m", "pip", "install", "--no-deps", "--only-binary", ":all:", "--no-user", "--no-input"]
    command += ["--disable-pip-version-check", "--retries", "2", "--progress-bar", "off"]
    command += ["-r", str(ROOT / "requirements" / f"{lock}.txt")]
    total = lock_text(lock).count("==")
    say(f"Installing {total} packages")
    pip = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    )
    with pip:
        try:
            output = _follow(pip, total)
        except BaseException:
            pip.terminate()
            raise
    if pip.returncode != 0:
        raise Problem(explain(output))
    UNFINISHED.unlink(missing_ok=True)


def _follow(pip: subprocess.Popen[str], total: int) -> str:
    """Show pip's progress (one line, rewritten, on a terminal; else every tenth); returns the end of its output."""
    assert pip.stdout is not None
    tail: list[str] = []
    at = 0
    terminal = sys.stdout.isatty()
    for line in pip.stdout:
        tail = [*tail[-60:], line.rstrip()]
        what = ""
        if line.startswith(("Collecting ", "Requirement already satisfied: ")):
            at += 1
            what = line.split(": ")[-1].removeprefix("Collecting ").split("==")[0]
        elif line.startswith("Installing collected"):
            at, what = total, "unpacking"
            if STAMP.exists():
                # From here on an interrupted update can leave a package half replaced.
                UNFINISHED.touch()
        if terminal and what:
            print(f"\r\x1b[K  {at}/{total} {what}", end="", flush=True)
        elif what and (at % 10 == 0 or what == "unpacking"):
            say(f"  {at}/{total} {what}")
    if terminal:
        print("\r\x1b[K", end="", flush=True)
    return "\n".join(tail)
