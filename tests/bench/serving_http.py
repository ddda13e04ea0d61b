"""What serving costs: parallel streams through the openai client against the same requests given to the scheduler.

Run it with the environment's Python::

    python -m tests.bench.serving_http [MODEL] [--streams 16] [--tokens 128] [--rounds 5]

The client is a process of its own. Both ways take turns in one run on one model, each from an empty prefix cache;
figures are medians of generated tokens per second, prompts included, and their ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import subprocess
import sys
import threading
import time
from typing import Any

from engine.scheduling.request import SamplingParams
from engine.serving.messages import Wanted

PROMPT = "Story number {number}. Once upon a time, in a town by the sea, a keeper of {number} lighthouses, who"


def main() -> int:
    """Compare, or be the client."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?", default="smollm2-135m-instruct")
    parser.add_argument("--streams", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flush", type=float, help="seconds between two chunks of a stream")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--client", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.client:
        asyncio.run(be_client(arguments.client))
        return 0
    return compare(arguments)


def compare(arguments: argparse.Namespace) -> int:
    """Rounds of both ways in turn."""
    from engine.catalog import resolve
    from engine.cli.serve import SWITCH_S
    from engine.loop import EngineLoop
    from engine.model.loading import load_bundle
    from engine.port import LoadOptions
    from engine.serving.options import ServerOptions
    from engine.serving.server import Server
    from engine.serving.sinks import SinkFan

    sys.setswitchinterval(SWITCH_S)
    fan = SinkFan()
    loop = EngineLoop(fan, load_bundle)
    worker = threading.Thread(target=loop.run)
    worker.start()
    flush = {} if arguments.flush is None else {"flush_s": arguments.flush}
    server = Server(loop, fan.attach, ServerOptions(port=0, **flush))
    try:
        loop.load(LoadOptions(str(resolve(arguments.model)), max_streams=arguments.streams)).result()
        server.start()
        report(arguments, *take_turns(arguments, loop, server.url))
    finally:
        server.stop(0.0)
        loop.close()
        worker.join()
    return 0


def take_turns(arguments: argparse.Namespace, loop: Any, url: str) -> tuple[list[float], list[float], list[float]]:
    """Tokens per second of each round: direct, served; and the client's own seconds of processor time."""
    direct, served, cpu = [], [], []
    command = [sys.executable, "-m", "tests.bench.serving_http", "--client", url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None and client.stdout is not None
        for number in range(arguments.rounds + 1):
            prompts = [PROMPT.format(number=number * 100 + i) for i in range(arguments.streams)]
            tokens, seconds = run_direct(loop.bundle, prompts, arguments.tokens)
            until_idle(loop)
            client.stdin.write(json.dumps({"prompts": prompts, "tokens": arguments.tokens}) + "\n")
            client.stdin.flush()
            told = json.loads(client.stdout.readline())
            until_idle(loop)
            if told["tokens"] != tokens:
                raise SystemExit(f"The client got {told['tokens']} tokens, the scheduler wrote {tokens}.")
            if number:  # the first round warms up
                direct.append(tokens / seconds)
                served.append(told["tokens"] / told["seconds"])
                cpu.append(told["cpu"])
        client.stdin.close()
    return direct, served, cpu


def until_idle(loop: Any) -> None:
    """Wait until the loop has nothing left to compute (a model is used by one thread at a time); empty its cache."""
    while loop.snapshot().result().pool.referenced:
        time.sleep(0.01)
    loop.release_all().result()


def run_direct(bundle: Any, prompts: list[str], new: int) -> tuple[int, float]:
    """The same requests in a scheduler of their own, while the loop has nothing to do: tokens and seconds."""
    from engine.assembly import scheduler_over
    from engine.scheduling.events import Finished
    from engine.serving.prompts import plain_request

    wanted = Wanted(SamplingParams(), new, (), True, False, None, None)
    with scheduler_over(bundle.evaluator, max_streams=len(prompts), max_queue=len(prompts)) as scheduler:
        start, tokens = time.perf_counter(), 0
        for number, prompt in enumerate(prompts):
            scheduler.submit(plain_request(bundle, number, prompt, wanted))
        while scheduler.has_work:
            tokens += sum(event.n_gen for event in scheduler.step() if isinstance(event, Finished))
        return tokens, time.perf_counter() - start


async def be_client(url: str) -> None:
    """Read rounds from stdin, stream each prompt with the openai package, and tell how long it took."""
    import openai

    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:

        async def one(prompt: str, new: int) -> int:
            stream = await client.completions.create(
                model="default",
                prompt=prompt,
                max_tokens=new,
                temperature=0,
                stream=True,
                stream_options={"include_usage": True},
            )
            usage = None
            async for chunk in stream:
                usage = chunk.usage or usage
            assert usage is not None
            return usage.completion_tokens

        for line in sys.stdin:
            asked = json.loads(line)
            start, cpu = time.perf_counter(), time.process_time()
            counts = await asyncio.gather(*(one(prompt, asked["tokens"]) for prompt in asked["prompts"]))
            told = {"tokens": sum(counts), "seconds": time.perf_counter() - start, "cpu": time.process_time() - cpu}
            print(json.dumps(told), flush=True)


def report(arguments: argparse.Namespace, direct: list[float], served: list[float], cpu: list[float]) -> None:
    """Medians and their ratio."""
    a, b = statistics.median(direct), statistics.median(served)
    if arguments.json:
        print(json.dumps({"direct": a, "served": b, "ratio": b / a, "rounds": {"direct": direct, "served": served}}))
        return
    print(f"{arguments.streams} streams of {arguments.tokens} tokens, median of {len(direct)} rounds")
    print(f"scheduler alone   {a:7.0f} tokens/s   {' '.join(f'{x:.0f}' for x in direct)}")
    print(f"openai over HTTP  {b:7.0f} tokens/s   {' '.join(f'{x:.0f}' for x in served)}")
    print(f"ratio {b / a:.3f}; the client's own processor time {statistics.median(cpu):.2f} s a round")


if __name__ == "__main__":
    sys.exit(main())
