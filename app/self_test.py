"""``kvscope --self-test``: does this installation work? No window; the whole engine as the window uses it.

Loads the default model, lets it write one greedy reply, compares the tokens with the known ones, checks that the pool's
books balance and that everything is free after a release. Prints one line of figures; exit code 0 if all is well.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from engine.catalog import resolve
from engine.errors import EngineError
from engine.loop import EngineLoop
from engine.model.loading import load_bundle
from engine.port import ChatJob, EngineState, Failed, LoadOptions, Prepared, Turn
from engine.scheduling.events import Finished, Piece, StepReport

DEFAULT_MODEL = "smollm2-135m-instruct"
LIMIT_S = 300.0
# At each of these tokens the model's first choice leads the second by 1.6 logits or more, several times what any kernel
# path differs by, so every processor must give the same ones.
TURNS = (
    Turn("user", "Repeat: red, green, blue"),
    Turn("assistant", "red, green, blue"),
    Turn("user", "Repeat: 1, 2, 3, 4, 5, 6, 7, 8"),
)
EXPECTED = (33, 28, 216, 34, 28, 216, 35, 28, 216, 36, 28, 216, 37, 28, 216, 38, 28, 216, 39, 28, 216, 40)


class SelfTestError(EngineError):
    """The engine runs, but not as it should."""

    code = "self_test"


class Collector:
    """An ``EngineSink`` that keeps the reply's tokens and whether kernels had to be compiled."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.compiled = False
        self._ended: queue.SimpleQueue[Finished | Failed] = queue.SimpleQueue()

    def on_step(self, report: StepReport) -> None:
        for event in report.events:
            match event:
                case Piece(token=int(token)):
                    self.tokens.append(token)
                case Finished():
                    self._ended.put(event)

    def on_state(self, state: EngineState) -> None:
        self.compiled |= state.stage == "compiling"

    def on_prepared(self, prepared: Prepared) -> None:
        """Nothing to keep."""

    def on_failed(self, failed: Failed) -> None:
        self._ended.put(failed)

    def wait(self) -> Finished:
        """The end of the one stream. Errors: what failed, or that it took too long."""
        try:
            ended = self._ended.get(timeout=LIMIT_S)
        except queue.Empty:
            raise SelfTestError(f"The reply did not end within {LIMIT_S:.0f} s.") from None
        if isinstance(ended, Failed):
            raise SelfTestError(ended.error)
        if ended.reason != "stop":
            raise SelfTestError(f"The reply ended with {ended.reason} instead of stop. {ended.error}".strip())
        return ended


@contextmanager
def running(collector: Collector) -> Iterator[EngineLoop]:
    """An engine on a thread of its own, closed and joined at the end."""
    loop = EngineLoop(collector, load_bundle)
    thread = threading.Thread(target=loop.run, name="kvscope-engine")
    thread.start()
    try:
        yield loop
    finally:
        loop.close()
        thread.join()


def check_pool(loop: EngineLoop) -> str:
    """The pool after the reply, and after everything was released, in words. Errors: ``SelfTestError``."""
    idle = loop.snapshot().result(LIMIT_S)
    loop.release_all().result(LIMIT_S)
    empty = loop.snapshot().result(LIMIT_S)
    for when, snapshot in (("after the reply", idle), ("after the release", empty)):
        counts = snapshot.pool
        if snapshot.integrity:
            raise SelfTestError(f"The pool's books are wrong {when}: {snapshot.integrity}")
        if counts.referenced or counts.free + counts.cached != counts.capacity:
            raise SelfTestError(f"Pages are missing {when}: {counts}.")
    if not idle.pool.cached or empty.pool.cached:
        raise SelfTestError(f"The prefix cache kept {idle.pool.cached} pages, then {empty.pool.cached}.")
    return f"{idle.pool.cached} of {idle.pool.capacity} pages cached, then all free"


def run() -> str:
    """Do it all; returns the line of figures. Errors: ``EngineError``."""
    collector = Collector()
    begin = time.perf_counter()
    with running(collector) as loop:
        loop.load(LoadOptions(str(resolve(DEFAULT_MODEL)))).result(LIMIT_S)
        ready = time.perf_counter() - begin
        loop.chat(ChatJob(id=1, chat="self-test", turns=TURNS, max_new=2 * len(EXPECTED)))
        end = collector.wait()
        if tuple(collector.tokens) != EXPECTED:
            raise SelfTestError(f"The reply's tokens are wrong: {collector.tokens}.")
        pool = check_pool(loop)
    kernels = "compiled" if collector.compiled else "kept from an earlier start"
    rate = (end.n_gen - 1) / max(end.gen_us / 1e6, 1e-6)
    return (
        f"self-test fine: {end.n_gen} tokens as expected, ready after {ready:.1f} s (kernels {kernels}), "
        f"first token {end.ttft_us / 1e3:.0f} ms later, {rate:.0f} tokens/s; {pool}"
    )


def main() -> int:
    """Run the self-test and print its line; 1 with one sentence if something is wrong."""
    try:
        line = run()
    except (EngineError, TimeoutError) as error:
        print(f"self-test failed: {error or 'the engine did not answer'}", file=sys.stderr)
        return 1
    print(line)
    return 0
