"""Compiling in a child process, with a stand-in for the compiler."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

import pytest

from engine.errors import CancelledError
from engine.kernels import warm
from engine.model import warming

LINE = 'print(\'{"done": %d, "total": 2, "name": "k"}\', flush=True)\n'


def stand_in(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, script: str) -> None:
    """Nothing is warm, and the child runs ``script``."""
    file = tmp_path / "child.py"
    file.write_text(script, encoding="utf-8")
    monkeypatch.setattr(warm, "is_warm", lambda *_: False)
    monkeypatch.setattr(warming, "_command", lambda: [sys.executable, str(file)])


def test_progress_is_told_kernel_by_kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    stand_in(monkeypatch, tmp_path, LINE % 1 + LINE % 2)
    told: list[tuple[float, str]] = []
    warming.warm_kernels(["F32"], "float16", report=lambda *line: told.append(line))
    assert told[1:] == [(0.5, "kernel 1 of 2"), (1.0, "kernel 2 of 2")]
    assert told[0][0] == 0.0


def test_a_warm_start_runs_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(warm, "is_warm", lambda types, kv: bool(asked.append((types, kv))) or True)
    monkeypatch.setattr(warming, "_command", lambda: pytest.fail("a child was started"))
    warming.warm_kernels(["Q8_0", "F32", "F32"], "float32")
    assert asked == [(["F32", "Q8_0"], "float32")]


def test_a_child_that_fails_costs_only_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in(monkeypatch, tmp_path, "raise SystemExit('no memory')")
    with caplog.at_level(logging.WARNING):
        warming.warm_kernels(["F32"], "float16")
    assert "no memory" in caplog.text


def test_cancelling_kills_a_child_that_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    number = tmp_path / "pid"
    script = f"import os, signal\nopen({str(number)!r}, 'w').write(str(os.getpid()))\n" + LINE % 1
    stand_in(monkeypatch, tmp_path, script + "signal.pause()\n")
    told: list[float] = []
    with pytest.raises(CancelledError):
        warming.warm_kernels(
            ["F32"], "float16", report=lambda fraction, _: told.append(fraction), cancelled=lambda: 0.5 in told
        )
    with pytest.raises(ProcessLookupError):
        os.kill(int(number.read_text()), 0)
