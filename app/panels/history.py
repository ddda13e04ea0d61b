"""What the engine did lately, kept small: the last steps one by one, and an hour in quarter seconds.

``StepHistory`` is filled once per step and read by the plots. Filling costs a few microseconds and no allocation that
lasts, so it also runs while the plots are hidden. No Qt here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import numpy as np

from app.panels.words import books_sentence
from engine.scheduling.events import Eviction, Piece, PoolCounts, StepReport

BIN_S = 0.25
HOUR_BINS = int(3600 / BIN_S)
RECENT_STEPS = 4096
RANGES: tuple[tuple[str, int], ...] = (("1 min", 60), ("5 min", 300), ("15 min", 900), ("1 h", 3600))
"""Selectable ranges: words and seconds."""

_GROUPS = {60: 1, 300: 4, 900: 12, 3600: 48}


@dataclass(frozen=True, slots=True, eq=False)
class Series:
    """A range in equal columns, oldest first; all arrays float64[n], NaN before the first step.

    ``at`` is each column's end in Unix seconds, ``width_s`` its length. ``referenced``, ``cached`` and ``capacity``
    are pages at the column's end; ``tokens_per_s`` generated tokens; ``read_per_s`` prompt tokens; ``queued`` and
    ``width`` the largest queue and batch width; ``prefill_share`` the part (0..1) of engine time spent on prompts.
    """

    at: np.ndarray
    width_s: float
    referenced: np.ndarray
    cached: np.ndarray
    capacity: np.ndarray
    tokens_per_s: np.ndarray
    read_per_s: np.ndarray
    queued: np.ndarray
    width: np.ndarray
    prefill_share: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Recent:
    """The last steps one by one, oldest first. ``slots`` holds one byte per decoded stream: its colour slot."""

    step: np.ndarray
    started: np.ndarray
    duration_us: np.ndarray
    decode_us: np.ndarray
    prefill_us: np.ndarray
    width: np.ndarray
    prefill_tokens: np.ndarray
    slots: list[bytes]
    readers: list[tuple[int, ...]]


class StepHistory:
    """A ring of steps, a ring of quarter-second bins, and the evictions of the last hour."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget everything (another model was loaded)."""
        n = RECENT_STEPS
        self.n_steps = 0
        self._step, self._started = np.zeros(n, np.int64), np.zeros(n)
        self._times = np.zeros((n, 3))
        self._counts = np.zeros((n, 2), np.int32)
        self._slots: list[bytes] = [b""] * n
        self._readers: list[tuple[int, ...]] = [()] * n
        self._keys = np.full(HOUR_BINS, -1, np.int64)
        self._bins = np.zeros((HOUR_BINS, 10))
        self.evictions: deque[Eviction] = deque(maxlen=512)
        self.names: dict[int, str] = {}
        self.imbalance = ""
        self.last: StepReport | None = None
        self._slot_of: dict[int, int] = {}
        self._seen: tuple[int, ...] = ()
        self.first_at: float | None = None

    @property
    def only_reading(self) -> bool:
        """Whether the last step knew of prompts being read and of no reply being written."""
        phases = {stream.phase for stream in self.last.streams} if self.last is not None else set()
        return "prefilling" in phases and "decoding" not in phases

    def append(self, report: StepReport) -> None:
        """Take in one step."""
        self.last = report
        if self.first_at is None:
            self.first_at = report.started
        self._take_streams(report)
        self._take_recent(report)
        self._take_bin(report)
        self.evictions.extend(report.evictions)
        pool = report.pool
        if pool.free + pool.cached + pool.referenced != pool.capacity:
            self.imbalance = books_sentence(report.step, pool)

    def _take_streams(self, report: StepReport) -> None:
        """Give each new stream the lowest free colour slot and remember its name for labels."""
        ids = (*(s.stream for s in report.streams), *report.decoded)
        if ids != self._seen:
            self._seen = ids
            alive = set(ids)
            for gone in [s for s in self._slot_of if s not in alive]:
                del self._slot_of[gone]
            for new in sorted(alive.difference(self._slot_of)):
                taken = set(self._slot_of.values())
                self._slot_of[new] = next(i for i in range(256) if i not in taken or i == 255)
            for state in report.streams:
                self.names[state.stream] = state.chat or state.label
            while len(self.names) > 512:
                del self.names[next(iter(self.names))]

    def _take_recent(self, report: StepReport) -> None:
        i = self.n_steps % RECENT_STEPS
        self._step[i], self._started[i] = report.step, report.started
        self._times[i] = (report.duration_us, report.decode_us, report.prefill_us)
        self._counts[i] = (len(report.decoded), sum(n for _, n in report.prefilled))
        self._slots[i] = bytes(self._slot_of[s] for s in report.decoded)
        self._readers[i] = tuple(s for s, _ in report.prefilled)
        self.n_steps += 1

    def note_pool(self, at: float, pool: PoolCounts) -> None:
        """Take in the pool as it is between steps (a release frees pages without one)."""
        if self.first_at is None:
            self.first_at = at
        self._bin(at)[:3] = (pool.referenced, pool.cached, pool.capacity)

    def _bin(self, at: float) -> np.ndarray:
        """The bin of a moment, a view of float64[10]; empty if it is a new one."""
        key = int(at / BIN_S)
        row: np.ndarray = self._bins[key % HOUR_BINS]
        if self._keys[key % HOUR_BINS] != key:
            self._keys[key % HOUR_BINS] = key
            row[:] = 0.0
        return row

    def _take_bin(self, report: StepReport) -> None:
        row = self._bin(report.started + report.duration_us * 1e-6)
        pool = report.pool
        tokens = sum(1 for e in report.events if type(e) is Piece and e.token is not None)
        row[:3] = (pool.referenced, pool.cached, pool.capacity)
        row[3] += tokens
        row[4] += sum(n for _, n in report.prefilled)
        row[5] = max(row[5], report.queued)
        row[6] = max(row[6], len(report.decoded))
        row[7] += report.prefill_us
        row[8] += report.duration_us
        row[9] += 1

    def recent(self, n: int) -> Recent:
        """The last ``n`` steps (fewer if fewer happened)."""
        n = min(n, self.n_steps, RECENT_STEPS)
        index = np.arange(self.n_steps - n, self.n_steps) % RECENT_STEPS
        times, counts = self._times[index], self._counts[index]
        return Recent(
            step=self._step[index],
            started=self._started[index],
            duration_us=times[:, 0],
            decode_us=times[:, 1],
            prefill_us=times[:, 2],
            width=counts[:, 0],
            prefill_tokens=counts[:, 1],
            slots=[self._slots[i] for i in index],
            readers=[self._readers[i] for i in index],
        )

    def series(self, range_s: int, now: float) -> Series:
        """The last ``range_s`` seconds (one of ``RANGES``) in 240 to 300 columns that end at whole multiples."""
        group = _GROUPS[range_s]
        n = int(range_s / BIN_S) // group
        last = int(now / BIN_S) // group
        keys = np.arange((last - n + 1) * group, (last + 1) * group)
        slot = keys % HOUR_BINS
        known = self._keys[slot] == keys
        rows = np.where(known[:, None], self._bins[slot], 0.0).reshape(n, group, 10)
        levels = self._levels(keys, slot, known).reshape(n, group, 3)[:, -1]
        at = (np.arange(last - n + 1, last + 1) + 1) * (group * BIN_S)
        span = np.full(n, group * BIN_S)
        span[-1] = max(BIN_S / 2, now - last * group * BIN_S)
        if self.first_at is not None:
            levels[at < self.first_at] = np.nan
        levels[at > now + group * BIN_S] = np.nan
        busy = rows[:, :, 8].sum(axis=1)
        return Series(
            at=at,
            width_s=group * BIN_S,
            referenced=levels[:, 0],
            cached=levels[:, 1],
            capacity=levels[:, 2],
            tokens_per_s=rows[:, :, 3].sum(axis=1) / span,
            read_per_s=rows[:, :, 4].sum(axis=1) / span,
            queued=rows[:, :, 5].max(axis=1),
            width=rows[:, :, 6].max(axis=1),
            prefill_share=np.divide(rows[:, :, 7].sum(axis=1), busy, out=np.zeros(n), where=busy > 0),
        )

    def _levels(self, keys: np.ndarray, slot: np.ndarray, known: np.ndarray) -> np.ndarray:
        """Pages at the end of each bin, float64[len(keys), 3]; a bin without a step keeps the one before it."""
        source = np.where(known, np.arange(len(keys)), -1)
        np.maximum.accumulate(source, out=source)
        levels = np.where(source[:, None] >= 0, self._bins[slot[source], :3], np.nan)
        if len(keys) and source[0] < 0:
            older = np.flatnonzero((self._keys >= 0) & (self._keys < keys[0]))
            if len(older):
                newest = older[np.argmax(self._keys[older])]
                levels[source < 0] = self._bins[newest, :3]
        return levels

    def evictions_since(self, start: float) -> list[Eviction]:
        """Evictions at or after a Unix time, oldest first."""
        return [e for e in self.evictions if e.at >= start]

    def tokens_per_s(self, now: float, over_s: float = 2.0) -> float:
        """Generated tokens per second over the last whole bins before ``now``."""
        last = int(now / BIN_S)
        keys = np.arange(last - int(over_s / BIN_S), last)
        slot = keys % HOUR_BINS
        return float(self._bins[slot, 3][self._keys[slot] == keys].sum() / over_s)
