"""``--self-test``: a line and exit code 0 where all is well, a sentence and exit code 1 where something is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from app import self_test


def test_all_is_well(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert self_test.main() == 0
    line = capsys.readouterr().out
    assert line.startswith("self-test fine: 22 tokens as expected, ready after ") and line.count("\n") == 1
    assert "6 of 4096 pages cached, then all free" in line


def test_other_tokens_are_a_failure(
    smollm2_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(self_test, "EXPECTED", (*self_test.EXPECTED[:-1], 41))
    assert self_test.main() == 1
    said = capsys.readouterr()
    assert not said.out and said.err.startswith("self-test failed: The reply's tokens are wrong: [33, 28, ")


def test_a_model_that_is_not_there_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(self_test, "DEFAULT_MODEL", str(tmp_path / "gone.gguf"))
    assert self_test.main() == 1
    said = capsys.readouterr()
    assert not said.out and said.err.startswith("self-test failed: ") and "gone.gguf" in said.err
