"""How long the instrument takes to paint: ``python tests/bench/panels.py`` (offscreen unless a display is set).

Prints milliseconds, median and worst of a few dozen, for a pool of 10,000 pages with 16 streams and 320 chains, and
for the plots with an hour of history. Not part of the tests.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "gui")]

from fakes_panels import FakeBridge, FakePort, big_scene, report  # noqa: E402
from PySide6.QtWidgets import QApplication  # noqa: E402

from app.panels.cache_dock import CacheDock  # noqa: E402
from app.panels.engine_dock import EngineDock  # noqa: E402
from app.theme import Theme  # noqa: E402


def measure(name: str, once: Callable[[int], object], n: int = 40) -> None:
    """Time ``once(i)`` and print median and worst."""
    times = []
    for i in range(n):
        start = time.perf_counter()
        once(i)
        times.append((time.perf_counter() - start) * 1e3)
    print(f"{name:<52} {statistics.median(times):8.2f} ms {max(times):8.2f} ms")


def bench_cache() -> None:
    """The cache dock on a full pool, painted without change and with a changed snapshot."""
    one, other = big_scene(), big_scene()
    other.page_states[::7] = 3
    bridge = FakeBridge(FakePort(one))
    dock = CacheDock(bridge)
    dock.resize(340, 1400)
    dock.show()
    QApplication.processEvents()

    def change(i: int) -> None:
        dock._on_snapshot(other if i % 2 == 0 else one)
        QApplication.processEvents()

    measure("cache dock: whole dock painted again", lambda _: dock.grab())
    measure("cache dock: page map painted again", lambda _: dock.view.pages.grab())
    measure("cache dock: snapshot of 10,000 changed pages", change)
    measure("cache dock: snapshot without a change", lambda _: dock._on_snapshot(one))
    page = int(one.segments[40].pages[0])
    measure("cache dock: click on a page", lambda _: (dock._on_page(page), QApplication.processEvents()))


def bench_engine() -> None:
    """The engine dock with an hour of steps."""
    now = time.time()
    bridge = FakeBridge(FakePort(big_scene(capacity=264, chats=2, turns=2)))
    dock = EngineDock(bridge, clock=lambda: now)
    dock.resize(1000, 240)
    steps = [report(i, at=now - 3600 + i * 0.05, width=1 + i % 16, prefill=128 * (i % 9 == 0)) for i in range(72_000)]
    start = time.perf_counter()
    for step in steps:
        bridge.step.emit(step)
    spent = (time.perf_counter() - start) / len(steps) * 1e6
    print(f"{'engine dock: one step taken in while hidden':<52} {spent:8.2f} us")
    dock.show()
    QApplication.processEvents()
    for index, words in enumerate(("1 min", "5 min", "15 min", "1 h")):
        dock.set_range(index)
        measure(f"engine dock: painted, {words}", lambda _: (dock._paint(), dock.grab()))


if __name__ == "__main__":
    app = QApplication(sys.argv)
    Theme.install(app, "light")
    print(f"{'':<52} {'median':>11} {'worst':>11}")
    bench_cache()
    bench_engine()
