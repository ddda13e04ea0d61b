"""``demo serving`` and ``demo prefix``: the shapes that DESIGN promises, and numbers that agree with each other."""

from __future__ import annotations

import io
import json
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from engine.cli import main
from engine.cli.demo_serving import SYSTEM
from engine.model.language_model import LanguageModel
from engine.port import Turn

MODEL = "smollm2-135m-instruct"
NEW_TOKENS = 12
PAGE = 16
ROUNDS = ("cold", "sequential", "warm")
Printed = tuple[str, str]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> Printed:
    """Run one demo; gives (stdout, stderr)."""
    code = main(arguments)
    printed = capsys.readouterr()
    assert code == 0, printed.err
    return printed.out, printed.err


@pytest.fixture(scope="module")
def serving(smollm2_path: Path) -> dict[str, Any]:
    """``demo serving`` with replies of a fixed length, once for all tests."""
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        assert main(["demo", "serving", MODEL, "--ignore-eos", "--new-tokens", str(NEW_TOKENS), "--json"]) == 0
    told: dict[str, Any] = json.loads(out.getvalue())
    return told


@pytest.fixture(scope="module")
def shared_pages(smollm2: LanguageModel) -> int:
    """Full pages that all chats of the demo begin with."""
    render = smollm2.renderer().render_prompt
    one, other = (render([Turn("system", SYSTEM), Turn("user", text)]).ids for text in ("What?", "Name it."))
    same = next(i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return same // PAGE


def test_shape(serving: dict[str, Any]) -> None:
    assert set(serving) == {"raw", *ROUNDS}
    assert set(serving["raw"]) == {"tokens_per_s"} and serving["raw"]["tokens_per_s"] > 0
    for name in ROUNDS:
        assert serving[name]["wall_s"] > 0 and len(serving[name]["requests"]) == 4
        for request in serving[name]["requests"]:
            assert set(request) == {"n_prompt", "n_cached", "n_gen", "ttft_ms", "finish"}


@pytest.mark.parametrize("name", ROUNDS)
def test_figures_agree(serving: dict[str, Any], name: str) -> None:
    for request in serving[name]["requests"]:
        assert (request["n_gen"], request["finish"]) == (NEW_TOKENS, "length")
        assert 0 <= request["n_cached"] < request["n_prompt"] and request["n_cached"] % PAGE == 0
        assert 0 < request["ttft_ms"] <= serving[name]["wall_s"] * 1000


def test_cold_and_sequential_read_the_same_prompts(serving: dict[str, Any]) -> None:
    cold, sequential = (serving[name]["requests"] for name in ("cold", "sequential"))
    assert [r["n_prompt"] for r in cold] == [r["n_prompt"] for r in sequential]
    assert cold[0]["n_cached"] == 0 and all(r["n_cached"] == 0 for r in sequential)


def test_one_at_a_time_means_waiting(serving: dict[str, Any]) -> None:
    waits = [request["ttft_ms"] for request in serving["sequential"]["requests"]]
    assert waits == sorted(waits) and waits[-1] > 2 * waits[0]


def test_the_warm_round_attaches_every_full_page_of_the_shared_part(serving: dict[str, Any], shared_pages: int) -> None:
    assert shared_pages >= 2
    for request in serving["warm"]["requests"]:
        assert request["n_cached"] >= shared_pages * PAGE


def test_more_chats_than_streams(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "demo", "serving", MODEL, "--chats", "6", "--streams", "2", "--new-tokens", "4", "--json")
    told = json.loads(out)
    for name in ROUNDS:
        assert [r["finish"] for r in told[name]["requests"]] == ["length"] * 6
    assert "[cold stream 6] length: 4 tok" in err


def test_digits_show_who_is_written(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One digit per piece: the cold round takes turns, one at a time does not."""
    out, err = run(capsys, "demo", "serving", MODEL, "--ignore-eos", "--new-tokens", "5")
    cold, warm, sequential = out.splitlines()
    assert sequential == "11111222223333344444"
    for line in (cold, warm):
        assert sorted(line) == sorted(sequential)
        assert "1234" in line, "the chats did not advance together"
    for name in ROUNDS:
        assert f"[{name} stream 4] length: 5 tok, ttft" in err
    assert "× as fast as one at a time" in err


def test_replies_may_stop_by_themselves(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "demo", "serving", MODEL, "--chats", "1", "--new-tokens", "40", "--json")
    (request,) = json.loads(out)["cold"]["requests"]
    assert request["finish"] == ("stop" if request["n_gen"] < 40 else "length")
    assert "cached 0 of" in err


def test_prefix(smollm2_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out, err = run(capsys, "demo", "prefix", MODEL, "--json")
    told = json.loads(out)
    cold, warm, release = told["cold"], told["warm"], told["release"]
    assert cold["n_prompt"] > 2 * PAGE and cold["eval_ms"] > 0 and warm["eval_ms"] > 0
    assert 0 < warm["n_cached"] < warm["n_prompt"] and warm["n_cached"] % PAGE == 0
    assert told["held_pages"] == cold["n_prompt"] // PAGE
    assert sum(release.values()) == told["held_pages"]
    assert release == {
        "freed": told["held_pages"] - warm["n_cached"] // PAGE,
        "kept": 0,
        "shared": warm["n_cached"] // PAGE,
    }
    assert err.count("= 64") == 2 and "0 referenced" in err
    assert "every page came back" in err
