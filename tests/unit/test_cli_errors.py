"""The headless commands given what a person may give by mistake: exit code 1 or 2, one sentence, nothing on stdout."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from engine.cli import main
from engine.model.language_model import load_model

TINY = str(Path(__file__).parents[1] / "data" / "tiny" / "llama.gguf")


@pytest.fixture(scope="module", autouse=True)
def warm() -> None:
    """So that no command has to say that it compiles first."""
    load_model(TINY).close()


def sentence(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Run a command that must fail, and check how it says so."""
    assert main(arguments) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and err.endswith(".\n")
    return err


@pytest.mark.parametrize("command", ["tokenize", "logits", "score"])
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"null",
        b"[[1,2",
        b"[" * 100_000,
        b"[[" + b"9" * 5000 + b"]]",
        b"\xff\xfe[[1]]",
        b"[null]",
        b"[[NaN]]",
    ],
)
def test_files_that_hold_something_else(
    command: str, content: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "in.json"
    path.write_bytes(content)
    assert str(path) in sentence(capsys, command, TINY, "--file", str(path))


@pytest.mark.parametrize("command", ["logits", "score"])
@pytest.mark.parametrize("ids", [[-1], [260], [10**30], [], [1.5], [True], ["1"], [1] * 513])
def test_ids_that_the_model_does_not_have_or_cannot_hold(
    command: str, ids: list[object], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ids.json"
    path.write_text(json.dumps([[1, 2], ids]))
    assert "Entry 1" in sentence(capsys, command, TINY, "--file", str(path))


@pytest.mark.parametrize(
    "arguments",
    [
        ("info", "no-such-model"),
        ("generate", TINY, "--prompt", ""),
        ("generate", TINY, "--prompt", "a", "--context", "1"),
        ("generate", TINY, "--prompt", "a", "--temperature", "1e300"),
        ("demo", "prefix", TINY, "--context", "64"),
        ("demo", "serving", TINY, "--context", "64", "--json"),
        ("bench", TINY, "--prefill", "99999999999", "--json"),
        ("bench", TINY, "--prefill", "8", "--decode-context", "99999"),
        ("bench", TINY, "--prefill", "8", "--peer", "llama.cpp", "--peer-python", "/nope"),
    ],
)
def test_what_cannot_be_done(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert sentence(capsys, *arguments)


@pytest.mark.skipif(sys.platform == "win32", reason="no echo program on Windows")
def test_a_peer_that_talks_of_something_else(capsys: pytest.CaptureFixture[str]) -> None:
    told = sentence(capsys, "bench", TINY, "--prefill", "8", "--peer", "llama.cpp", "--peer-python", "/bin/echo")
    assert "--peer-python" in told


@pytest.mark.parametrize(
    "arguments",
    [
        ("bench", TINY, "--decode", "99999999"),
        ("bench", TINY, "--decode-context", "-1"),
        ("generate", TINY, "--prompt", "a", "--threads", "0"),
        ("logits", TINY),
    ],
)
def test_usage(arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert capsys.readouterr().out == ""
