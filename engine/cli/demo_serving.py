"""``demo serving``: four chats over one system prompt, the raw mechanism first, then the scheduler three times.

One digit is printed per piece, so that continuous batching can be seen: 123412341234 234234 3434.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from engine.assembly import scheduler_over
from engine.cli.common import add_model_options, check_length, emit, load, note, positive
from engine.port import Turn
from engine.scheduling.events import Finished, Piece
from engine.scheduling.request import Request, SamplingParams

if TYPE_CHECKING:
    from engine.model.language_model import LanguageModel
    from engine.scheduling.scheduler import Scheduler

SYSTEM = (
    "You are a concise assistant at the help desk of a public library. You answer in one or two short sentences, "
    "you stay friendly, and you say so when you do not know something."
)
FIRST_QUESTIONS = (
    "What is the capital of France?",
    "Name three colours of the rainbow.",
    "How many days does a week have?",
    "Which planet is closest to the sun?",
)
NEW_QUESTIONS = (
    "What is the capital of Italy?",
    "Name two animals that can fly.",
    "How many months does a year have?",
    "Which planet has the largest rings?",
)


@dataclass
class Round:
    """One timed round: wall seconds, each request's last event, and how fast the decode phase ran."""

    wall_s: float = 0.0
    served_tok_s: float = 0.0
    finished: list[Finished] = field(default_factory=list)
    texts: dict[int, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The ``R`` of DESIGN, in the order of the requests."""
        rows = sorted(self.finished, key=lambda f: f.stream)
        keys = [
            {
                "n_prompt": f.n_prompt,
                "n_cached": f.n_cached,
                "n_gen": f.n_gen,
                "ttft_ms": f.ttft_us / 1000,
                "finish": f.reason,
            }
            for f in rows
        ]
        return {"wall_s": self.wall_s, "served_tok_s": self.served_tok_s, "requests": keys}


def add_command(commands: Any) -> None:
    """Register ``demo serving``."""
    parser = commands.add_parser("serving", help="four chats at once: raw, cold, one at a time, warm")
    add_model_options(parser)
    parser.add_argument("--chats", type=positive, default=4, metavar="N", help="how many chats (default 4)")
    parser.add_argument("--streams", type=positive, default=4, metavar="N", help="how many run at once (default 4)")
    parser.add_argument(
        "--new-tokens", type=positive, default=64, metavar="N", help="tokens per reply at most (default 64)"
    )
    parser.add_argument("--ignore-eos", action="store_true", help="do not stop at the end token (for measuring)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run all rounds and print them."""
    quiet = arguments.json
    with load(arguments) as model:
        first = chat_requests(model, FIRST_QUESTIONS, arguments)
        again = chat_requests(model, NEW_QUESTIONS, arguments)
        longest = max(len(request.prompt) for request in (*first, *again))
        check_length(longest + arguments.new_tokens, model, "A chat of the demonstration")
        raw = raw_rate(model, first[: arguments.streams], arguments.new_tokens)
        note(f"[raw] eval_batch advances {min(len(first), arguments.streams)} streams at {raw:.0f} tokens/s")
        with scheduler_over(model, max_streams=arguments.streams, max_queue=len(first) + 1) as scheduler:
            cold = serve_round(scheduler, first, quiet=quiet)
            show("cold", cold)
            warm = serve_round(scheduler, again, quiet=quiet)
        with scheduler_over(model, max_streams=1, prefix_cache=False, max_queue=len(first) + 1) as scheduler:
            sequential = serve_round(scheduler, first, quiet=quiet)
        show("sequential", sequential)
        show("warm", warm)
        note(f"batched: {sequential.wall_s / cold.wall_s:.2f} × as fast as one at a time")
    if arguments.json:
        emit(
            {
                "raw": {"tokens_per_s": raw},
                "cold": cold.as_json(),
                "sequential": sequential.as_json(),
                "warm": warm.as_json(),
            }
        )


def chat_requests(model: LanguageModel, questions: Sequence[str], arguments: argparse.Namespace) -> list[Request]:
    """One rendered request per chat; they hold tokens only, no session."""
    renderer = model.renderer()
    requests = []
    for i in range(arguments.chats):
        text = questions[i % len(questions)]
        rendered = renderer.render_prompt([Turn("system", SYSTEM), Turn("user", text)])
        requests.append(
            Request(
                id=i + 1,
                prompt=tuple(rendered.ids),
                max_new=arguments.new_tokens,
                sampling=SamplingParams(),
                stop_ids=frozenset() if arguments.ignore_eos else frozenset(renderer.stop_ids),
                close_tokens=tuple(renderer.render_close()),
                label=text,
                chat=f"chat {i + 1}",
            )
        )
    return requests


def raw_rate(model: LanguageModel, requests: Sequence[Request], new_tokens: int) -> float:
    """Tokens/s of eval_batch and sample alone: every stream reads its prompt, then all advance together."""
    sessions = [model.new_session() for _ in requests]
    try:
        for session, request in zip(sessions, requests, strict=True):
            model.eval(session, request.prompt)
        params = [request.sampling for request in requests]
        start = time.perf_counter()
        for _ in range(new_tokens):
            model.eval_batch(sessions, model.sample_batch(sessions, params))
        return len(requests) * new_tokens / (time.perf_counter() - start)
    finally:
        for session in sessions:
            session.release()


def serve_round(scheduler: Scheduler, requests: Sequence[Request], *, quiet: bool) -> Round:
    """Submit all requests at once and run the scheduler dry.

    ``served_tok_s`` counts the steps that only decode: tokens over the wall time of those steps, the scheduler's own
    time, sampling and text included.
    """
    result = Round()
    start = time.perf_counter()
    for request in requests:
        scheduler.submit(request)
    decoded, decode_s = 0, 0.0
    while scheduler.has_work:
        step_start = time.perf_counter()
        events = scheduler.step()
        report = scheduler.last_report
        if report is not None and report.decoded and not report.prefilled:
            decoded += len(report.decoded)
            decode_s += time.perf_counter() - step_start
        for event in events:
            match event:
                case Piece():
                    result.texts[event.stream] = result.texts.get(event.stream, "") + event.text
                    if not quiet and event.token is not None:
                        print(_digit(event.stream), end="", flush=True)
                case Finished():
                    result.finished.append(event)
    result.wall_s = time.perf_counter() - start
    result.served_tok_s = decoded / decode_s if decode_s else 0.0
    if not quiet:
        print()
    return result


def _digit(stream: int) -> str:
    digits = "123456789abcdefghijklmnopqrstuvwxyz"
    return digits[(stream - 1) % len(digits)]


def show(name: str, result: Round) -> None:
    """One line per stream, as the reference prints them."""
    for f in sorted(result.finished, key=lambda f: f.stream):
        note(
            f"[{name} stream {f.stream}] {f.reason}: {f.n_gen} tok, ttft {f.ttft_us / 1000:.0f} ms, "
            f"cached {f.n_cached} of {f.n_prompt} prompt tokens"
        )
    note(f"[{name}] {result.wall_s:.2f} s, {result.served_tok_s:.0f} tokens/s while decoding")
