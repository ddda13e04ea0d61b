"""What the window costs: ``python -m tests.bench.window_load`` (an Xvfb is started for it). Run by hand.

- streams: eight tabs stream, all docks visible, while the prompt of a ninth, 4,000 tokens, is read; in turn with the
  same requests on a bare scheduler in the same process. Tokens per second, and a heartbeat on the UI thread.
- idle: CPU while nothing happens, of this process and of the X server.
- long: a reply of 20,000 tokens with a table of 200 rows, 1,000 tokens a second; the heartbeat meanwhile.
- start: seconds from the start of the program to a usable window with 500 chats stored.

``--json`` prints the figures as JSON instead of a table; ``--profile FILE`` keeps a cProfile of the UI thread.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from tests.bench.desktop import Heartbeat, cpu_of, rest_for, run_until, screen

if TYPE_CHECKING:
    from engine.scheduling.events import StepReport
    from engine.scheduling.request import Request
    from tests.gui.real_engine import RealWindow

ROOT = Path(__file__).parents[2]
PARTS = ("streams", "idle", "long", "start")
STREAMS = 8
LONG_PROMPT = 4_000
LONG_REPLY = 20_000
WARM_STEPS = 8
"""Steps in which all chats decode before the long prompt comes."""
CHATS = 500


@contextmanager
def profiled(path: str | None) -> Iterator[None]:
    """Profile this thread during the block."""
    if path is None:
        yield
        return
    profile = cProfile.Profile()
    with profile:
        yield
    profile.dump_stats(path)


@dataclass(frozen=True)
class Speed:
    """Tokens/s of generation over a whole round, and while the long prompt is read; and how fast that is read."""

    whole: float
    reading: float
    prompt: float


def speed_of(steps: Sequence[StepReport], reader: int) -> Speed:
    """The speed of a round in which stream ``reader`` reads the long prompt."""

    def rate(part: Sequence[StepReport], count: int) -> float:
        return count / (part[-1].started + part[-1].duration_us / 1e6 - part[0].started)

    first = next(i for i, step in enumerate(steps) if len(step.decoded) == STREAMS)
    reads = [i for i, step in enumerate(steps) if any(stream == reader for stream, _ in step.prefilled)]
    whole, reading = steps[first:], steps[reads[0] : reads[-1] + 1]
    n_read = sum(n for step in reading for stream, n in step.prefilled if stream == reader)
    return Speed(
        rate(whole, sum(len(step.decoded) for step in whole)),
        rate(reading, sum(len(step.decoded) for step in reading)),
        rate(reading, n_read),
    )


class Endless:
    """A renderer whose replies are ended by their limit alone."""

    stop_ids: frozenset[int] = frozenset()

    def __init__(self, renderer: Any) -> None:
        self.render_prompt = renderer.render_prompt
        self.render_close = renderer.render_close


class Streams:
    """The same requests on a bare scheduler and in the window."""

    def __init__(self, model: Any, new_tokens: int) -> None:
        self.model = model
        self.new_tokens = new_tokens
        self.bundle: Any = None
        self.heartbeat = Heartbeat()
        self.ui_s = 0.0
        """CPU seconds of the UI thread in the window's rounds."""

    def load(self, options: Any, progress: Any) -> Any:
        """The loader of the window's engine."""
        from tests.gui.real_engine import SharedBundle

        self.bundle = SharedBundle(self.model, options)
        self.bundle.renderer = Endless(self.model.renderer())
        return self.bundle

    def texts(self, number: int) -> list[str]:
        """What the chats of a round say, the long one last."""
        short = [f"Round {number}: tell me {i} long stories about ships and the sea." for i in range(STREAMS)]
        return [*short, f"Round {number}. " + "The quick brown fox jumps over the lazy dog. " * (LONG_PROMPT // 10)]

    def requests(self, number: int) -> list[Request]:
        """A round as requests."""
        from engine.hosting.prepare import prepare
        from engine.port import ChatJob, Turn

        jobs = (
            ChatJob(i, f"chat {i}", (Turn("user", text),), max_new=self._limit(i))
            for i, text in enumerate(self.texts(number))
        )
        return [prepare(self.bundle, job)[1] for job in jobs]

    def _limit(self, i: int) -> int:
        return self.new_tokens if i < STREAMS else 1

    def headless(self, number: int) -> Speed:
        """One round without the window."""
        from engine.assembly import scheduler_over

        *chats, long = self.requests(number)
        steps: list[StepReport] = []
        with scheduler_over(self.model, max_streams=STREAMS + 1) as scheduler:

            def step() -> None:
                scheduler.step()
                assert scheduler.last_report is not None
                steps.append(scheduler.last_report)

            for request in chats:
                scheduler.submit(request)
            while sum(len(report.decoded) == STREAMS for report in steps) < WARM_STEPS:
                step()
            scheduler.submit(long)
            while scheduler.has_work:
                step()
        return speed_of(steps, long.id)

    def in_window(self, window: RealWindow, number: int) -> Speed:
        """One round in nine tabs."""
        window.bridge.port.release_all().result()
        for chat in window.window.tabs.open_chats():
            window.window.tabs.close_chat(chat)
        window.steps.clear()
        replies = []
        *texts, long = self.texts(number)
        chats = [self._new_chat(window, i) for i in range(STREAMS + 1)]
        used = time.thread_time()
        with self.heartbeat.beating():
            for chat, text in zip(chats, texts, strict=False):
                replies.append(window.send(text, chat))
            run_until(
                lambda: sum(len(step.decoded) == STREAMS for step in window.steps) >= WARM_STEPS, window.bridge.step
            )
            replies.append(window.send(long, chats[-1]))
            reader = window.live(chats[-1]).stream
            run_until(lambda: not any(reply.is_open for reply in replies), window.bridge.step)
        self.ui_s += time.thread_time() - used
        return speed_of(window.steps, reader)

    def _new_chat(self, window: RealWindow, i: int) -> str:
        chat = window.new_chat(max_new=self._limit(i))
        window.controller.rename(chat, f"Chat {i + 1}")
        return chat


def bench_streams(arguments: argparse.Namespace, server: int) -> dict[str, Any]:
    """The parts ``streams`` and ``idle``, which need the real engine."""
    from app.application import give_way
    from app.settings.values import EngineSettings
    from engine.catalog import resolve
    from engine.model.language_model import load_model
    from tests.gui.real_engine import real_window

    figures: dict[str, Any] = {}
    path = resolve("smollm2-135m-instruct")
    options = EngineSettings(max_streams=STREAMS + 1)
    with load_model(path) as model, tempfile.TemporaryDirectory() as folder:
        streams = Streams(model, arguments.tokens)
        with real_window(Path(folder), streams.load, str(path), engine=options) as window:
            give_way()  # as the application does
            docks = (window.window.sidebar_dock, window.window.cache_dock, window.window.engine_dock)
            assert all(dock.isVisible() for dock in docks)
            if "streams" in arguments.parts:
                streams.headless(-1)
                bare, shown, drawn = [], [], cpu_of(server)
                for number in range(arguments.rounds):
                    bare.append(streams.headless(2 * number))
                    with profiled(arguments.profile):
                        shown.append(streams.in_window(window, 2 * number + 1))
                figures["streams"] = compare(bare, shown) | {
                    "heartbeat": streams.heartbeat.figures(),
                    "ui_cpu_s": streams.ui_s / arguments.rounds,
                    "x_cpu_s": (cpu_of(server) - drawn) / arguments.rounds,
                }
            if "idle" in arguments.parts:
                figures["idle"] = bench_idle(arguments.idle, server)
    return figures


def compare(bare: Sequence[Speed], shown: Sequence[Speed]) -> dict[str, Any]:
    """Medians, and the median of the ratios round by round."""
    figures: dict[str, Any] = {}
    for name in ("whole", "reading", "prompt"):
        pairs = [(getattr(a, name), getattr(b, name)) for a, b in zip(bare, shown, strict=True)]
        figures[name] = {
            "headless": median(a for a, _ in pairs),
            "window": median(b for _, b in pairs),
            "ratio": median(b / a for a, b in pairs),
            "ratios": [b / a for a, b in pairs],
        }
    return figures


def bench_idle(seconds: float, server: int) -> dict[str, float]:
    """CPU of a second, in percent of one core, when everything is at rest."""
    rest_for(7.0)
    mine, its, begun = time.process_time(), cpu_of(server), time.perf_counter()
    rest_for(seconds)
    spent = time.perf_counter() - begun
    return {
        "window_percent": 100 * (time.process_time() - mine) / spent,
        "x_server_percent": 100 * (cpu_of(server) - its) / spent,
    }


def reply_pieces() -> Iterator[str]:
    """20,000 tokens: prose, code, a list, and a table of 200 rows."""
    table = "\n| n | name | square | cube | note |\n|---|---|---|---|---|\n" + "".join(
        f"| {i} | row {i} | {i * i} | {i**3} | a **bold** word and `code` |\n" for i in range(200)
    )
    prose = "Some *words* about ships, with `code` and a [link](https://example.org), and then some more of them. "
    code = "\n```python\ndef f(x):\n    return x * 2  # twice\n```\n"
    body = (prose * 3 + "\n\n- one item\n- another item\n" + code) * 8 + table + "\n" + (prose * 6 + "\n\n") * 400
    count = 0
    for line in body.splitlines(keepends=True):
        for piece in line.replace(" ", " \0").split("\0"):
            yield piece
            count += 1
            if count == LONG_REPLY:
                return


def bench_long(arguments: argparse.Namespace) -> dict[str, float]:
    """The part ``long``: the window over an engine that writes fast."""
    from PySide6.QtCore import QTimer

    from app.application import Application
    from app.settings.keeper import SettingsKeeper
    from app.state.store import MemoryStore
    from tests.gui.fake_engine import FakeEngine

    with tempfile.TemporaryDirectory() as folder:
        os.environ["KVSCOPE_DATA_DIR"] = folder
        app = Application(FakeEngine, MemoryStore(), SettingsKeeper(Path(folder)))
        app.bridge.start()
        app.window.show()
        engine: Any = app.bridge.port
        engine.ready()
        rest_for(1.0)
        chat = app.window.tabs.current_chat() or ""
        app.controller.send(chat, "Write a long text with a table.")
        rest_for(0.2)
        (stream,) = engine.jobs
        pieces, heartbeat, timer = reply_pieces(), Heartbeat(), QTimer()
        begun = time.perf_counter()
        written = 0

        def write() -> None:
            nonlocal written
            due = min(round((time.perf_counter() - begun) * arguments.rate), LONG_REPLY)
            while written < due:
                engine.write((stream, next(pieces)))
                written += 1
            if written == LONG_REPLY:
                timer.stop()
                engine.finish(stream)

        timer.setInterval(10)
        timer.timeout.connect(write)
        timer.start()
        used = time.process_time()
        with heartbeat.beating(), profiled(arguments.profile):
            run_until(lambda: app.controller.live(chat) is None, app.bridge.step)
            rest_for(1.0)
        seconds = time.perf_counter() - begun
        figures = heartbeat.figures() | {"cpu_percent": 100 * (time.process_time() - used) / seconds}
        app.close()
        app.window.deleteLater()
    return figures


def store_chats(folder: Path) -> None:
    """500 chats of ten messages."""
    from app.state.document import Conversation, new_id
    from app.state.sqlite_open import open_store

    store, notice = open_store(folder, print)
    assert not notice
    for number in range(CHATS):
        chat = Conversation(new_id(), f"Chat number {number}", created=1e9 + number, updated=1e9 + number)
        store.save_chat(chat)
        parent = None
        for i in range(10):
            text = f"Message {i} of chat {number}. " * 12
            message = chat.add("assistant" if i % 2 else "user", text, parent=parent)
            parent = message.id
            store.save_message(chat.id, message)
            store.choose(chat.id, message.id)
    store.close()


def bench_start(arguments: argparse.Namespace) -> dict[str, Any]:
    """The part ``start``: the program itself, several times."""
    from engine.catalog import resolve

    seconds = []
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "data"
        store_chats(data)
        environment = {**os.environ, "KVSCOPE_DATA_DIR": str(data), "XDG_RUNTIME_DIR": folder}
        driver = [sys.executable, "tests/gui/real_driver.py", "use", str(resolve("smollm2-135m-instruct"))]
        for _ in range(arguments.rounds + 1):
            begun = time.time()
            ran = subprocess.run(driver, env=environment, cwd=ROOT, capture_output=True, text=True, check=True)
            seconds.append(json.loads(ran.stdout.splitlines()[0])["at"] - begun)
    return {"first_s": seconds[0], "median_s": median(seconds[1:]), "best_s": min(seconds)}


def rows(figures: dict[str, Any]) -> Iterable[str]:
    """The figures as lines of a table."""
    if streams := figures.get("streams"):
        words = {"whole": "eight chats", "reading": "… while a prompt is read", "prompt": "that prompt is read"}
        for name, label in words.items():
            row = streams[name]
            yield (
                f"{label:<26} headless {row['headless']:7.0f} tok/s   window {row['window']:7.0f} tok/s   "
                f"ratio {row['ratio']:.2f}"
            )
        yield _beats("heartbeat, streams", streams["heartbeat"])
        yield f"{'CPU of a round':<26} UI thread {streams['ui_cpu_s']:.2f} s   X server {streams['x_cpu_s']:.2f} s"
    if idle := figures.get("idle"):
        yield f"{'idle CPU':<26} {idle['window_percent']:.2f} %   X server {idle['x_server_percent']:.2f} %"
    if long := figures.get("long"):
        yield _beats("heartbeat, long reply", long) + f"   CPU {long['cpu_percent']:.0f} %"
    if start := figures.get("start"):
        yield (
            f"{'usable with 500 chats':<26} first {start['first_s']:.2f} s   median {start['median_s']:.2f} s   "
            f"best {start['best_s']:.2f} s"
        )


def _beats(label: str, beats: dict[str, float]) -> str:
    return (
        f"{label:<26} p50 {beats['p50_ms']:5.1f} ms   p99 {beats['p99_ms']:5.1f} ms   max {beats['max_ms']:5.0f} ms   "
        f"own work p99 {beats['work_p99_ms']:5.1f} ms, max {beats['work_max_ms']:5.1f} ms   ({beats['beats']} beats)"
    )


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.window_load", description="What the window costs.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=", ".join(PARTS) + " (all)")
    parser.add_argument("--rounds", type=int, default=3, help="pairs of rounds; medians are printed")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of each reply in streams")
    parser.add_argument("--idle", type=float, default=10.0, metavar="S", help="seconds to look at the idle window")
    parser.add_argument("--rate", type=float, default=1000.0, help="tokens per second of the long reply")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--profile", metavar="FILE")
    arguments = parser.parse_args()
    arguments.parts = arguments.parts or list(PARTS)
    if unknown := set(arguments.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(sorted(unknown))}")
    figures: dict[str, Any] = {}
    with screen() as server:
        from PySide6.QtWidgets import QApplication

        from app.application import SWITCH_S
        from app.theme import Theme

        sys.setswitchinterval(SWITCH_S)  # as the application does
        app = QApplication(sys.argv[:1])
        Theme.install(app, "light")
        if {"streams", "idle"} & set(arguments.parts):
            figures |= bench_streams(arguments, server)
        if "long" in arguments.parts:
            figures["long"] = bench_long(arguments)
        if "start" in arguments.parts:
            figures["start"] = bench_start(arguments)
    if arguments.json:
        print(json.dumps(figures))
    else:
        print("\n".join(rows(figures)))


if __name__ == "__main__":
    main()
