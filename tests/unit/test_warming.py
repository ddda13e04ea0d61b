"""Compiling in a child process, with a stand-in for the compiler."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from engine.errors import CancelledError, EngineError
from engine.hosting.bundle import LoadProgress
from engine.kernels import warm
from engine.model import warming

MODEL = Path(__file__).resolve().parents[1] / "data" / "tiny" / "llama.gguf"
LINE = 'print(\'{"done": %d, "total": 2, "name": "k%d"}\', flush=True)\n'


def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Nothing is warm, and the child runs ``script``."""
    file = tmp_path / "child.py"
    file.write_text(script, encoding="utf-8")
    monkeypatch.setattr(warm, "is_warm", lambda *_: False)
    monkeypatch.setattr(warming, "child_command", lambda: [sys.executable, str(file)])


def test_progress_is_told_kernel_by_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, tmp_path, LINE % (1, 1) + LINE % (2, 2))
    told: list[tuple[str, float, str]] = []
    warming.warm_kernels(MODEL, kv_dtype="float16", progress=LoadProgress(lambda *line: told.append(line)))
    assert told == [("compiling", 0.0, ""), ("compiling", 0.5, "k1"), ("compiling", 1.0, "k2")]


def test_a_warm_start_runs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(warm, "is_warm", lambda types, kv: bool(asked.append((types, kv))) or True)
    monkeypatch.setattr(warming, "child_command", lambda: pytest.fail("a child was started"))
    told: list[tuple[str, float, str]] = []
    warming.warm_kernels(MODEL, kv_dtype="float32", progress=LoadProgress(lambda *line: told.append(line)))
    assert asked == [(["F32"], "float32")] and told == []


def test_a_failed_child_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, tmp_path, "raise SystemExit(7)")
    with pytest.raises(EngineError, match=r"^Compiling the kernels failed \(exit code 7\)"):
        warming.warm_kernels(MODEL, kv_dtype="float16", progress=LoadProgress(lambda *_: None))


def test_cancelling_kills_a_child_that_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    number = tmp_path / "pid"
    script = f"import os, signal\nopen({str(number)!r}, 'w').write(str(os.getpid()))\n" + LINE % (1, 1)
    stand_in(monkeypatch, tmp_path, script + "signal.pause()\n")
    progress: LoadProgress

    def told(stage: str, fraction: float, detail: str) -> None:
        if detail == "k1":
            progress.cancel()

    progress = LoadProgress(told)
    with pytest.raises(CancelledError):
        warming.warm_kernels(MODEL, kv_dtype="float16", progress=progress)
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)


def test_a_packaged_app_starts_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    assert warming.child_command()[1:] == ["-m", "engine.kernels.warm"]
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert warming.child_command() == [sys.executable, "--warm-kernels"]
