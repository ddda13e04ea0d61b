"""How long text takes: building tokenizers, long runs of one kind, rendering a long conversation.

    python tests/bench/text.py [MODEL …]

Prints seconds and, for the long runs, the ratio of 131,072 characters to 65,536 (2 is proportional).
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from engine.catalog import resolve
from engine.gguf import open_gguf
from engine.port import Turn
from engine.text.chat import ChatRenderer
from engine.text.tokenizer import Tokenizer

MODELS = ["smollm2-135m-instruct", "qwen2.5-coder-0.5b-instruct", "gemma-3-270m"]
RUNS = {"Z": "Z", "dots": ".", "blank lines": "\n", "CJK": "你好世界", "text": "The quick brown fox, 12 times. "}


def seconds(work: Callable[[], object], repeats: int) -> float:
    """The shortest of some runs: what other processes do only adds to it."""
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def long_runs(tokenizer: Tokenizer, repeats: int) -> None:
    """Doubling an input; the two sizes are measured in turn, so that both see the same machine."""
    for name, kind in RUNS.items():
        half, whole = (partial(tokenizer.encode, (kind * n)[:n]) for n in (65_536, 131_072))
        pairs = [(seconds(half, 1), seconds(whole, 1)) for _ in range(repeats)]
        ratio = min(b for _, b in pairs) / min(a for a, _ in pairs)
        middle = statistics.median(b / a for a, b in pairs)
        print(f"  {name:12} {min(b for _, b in pairs):7.3f} s  × {ratio:.2f} (median × {middle:.2f})")


def conversation(renderer: ChatRenderer, tokenizer: Tokenizer) -> None:
    """Sixty turns, each with one more question and answer."""
    turns: list[Turn] = []
    for number in range(60):
        turns.append(Turn("user", f"Question {number}: " + RUNS["text"] * 8))
        started = time.perf_counter()
        rendered = renderer.render_prompt(turns)
        elapsed = time.perf_counter() - started
        if number in (0, 1, 10, 30, 59):
            print(f"  turn {number:2}: {len(rendered.ids):6} tokens in {elapsed * 1000:6.1f} ms")
        text = "Answer: " + RUNS["text"] * 8
        turns.append(Turn("assistant", text, tuple(tokenizer.encode(text))))


def main() -> None:
    """Measure each model that is in the cache."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("models", nargs="*", default=MODELS, metavar="MODEL")
    parser.add_argument("--repeats", type=int, default=7)
    arguments = parser.parse_args()
    for name in arguments.models:
        with open_gguf(resolve(name, fetch=False)) as file:
            print(f"{name}: built in {seconds(lambda: Tokenizer.from_metadata(file.metadata), 3):.2f} s")
            tokenizer = Tokenizer.from_metadata(file.metadata)
            renderer = ChatRenderer.from_metadata(tokenizer, file.metadata)
        long_runs(tokenizer, arguments.repeats)
        conversation(renderer, tokenizer)
        renderer.close()


if __name__ == "__main__":
    main()
