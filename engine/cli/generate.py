"""``generate``: one reply, streamed to the terminal."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from engine.assembly import scheduler_over
from engine.cli.common import add_model_options, emit, load, note, positive
from engine.port import Turn
from engine.scheduling.events import Finished, Piece
from engine.scheduling.request import Request, SamplingParams


def add_command(commands: Any) -> None:
    """Register ``generate``."""
    parser = commands.add_parser("generate", help="write one reply")
    add_model_options(parser)
    parser.add_argument("--prompt", required=True, help="the text to go on from, or the user's message with --chat")
    parser.add_argument("--chat", action="store_true", help="put the prompt into the model's chat template")
    parser.add_argument("--system", default="", help="a system message (with --chat)")
    parser.add_argument("--greedy", action="store_true", help="always take the likeliest token")
    parser.add_argument("--seed", type=int, help="make the draws repeatable")
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--max-new", type=positive, default=256, metavar="N", help="tokens to write at most")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Read the prompt, write the reply, report timings."""
    with load(arguments) as model:
        renderer = model.renderer()
        if arguments.chat:
            system = [Turn("system", arguments.system)] if arguments.system else []
            prompt = list(renderer.render_prompt([*system, Turn("user", arguments.prompt)]).ids)
        else:
            prompt = model.encode_prompt(arguments.prompt)
        sampling = SamplingParams(
            temperature=0.0 if arguments.greedy else arguments.temperature, top_p=0.95, min_p=0.05, seed=arguments.seed
        )
        request = Request(
            id=1,
            prompt=tuple(prompt),
            max_new=arguments.max_new,
            sampling=sampling,
            stop_ids=frozenset(renderer.stop_ids),
        )
        result = _stream(model, request, quiet=arguments.json)
    if arguments.json:
        emit(result)


def _stream(model: Any, request: Request, *, quiet: bool) -> dict[str, Any]:
    """Run one request through a scheduler of its own; the ``generate`` JSON of DESIGN."""
    text: list[str] = []
    ids: list[int] = []
    with scheduler_over(model, max_streams=1, prefix_cache=False) as scheduler:
        scheduler.submit(request)
        while scheduler.has_work:
            for event in scheduler.step():
                match event:
                    case Piece():
                        text.append(event.text)
                        if event.token is not None:
                            ids.append(event.token)
                        if not quiet:
                            sys.stdout.write(event.text)
                            sys.stdout.flush()
                    case Finished():
                        finished = event
    rate = (finished.n_gen - 1) / (finished.gen_us / 1e6) if finished.n_gen > 1 and finished.gen_us else 0.0
    if not quiet:
        sys.stdout.write("\n")
        note(
            f"[{finished.reason}] {finished.n_prompt} prompt + {finished.n_gen} tokens, first after "
            f"{finished.ttft_us / 1000:.0f} ms, {rate:.0f} tokens/s"
        )
    if finished.reason == "error":
        from engine.errors import EngineError

        raise EngineError(finished.error)
    return {
        "text": "".join(text),
        "ids": ids,
        "n_prompt": finished.n_prompt,
        "n_cached": finished.n_cached,
        "finish": finished.reason,
        "ttft_ms": finished.ttft_us / 1000,
        "tokens_per_s": rate,
    }
