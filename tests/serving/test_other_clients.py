"""Clients other than the openai package: ``llm``, a Prometheus scrape, and what the window shows as JSON."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import openai
import pytest

from tests.serving.conftest import MODEL
from tests.serving.harness import WAIT_S, Served, until

STORY = "The lighthouse of Alexandria, told by the ships that it brought home: one, two"
SAMPLE = re.compile(r"^(?P<name>[a-z0-9_:]+)\{(?P<labels>[^}]*)\} (?P<value>\S+)$")


def run_llm(real: Served, home: Path, *arguments: str) -> str:
    """What the command line client ``llm`` prints, set up as its manual says for servers like this one."""
    home.mkdir(exist_ok=True)
    (home / "extra-openai-models.yaml").write_text(
        f'- model_id: here\n  model_name: {MODEL}\n  api_base: "{real.url}"\n', encoding="utf-8"
    )
    environment = {**os.environ, "LLM_USER_PATH": str(home), "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-m", "llm", "-m", "here", "-o", "temperature", "0", *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("how", [(), ("--no-stream",)])
def test_llm_chats(real: Served, tmp_path: Path, how: tuple[str, ...]) -> None:
    assert run_llm(real, tmp_path / "llm", *how, "What is the capital of France?") == "The capital of France is Paris."


def test_metrics_are_what_prometheus_reads(real: Served, client: openai.OpenAI) -> None:
    def scrape() -> dict[str, float]:
        with real.client() as plain:
            answer = plain.get("/metrics")
        assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = {}
        for line in answer.text.splitlines():
            if line.startswith("#"):
                assert re.match(r"# (HELP|TYPE) [a-z_:0-9]+ \S", line)
                continue
            match = SAMPLE.match(line)
            assert match, line
            key = match["name"] + "".join(re.findall(r',(?:le|finished_reason)="[^"]+"', match["labels"]))
            found[key] = float(match["value"])
        return found

    before = scrape()
    usage = client.completions.create(model=MODEL, prompt="1, 2, 3,", temperature=0, max_tokens=7).usage
    after = scrape()

    def grew(name: str) -> float:
        return after[name] - before[name]

    assert grew("vllm:generation_tokens_total") == usage.completion_tokens == 7
    assert grew("vllm:prompt_tokens_total") == usage.prompt_tokens
    assert grew('vllm:request_success_total,finished_reason="length"') == 1
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time"):
        assert grew(f"vllm:{name}_seconds_count") == grew(f'vllm:{name}_seconds_bucket,le="+Inf"') == 1
    assert grew("vllm:inter_token_latency_seconds_count") == 6
    assert after["vllm:num_requests_running"] == after["vllm:num_requests_waiting"] == 0
    pages = sum(after[f"kvscope:pages_{state}"] for state in ("free", "cached", "referenced"))
    assert pages == real.snapshot().pool.capacity


def test_streams_and_chains_as_json(real: Served) -> None:
    with real.client() as plain, openai.OpenAI(base_url=real.url, api_key="none", max_retries=0) as client:
        stream = client.completions.create(
            model=MODEL,
            prompt=STORY,
            max_tokens=3000,
            stream=True,
        )
        next(iter(stream))
        (running,) = plain.get("/v1/streams").json()["streams"]
        assert (running["chat"], running["phase"]) == ("API", "decoding")
        assert running["label"] == STORY
        assert running["n_read"] == running["n_prompt"] and running["pages"]
        stream.close()
        real.idle()
        stats = plain.get("/v1/stats").json()
    assert (stats["integrity"], stats["model"]) == ("ok", MODEL)
    assert any(chain["label"] == running["label"] and chain["chat"] == "API" for chain in stats["chains"])
    pool = stats["pool"]
    assert pool["free"] + pool["cached"] + pool["referenced"] == pool["capacity"]


def test_the_command_serves_and_ends_cleanly(smollm2_path: Path) -> None:
    command = [sys.executable, "-m", "engine", "serve", str(smollm2_path), "--port", "0", "--json"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None and process.stderr is not None
        first = process.stdout.readline()
        assert first, process.stderr.read()
        told = json.loads(first)
        assert told["model"] == MODEL
        with openai.OpenAI(base_url=told["url"], api_key="none", max_retries=0) as client:
            reply = client.completions.create(model=told["model"], prompt="1, 2, 3,", temperature=0, max_tokens=2)
        assert reply.choices[0].text == " 4"
        process.send_signal(signal.SIGTERM)
        assert process.wait(WAIT_S) == 0
        said = process.stderr.read()
    finally:
        process.kill()
        process.communicate()
    assert told["url"] in said and "Traceback" not in said


def test_the_command_refuses_to_open_the_machine_without_a_key() -> None:
    command = [sys.executable, "-m", "engine", "serve", MODEL, "--host", "0.0.0.0"]
    environment = {name: value for name, value in os.environ.items() if name != "KVSCOPE_API_KEY"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "API key" in done.stderr and "Traceback" not in done.stderr


def test_nobody_waits_after_all_this(real: Served) -> None:
    assert until(lambda: real.server.busy, lambda busy: busy == 0) == 0
    assert real.idle().integrity == ""
