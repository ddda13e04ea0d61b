"""Waiting times: ``python -m tests.bench.latency [MODEL] [--json]``. Run by hand, on a quiet machine.

- first token: of a prompt of 1,044 tokens cold, of another with the same first 1,024 (warm), and of 20 tokens cold.
- gaps: milliseconds between the tokens of running chats, alone and while a prompt of 4,000 tokens is read.
- load: from the file to the first token of 20, kernels cached and file in the page cache; parsing its header.
- memory: growth of the resident set by a loaded model that has read 4,000 tokens.
- first start: the same command in a fresh process with nothing compiled, and again (``--first-start``; a minute).

Medians of several rounds; the percentiles are over all gaps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.assembly import scheduler_over
from engine.catalog import resolve
from engine.gguf import open_gguf
from engine.model.language_model import load_model
from engine.model.memory import weights_bytes
from engine.scheduling.events import Piece
from engine.scheduling.request import Request

if TYPE_CHECKING:
    from engine.model.language_model import LanguageModel
    from engine.scheduling.scheduler import Scheduler

ROUNDS = 5
SHARED, TAIL = 1_024, 20
LONG_PROMPT = 4_000
WIDTHS = (1, 4, 8)
ROOT = Path(__file__).parents[2]


class Prompts:
    """Random prompts and requests with ids of their own."""

    def __init__(self, n_vocab: int) -> None:
        self._rng, self._n_vocab, self._id = np.random.default_rng(1), n_vocab, 0

    def tokens(self, n: int) -> tuple[int, ...]:
        """``n`` random tokens."""
        return tuple(self._rng.integers(5, self._n_vocab, n).tolist())

    def request(self, prompt: tuple[int, ...], max_new: int = 1) -> Request:
        """A greedy request that only length ends."""
        self._id += 1
        return Request(self._id, prompt, max_new=max_new)


def first_token_s(scheduler: Scheduler, request: Request) -> float:
    """Seconds from submitting to the first token."""
    start = time.perf_counter()
    scheduler.submit(request)
    while True:
        for event in scheduler.step():
            if isinstance(event, Piece) and event.stream == request.id:
                return time.perf_counter() - start


def first_tokens(model: LanguageModel) -> dict[str, float]:
    """Cold, warm and short first tokens in milliseconds, by turns, and the two ratios."""
    prompts = Prompts(model.n_vocab)
    cold: list[float] = []
    warm: list[float] = []
    short: list[float] = []
    with scheduler_over(model) as scheduler:
        for _ in range(ROUNDS + 1):
            shared = prompts.tokens(SHARED)
            for times, prompt in (
                (cold, shared + prompts.tokens(TAIL)),
                (warm, shared + prompts.tokens(TAIL)),
                (short, prompts.tokens(TAIL)),
            ):
                times.append(first_token_s(scheduler, prompts.request(prompt)))
                while scheduler.has_work:
                    scheduler.step()
    cold_s, warm_s, short_s = (float(np.median(times[1:])) for times in (cold, warm, short))
    return {
        "cold_ms": 1e3 * cold_s,
        "warm_ms": 1e3 * warm_s,
        "short_ms": 1e3 * short_s,
        "warm_to_cold": warm_s / cold_s,
        "warm_to_short": warm_s / short_s,
    }


def gaps(model: LanguageModel, width: int) -> dict[str, float]:
    """Gaps between the tokens of ``width`` chats: p50 alone (the mean of before and after); p50, p95 and the longest
    while a long prompt is read."""
    prompts = Prompts(model.n_vocab)
    with scheduler_over(model, max_streams=width + 1) as scheduler:
        for _ in range(width):
            scheduler.submit(prompts.request(prompts.tokens(64), max_new=7_000))
        while scheduler.last_report is None or len(scheduler.last_report.decoded) < width:
            scheduler.step()
        before = _step_times(scheduler, lambda n: n < 60)
        reader = prompts.request(prompts.tokens(LONG_PROMPT))
        scheduler.submit(reader)
        start = time.perf_counter()
        reading = _step_times(scheduler, lambda _: any(s.stream == reader.id for s in scheduler.states()))
        read_s = time.perf_counter() - start
        after = _step_times(scheduler, lambda n: n < 60)
    p50 = float(np.median(before) + np.median(after)) / 2  # the chats have grown meanwhile
    p95 = float(np.percentile(reading, 95))
    return {
        "alone_p50_ms": 1e3 * p50,
        "reading_p50_ms": 1e3 * float(np.median(reading)),
        "reading_p95_ms": 1e3 * p95,
        "reading_longest_ms": 1e3 * max(reading),
        "p95_to_p50": p95 / p50,
        "prompt_tok_s": LONG_PROMPT / read_s,
    }


def _step_times(scheduler: Scheduler, goes_on: Any) -> list[float]:
    """Durations of steps; every running chat gets a token in each, so they are the gaps."""
    times: list[float] = []
    while goes_on(len(times)):
        start = time.perf_counter()
        scheduler.step()
        times.append(time.perf_counter() - start)
    return times


def load_times(path: Path) -> dict[str, float]:
    """Seconds of parsing the header, and from the file to a first token."""
    parse, first = [], []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        with open_gguf(path):
            parse.append(time.perf_counter() - start)
        start = time.perf_counter()
        with load_model(path) as model, scheduler_over(model) as scheduler:
            prompts = Prompts(model.n_vocab)
            first_token_s(scheduler, prompts.request(prompts.tokens(TAIL)))
            first.append(time.perf_counter() - start)
    return {"header_s": float(np.median(parse)), "first_token_s": float(np.median(first))}


def memory(path: Path) -> dict[str, float]:
    """Megabytes: growth of the resident set by loading and by reading a long prompt, file, packed weights, KV."""
    before = _resident()
    with load_model(path) as model, scheduler_over(model) as scheduler:
        prompts = Prompts(model.n_vocab)
        first_token_s(scheduler, prompts.request(prompts.tokens(LONG_PROMPT)))
        grown = _resident() - before
        kv = LONG_PROMPT * model.kv_spec.row_bytes
        weights = weights_bytes(model.program)
        return {
            "grown_mb": grown / 1e6,
            "weights_mb": weights / 1e6,
            "kv_mb": kv / 1e6,
            "allowed_mb": (1.25 * weights + kv) / 1e6 + 350,
        }


def _resident() -> int:
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def first_start(path: Path) -> dict[str, float]:
    """Seconds of ``generate`` for one token: with an empty kernel cache, and again."""
    command = [sys.executable, "-m", "engine", "generate", str(path), "--prompt", "Hello", "--max-new", "1"]
    with tempfile.TemporaryDirectory() as folder:
        times = []
        for _ in range(2):
            start = time.perf_counter()
            environment = {**os.environ, "NUMBA_CACHE_DIR": folder}
            subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True)
            times.append(time.perf_counter() - start)
    return {"first_s": times[0], "second_s": times[1]}


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.latency", description="Waiting times.")
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--json", action="store_true", help="print JSON instead of lines")
    parser.add_argument("--first-start", action="store_true", help="also with an empty kernel cache")
    options = parser.parse_args()
    path = resolve(options.model)
    result: dict[str, dict[str, float]] = {"load": load_times(path), "memory": memory(path)}
    with load_model(path) as model:
        result["first token"] = first_tokens(model)
        for width in WIDTHS:
            result[f"gaps B={width}"] = gaps(model, width)
    if options.first_start:
        result["start"] = first_start(path)
    if options.json:
        print(json.dumps(result))
    else:
        for name, figures in result.items():
            print(f"{name:<12} " + ", ".join(f"{key} {value:.3g}" for key, value in figures.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
