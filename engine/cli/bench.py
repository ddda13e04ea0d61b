"""``bench``: prefill, decode and serving rates; with ``--peer`` the same work on the peer in the same run, interleaved.

Ratios are taken pair by pair and their median is printed, so that a machine whose speed drifts disturbs both alike.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from importlib.resources import files
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.assembly import scheduler_over
from engine.cli.common import add_model_options, check_length, emit, load, note, positive
from engine.cli.demo_serving import FIRST_QUESTIONS, chat_requests, raw_rate, serve_round
from engine.cli.profile import profile
from engine.errors import EngineError

if TYPE_CHECKING:
    from engine.model.language_model import LanguageModel

MAX_WIDTH = 1024
DECODE_STEPS = 32
WARM_UP_STEPS = 4
_LEAST_RATE = 1e-9
_PEERS = {"llama.cpp": ("llama_cpp_peer.py", "llama-cpp-python"), "vllm": ("vllm_peer.py", "vllm and gguf")}
"""What a peer's own Python runs, and what has to be installed there."""


def add_command(commands: Any) -> None:
    """Register ``bench``."""
    parser = commands.add_parser("bench", help="measure speed, alone or against a peer")
    add_model_options(parser)
    parser.add_argument("--prefill", type=_numbers, default=[64, 512, 2048], metavar="N,N", help="prompt lengths")
    parser.add_argument("--decode", type=_widths, default=[1, 2, 4, 8, 16], metavar="B,B", help="batch widths")
    parser.add_argument(
        "--decode-context", type=_natural, default=0, metavar="N", help="tokens in KV before decoding starts"
    )
    parser.add_argument("--runs", type=positive, default=3, metavar="N", help="repetitions; medians are reported")
    parser.add_argument("--no-serving", action="store_true", help="leave the serving rounds out")
    parser.add_argument("--peer", choices=tuple(_PEERS), help="measure a peer on the same file in the same run")
    parser.add_argument(
        "--peer-python", default=sys.executable, metavar="PATH", help="the Python that can import the peer"
    )
    parser.add_argument("--profile", action="store_true", help="show where the time of a step goes")
    parser.set_defaults(run=run)


def _numbers(text: str) -> list[int]:
    values = [int(part) for part in text.split(",") if part]
    if not values or min(values) < 1:
        raise argparse.ArgumentTypeError("give positive numbers separated by commas")
    return values


def _natural(text: str) -> int:
    value = int(text)
    if value < 0:
        raise argparse.ArgumentTypeError("must be 0 or more")
    return value


def _widths(text: str) -> list[int]:
    values = _numbers(text)
    if max(values) > MAX_WIDTH:
        raise argparse.ArgumentTypeError(f"streams at once are at most {MAX_WIDTH}")
    return values


def run(arguments: argparse.Namespace) -> None:
    """Measure, print a table, and emit the JSON of DESIGN."""
    arguments.context = arguments.context or max(4096, max(arguments.prefill) + 64)
    with load(arguments) as model:
        check_length(max(arguments.prefill), model, "A prompt of the benchmark")
        check_length(arguments.decode_context + WARM_UP_STEPS + DECODE_STEPS, model, "A stream of the benchmark")
        ours = Ours(model)
        peer = Peer(arguments) if arguments.peer else None
        try:
            result = measure(ours, peer, arguments)
        finally:
            if peer is not None:
                peer.close()
        if not arguments.no_serving:
            result["ours"]["serving"] = serving(model)
        if arguments.profile:
            result["profile"] = profile(model)
    if arguments.json:
        emit(result)


def measure(ours: Ours, peer: Peer | None, arguments: argparse.Namespace) -> dict[str, Any]:
    """All prefill and decode rows, ours and the peer's in turn."""
    result: dict[str, Any] = {"ours": {"prefill": {}, "decode": {}}, "peer": None, "ratio": None}
    if peer is not None:
        result["peer"] = {"prefill": {}, "decode": {}}
        result["ratio"] = {"prefill": {}, "decode": {}}
    rows = [("prefill", n) for n in arguments.prefill] + [("decode", b) for b in arguments.decode]
    for kind, size in rows:

        def work(subject: Ours | Peer, kind: str = kind, size: int = size) -> float:
            return subject.prefill(size) if kind == "prefill" else subject.decode(size, arguments.decode_context)

        work(ours)
        pairs = []
        for _ in range(arguments.runs):
            mine = work(ours)
            pairs.append((mine, work(peer) if peer is not None else None))
        line = _record(result, kind, size, pairs)
        note(line)
    return result


def _record(result: dict[str, Any], kind: str, size: int, pairs: list[tuple[float, float | None]]) -> str:
    """Enter one row's medians and put it into words."""
    mine = median(a for a, _ in pairs)
    result["ours"][kind][str(size)] = mine
    label = f"{kind} {'B=' if kind == 'decode' else ''}{size}"
    theirs = [(a, b) for a, b in pairs if b is not None]
    if not theirs:
        return f"{label:<14} {mine:9.0f} tokens/s"
    other = median(b for _, b in theirs)
    ratio = median(a / b for a, b in theirs)
    result["peer"][kind][str(size)] = other
    result["ratio"][kind][str(size)] = ratio
    return f"{label:<14} {mine:9.0f} tokens/s   peer {other:9.0f}   ratio {ratio:6.2f}"


class Ours:
    """Our engine as a subject: random tokens, one flat session per stream."""

    def __init__(self, model: LanguageModel) -> None:
        self.model = model
        self.rng = np.random.default_rng(0)

    def prefill(self, n: int) -> float:
        """Tokens/s of reading ``n`` tokens into an empty session."""
        tokens = self.rng.integers(5, self.model.n_vocab, n).tolist()
        with self.model.new_session() as session:
            start = time.perf_counter()
            self.model.eval(session, tokens)
            return n / (time.perf_counter() - start)

    def decode(self, width: int, context: int = 0) -> float:
        """Tokens/s of ``width`` streams advancing together, each after ``context`` tokens."""
        sessions = [self.model.new_session() for _ in range(width)]
        try:
            if context:
                for session in sessions:
                    self.model.eval(session, self.rng.integers(5, self.model.n_vocab, context).tolist())
            start = 0.0
            for step in range(DECODE_STEPS + WARM_UP_STEPS):
                if step == WARM_UP_STEPS:
                    start = time.perf_counter()
                self.model.eval_batch(sessions, self.rng.integers(5, self.model.n_vocab, width).tolist())
            return width * DECODE_STEPS / (time.perf_counter() - start)
        finally:
            for session in sessions:
                session.release()


class Peer:
    """The peer as a subject, in a process of its own Python; it answers one JSON line per question."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        from engine.catalog import resolve

        name, self._needs = _PEERS[arguments.peer]
        script = str(files("engine.cli") / name)
        threads = str(arguments.threads or len(_available_cpus()))
        streams = max(arguments.decode)
        tokens = streams * (arguments.decode_context + WARM_UP_STEPS + DECODE_STEPS)
        sizes = threads, str(arguments.context), str(streams), str(max(arguments.context, tokens))
        command = [arguments.peer_python, script, str(resolve(arguments.model)), *sizes]
        if not shutil.which(arguments.peer_python):
            raise EngineError(f"{arguments.peer_python} is no program; give --peer-python the peer's own Python.")
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            self._ask({"ping": 1})
        except BaseException:
            self.close()
            raise

    def prefill(self, n: int) -> float:
        """Tokens/s of reading ``n`` tokens."""
        return self._ask({"prefill": n})

    def decode(self, width: int, context: int = 0) -> float:
        """Tokens/s of ``width`` sequences advancing together."""
        return self._ask({"decode": width, "context": context, "steps": DECODE_STEPS, "warm_up": WARM_UP_STEPS})

    def _ask(self, question: dict[str, int]) -> float:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        except BrokenPipeError:
            answer = ""
        if not answer:
            raise EngineError(
                f"The peer ended early; check that --peer-python has {self._needs} and that it can read this model."
            )
        try:
            return max(float(json.loads(answer)["rate"]), _LEAST_RATE)
        except (ValueError, KeyError, TypeError) as error:
            raise EngineError(f"The peer answered “{answer.strip()[:80]}”; --peer-python must be a Python.") from error

    def close(self) -> None:
        """End the peer's process."""
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):  # it has ended already
                self._process.stdin.close()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()


def _available_cpus() -> set[int] | range:
    import os

    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)


def serving(model: LanguageModel) -> dict[str, float]:
    """Four chats over one system prompt, 64 new tokens each, nothing cached: batched against one at a time."""
    options = argparse.Namespace(chats=4, new_tokens=64, ignore_eos=True)
    requests = chat_requests(model, FIRST_QUESTIONS, options)
    batched, sequential, raw, served = [], [], [], []
    for _ in range(3):
        raw.append(raw_rate(model, requests, options.new_tokens))
        with scheduler_over(model, max_streams=4) as scheduler:
            together = serve_round(scheduler, requests, quiet=True)
        with scheduler_over(model, max_streams=1, prefix_cache=False) as scheduler:
            alone = serve_round(scheduler, requests, quiet=True)
        batched.append(together.wall_s)
        served.append(together.served_tok_s)
        sequential.append(alone.wall_s)
    speedup = median(s / b for s, b in zip(sequential, batched, strict=True))
    share = median(s / r for s, r in zip(served, raw, strict=True))
    note(
        f"four chats     {speedup:.2f} × faster batched than one at a time; serving at {share:.2f} of eval_batch's rate"
    )
    return {
        "batched_s": median(batched),
        "sequential_s": median(sequential),
        "raw_tok_s": median(raw),
        "served_tok_s": median(served),
    }
