"""The headless commands, run in this process: what they print, and how they end when something is wrong."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main

MODEL = "smollm2-135m-instruct"
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs one command; gives (exit code, stdout, stderr)."""

    def once(*arguments: str) -> tuple[int, str, str]:
        code = main(arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return once


@pytest.fixture
def file(tmp_path: Path) -> Callable[[Any], str]:
    """Writes a value as JSON; gives the path."""

    def write(value: Any) -> str:
        path = tmp_path / "input.json"
        path.write_text(json.dumps(value), encoding="utf-8")
        return str(path)

    return write


def told(run: Run, *arguments: str) -> Any:
    """The JSON of a command that goes well: alone on stdout, one line."""
    code, out, err = run(*arguments)
    assert code == 0, err
    assert out.count("\n") == 1 and out.endswith("\n")
    return json.loads(out)


def sentence(run: Run, *arguments: str) -> str:
    """The one sentence of a command that a person can put right."""
    code, out, err = run(*arguments)
    assert (code, out) == (1, "")
    assert err.count("\n") == 1 and err.strip().endswith(".") and "Traceback" not in err
    return err


def test_info(run: Run, smollm2_path: Path) -> None:
    info = told(run, "info", str(smollm2_path), "--json")
    assert info["architecture"] == "llama" and info["context_length"] == 8192
    assert 134_000_000 < info["parameters"] < 135_000_000
    assert set(info["tensor_types"]) == {"Q4_1", "Q8_0", "F32"}
    memory = info["memory"]
    assert memory["kv_bytes_per_token"] == 23_040
    assert smollm2_path.stat().st_size / 2 < memory["weights_bytes"] < 4 * smollm2_path.stat().st_size
    assert memory["workspace_bytes"] > 0


def test_info_for_people(run: Run, smollm2_path: Path) -> None:
    code, out, err = run("info", MODEL)
    assert code == 0 and err == ""
    assert "llama" in out and "context 8,192 tokens" in out and "memory:" in out


def test_tokenize(run: Run, file: Callable[[Any], str], smollm2_path: Path, golden: Callable[[str], Any]) -> None:
    cases = golden("tokenizer-smollm2-135m.json")
    texts = [case["text"] for case in cases]
    assert told(run, "tokenize", MODEL, "--file", file(texts)) == [case["ids"] for case in cases]
    assert told(run, "tokenize", MODEL, "--special", "--file", file(texts)) == [case["ids_special"] for case in cases]


def test_tokenize_from_stdin(run: Run, smollm2_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO('["Hello", ""]'))
    first, second = told(run, "tokenize", MODEL, "--file", "-", "--json")
    assert len(first) == 1 and second == []


@pytest.mark.parametrize("lane", ["prompt", "generated", "exact"])
def test_logits(
    run: Run, file: Callable[[Any], str], smollm2_path: Path, golden: Callable[[str], Any], lane: str
) -> None:
    prompt = golden("forward-smollm2-135m.json")["prompts"][0]
    path = file([prompt["prompt_ids"], [1]])
    first, second = told(run, "logits", MODEL, "--file", path, "--top", "5", "--lane", lane)
    assert set(first) == {"ids", "logits"} and len(first["ids"]) == len(first["logits"]) == 5
    assert first["logits"] == sorted(first["logits"], reverse=True) and len(second["ids"]) == 5
    right = prompt["next_top8"]
    assert first["ids"][0] == right["ids"][0]
    assert abs(first["logits"][0] - right["logits"][0]) <= 0.4


@pytest.mark.parametrize("kv_dtype", ["float16", "float32"])
def test_score(
    run: Run, file: Callable[[Any], str], smollm2_path: Path, golden: Callable[[str], Any], kv_dtype: str
) -> None:
    text = golden("forward-smollm2-135m.json")["long_text"]
    scores = told(run, "score", MODEL, "--kv-dtype", kv_dtype, "--file", file([text["ids"], [1]]))
    assert scores[0]["n"] == len(text["ids"]) - 1 and abs(scores[0]["mean_nll"] - text["mean_nll"]) <= 0.01
    assert scores[1] == {"mean_nll": 0.0, "n": 0}


def test_generate(run: Run, smollm2_path: Path) -> None:
    arguments = ("generate", MODEL, "--prompt", "What is the capital city of Germany?", "--chat", "--greedy", "--json")
    reply = told(run, *arguments, "--max-new", "24")
    assert set(reply) == {"text", "ids", "n_prompt", "n_cached", "finish", "ttft_ms", "tokens_per_s"}
    assert "Berlin" in reply["text"] and reply["finish"] in ("stop", "length")
    assert 0 < len(reply["ids"]) <= 24 and reply["n_prompt"] > 20 and reply["n_cached"] == 0
    assert reply["ttft_ms"] > 0 and reply["tokens_per_s"] > 0
    assert told(run, *arguments, "--max-new", "3")["ids"] == reply["ids"][:3]


def test_generate_for_people(run: Run, smollm2_path: Path) -> None:
    code, out, err = run("generate", MODEL, "--prompt", "The capital of France is", "--greedy", "--max-new", "4")
    assert code == 0 and "Paris" in out and "\n" not in out.rstrip("\n")
    assert err.startswith("[length] ") and "4 tokens" in err


BAD_FILES = {
    "not JSON": ("tokenize", "{", "is not valid JSON"),
    "not a list": ("tokenize", '{"a": 1}', "holds no JSON list"),
    "not strings": ("tokenize", '["a", 1]', "Entry 1 of"),
    "not UTF-8": ("tokenize", "\udcff", "is not valid JSON"),
    "nested without end": ("tokenize", "[" * 100_000, "is not valid JSON"),
    "an id outside the vocabulary": ("logits", "[[1], [49152]]", "Entry 1 of"),
    "a negative id": ("logits", "[[-1]]", "Entry 0 of"),
    "true is no id": ("score", "[[true]]", "Entry 0 of"),
    "no ids": ("score", "[[1], []]", "Entry 1 of"),
    "a number": ("score", "[5]", "Entry 0 of"),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files(run: Run, smollm2_path: Path, tmp_path: Path, name: str) -> None:
    command, content, words = BAD_FILES[name]
    path = tmp_path / "input.json"
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    assert words in sentence(run, command, MODEL, "--file", str(path))


def test_a_file_that_is_not_there(run: Run, smollm2_path: Path, tmp_path: Path) -> None:
    path = str(tmp_path / "missing.json")
    assert path in sentence(run, "tokenize", MODEL, "--file", path)


@pytest.mark.parametrize("command", [["info"], ["generate", "--prompt", "x"], ["demo", "prefix"], ["demo", "serving"]])
def test_models_that_do_not_exist(run: Run, tmp_path: Path, command: Sequence[str]) -> None:
    name = str(tmp_path / "no-such-model.gguf")
    place = len(command) if command[0] == "demo" else 1
    assert "no-such-model" in sentence(run, *command[:place], name, *command[place:])
    assert "no-such-id" in sentence(run, *command[:place], "no-such-id", *command[place:])


def test_a_file_that_is_no_model(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(b"GGUF" + bytes(3))
    assert "bad.gguf" in sentence(run, "info", str(path)) or "GGUF" in sentence(run, "info", str(path))


def test_a_prompt_that_is_too_long(run: Run, smollm2_path: Path) -> None:
    told = sentence(run, "generate", MODEL, "--context", "32", "--prompt", "word " * 100, "--json")
    assert "context of 32" in told


USAGE = {
    "no command": [],
    "an unknown command": ["dance"],
    "no model": ["info"],
    "no file": ["tokenize", MODEL],
    "no prompt": ["generate", MODEL],
    "an unknown lane": ["logits", MODEL, "--file", "x", "--lane", "fast"],
    "no tokens": ["generate", MODEL, "--prompt", "x", "--max-new", "0"],
    "no demo": ["demo"],
    "no threads": ["score", MODEL, "--file", "x", "--threads", "0"],
    "a number that is none": ["bench", MODEL, "--prefill", "many"],
}


@pytest.mark.parametrize("name", USAGE)
def test_usage(run: Run, capsys: pytest.CaptureFixture[str], name: str) -> None:
    with pytest.raises(SystemExit) as ended:
        run(*USAGE[name])
    assert ended.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith("usage: python -m engine")


def test_numbers_stay_numbers(run: Run, file: Callable[[Any], str], smollm2_path: Path) -> None:
    """JSON knows no NaN: every logit is a finite number."""
    (row,) = told(run, "logits", MODEL, "--file", file([[1, 2, 3]]), "--top", "49152")
    assert len(set(row["ids"])) == 49_152 and all(math.isfinite(value) for value in row["logits"])
