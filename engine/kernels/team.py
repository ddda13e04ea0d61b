"""A team of threads that runs a program of phases inside compiled code.

A program is a list of phases, a phase a list of operations over a number of units (rows, or blocks of weights). Units
are handed out in items, and a phase ends when its items are complete, not when every thread has arrived: a thread that
the system paused holds up one item, and nobody waits for it otherwise. Whoever completes the last item of a phase
opens the next one, and runs phases of a single item itself, at once. A waiting thread spins briefly and then sleeps
inside compiled code; idle threads use no CPU.

Every thread begins with a range of items of its own, and helps out in the others' when that is used up: memory is read
in long streams that way, which is worth a third of the speed where it is the limit.

The ticket is [epoch | phase], a range's counter [epoch | phase | next item]. Both are only ever changed by
compare-and-swap or by the thread that completed a phase, so a thread that slept through a whole step cannot take a
stale item.
"""

from __future__ import annotations

import atexit
import threading
import time
import weakref

import numpy as np
from numba.core import types

from engine.kernels.kernel import function, helper
from engine.kernels.layout import address_of
from engine.kernels.simd import get, put
from engine.kernels.sync import (
    atomic_add,
    atomic_load,
    atomic_store,
    compare_and_swap,
    cycles,
    invoke,
    sleep_while,
    spin_pause,
    wake_all,
)

MAX_PHASES = 16384
MAX_THREADS = 256
# Words of the shared state; what different threads write lies on different cache lines.
TICKET, DONE, WAKE, SLEEPERS = 0, 8, 16, 24
PROGRAM, N_PHASES, CONTEXT, ACTIVE, SCRATCH, SCRATCH_BYTES, PROFILE, CANCEL, EPOCH, PARTS = range(32, 42)
ITEMS = 64
UNITS = ITEMS + MAX_PHASES
TIMES = UNITS + MAX_PHASES
RANGES = TIMES + MAX_THREADS * 32
STATE_WORDS = RANGES + MAX_THREADS * 8
# Words of a phase.
PHASE_WORDS = 8
P_FLAGS, P_N_OPS, P_OPS, P_SOURCE, P_UNITS, P_STEP, P_KIND = range(7)
PARALLEL, CHECKPOINT = 1, 2
"""Flags: the operations share out units one after the other (else every operation runs on each item in order); the
cancel flag is looked at before the phase."""
# Words of an operation.
OP_WORDS = 8
O_KERNEL, O_ARGUMENTS, O_UNITS, O_STEP, O_ITEMS = 0, 1, 2, 3, 4

_ITEM_BITS, _PHASE_BITS = 24, 16
_ITEM_MASK, _PHASE_MASK = (1 << _ITEM_BITS) - 1, (1 << _PHASE_BITS) - 1
_IDLE = _PHASE_MASK
_PHASE_BYTES, _OP_BYTES = 8 * PHASE_WORDS, 8 * OP_WORDS
_SPINS = 2000
_WAITING = 31


@helper
def _count_items(state, phase):
    """Fill in how many units and items a phase has in this step; returns the items."""
    record = get(state, PROGRAM) + _PHASE_BYTES * phase
    units = get(record, P_UNITS)
    source = get(record, P_SOURCE)
    if source >= 0:
        units *= get(get(state, CONTEXT), source)
    step = get(record, P_STEP)
    items = (units + step - 1) // step
    put(state, UNITS + phase, units)
    put(state, ITEMS + phase, items)
    return items


@helper
def _run_item(state, phase, item, thread):
    """Run one item of a phase."""
    record = get(state, PROGRAM) + _PHASE_BYTES * phase
    context = get(state, CONTEXT)
    scratch = get(state, SCRATCH) + thread * get(state, SCRATCH_BYTES)
    op = get(record, P_OPS)
    profile = get(state, PROFILE) != 0
    start = cycles() if profile else 0
    if get(record, P_FLAGS) & PARALLEL:
        while item >= get(op, O_ITEMS):
            item -= get(op, O_ITEMS)
            op += _OP_BYTES
        step = get(op, O_STEP)
        begin = item * step
        end = min(begin + step, get(op, O_UNITS))
        invoke(get(op, O_KERNEL), context, get(op, O_ARGUMENTS), begin, end, scratch)
    else:
        step = get(record, P_STEP)
        begin = item * step
        end = min(begin + step, get(state, UNITS + phase))
        for _ in range(get(record, P_N_OPS)):
            invoke(get(op, O_KERNEL), context, get(op, O_ARGUMENTS), begin, end, scratch)
            op += _OP_BYTES
    if profile:
        slot = TIMES + 32 * thread + get(record, P_KIND)
        put(state, slot, get(state, slot) + cycles() - start)


@helper
def _open_next(state, epoch, phase, thread):
    """Open the first phase from ``phase`` on that has work for several; run those of a single item on the way."""
    count = get(state, N_PHASES)
    items = 0
    while phase < count:
        record = get(state, PROGRAM) + _PHASE_BYTES * phase
        if get(record, P_FLAGS) & CHECKPOINT and atomic_load(state, CANCEL) != 0:
            phase = count
            break
        items = _count_items(state, phase)
        if items > 1:
            break
        if items == 1:
            _run_item(state, phase, 0, thread)
        phase += 1
    if phase >= count:
        phase = _IDLE
    atomic_store(state, DONE, 0)
    serial = (epoch << _PHASE_BITS) | phase
    parts = get(state, PARTS)
    for part in range(parts):
        atomic_store(state, RANGES + 8 * part, serial << _ITEM_BITS | items * part // parts)
    atomic_store(state, TICKET, serial)
    atomic_add(state, WAKE, 1)
    if atomic_load(state, SLEEPERS) > 0:
        wake_all(state, WAKE)


@helper
def _take(state, serial, thread):
    """Take an item of the open phase: the next of this thread's own range, else of another's; -1 if none is left."""
    parts = get(state, PARTS)
    items = get(state, ITEMS + (serial & _PHASE_MASK))
    for k in range(parts):
        part = (thread + k) % parts
        end = items * (part + 1) // parts
        while True:
            seen = atomic_load(state, RANGES + 8 * part)
            if seen >> _ITEM_BITS != serial or seen & _ITEM_MASK >= end:
                break
            if compare_and_swap(state, RANGES + 8 * part, seen, seen + 1):
                return seen & _ITEM_MASK
    return -1


@helper
def _try_work(state, serial, thread):
    """Take and run one item if the open phase has one left; False if not."""
    phase = serial & _PHASE_MASK
    item = -1 if phase == _IDLE else _take(state, serial, thread)
    if item >= 0:
        _run_item(state, phase, item, thread)
        if atomic_add(state, DONE, 1) + 1 == get(state, ITEMS + phase):
            _open_next(state, serial >> _PHASE_BITS, phase + 1, thread)
    return item >= 0


@helper
def _wait(state, serial, thread):
    """Wait until another phase is open than ``serial``: spin briefly, then sleep."""
    profile = get(state, PROFILE) != 0 and serial & _PHASE_MASK != _IDLE
    start = cycles() if profile else 0
    for _ in range(_SPINS):
        if atomic_load(state, TICKET) != serial:
            break
        spin_pause()
    else:
        seen = atomic_load(state, WAKE)
        atomic_add(state, SLEEPERS, 1)
        if atomic_load(state, TICKET) == serial and thread < atomic_load(state, ACTIVE):
            sleep_while(state, WAKE, seen)
        atomic_add(state, SLEEPERS, -1)
    if profile:
        slot = TIMES + 32 * thread + _WAITING
        put(state, slot, get(state, slot) + cycles() - start)


@function(types.void(types.int64, types.int64))
def team_work(state, thread):
    """Thread 0: run the program once. A helper: work and wait until ``ACTIVE`` no longer counts it."""
    if thread == 0:
        epoch = (get(state, EPOCH) + 1) & 0x7FFFFF
        put(state, EPOCH, epoch)
        put(state, PARTS, atomic_load(state, ACTIVE))
        _open_next(state, epoch, 0, 0)
    while thread < atomic_load(state, ACTIVE):
        serial = atomic_load(state, TICKET)
        if thread == 0 and serial & _PHASE_MASK == _IDLE:
            return
        if not _try_work(state, serial, thread):
            _wait(state, serial, thread)


@function(types.void(types.int64))
def team_wake(state):
    """Wake every sleeping helper, so that it looks whether it is still wanted."""
    atomic_add(state, WAKE, 1)
    wake_all(state, WAKE)


@function(types.int64())
def cycle_count():
    """The time stamp counter, to convert cycles to seconds."""
    return cycles()


_living: weakref.WeakSet[Team] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """End all helper threads before the interpreter goes away."""
    for team in list(_living):
        team.close()


class Team:
    """Threads and the memory they share. ``run`` is called from one thread at a time; ``cancel`` from any."""

    def __init__(self, threads: int, scratch_bytes: int = 1 << 16) -> None:
        self._memory = np.zeros(STATE_WORDS + 8, np.int64)
        skip = -self._memory.ctypes.data % 64 // 8
        self._state = self._memory[skip : skip + STATE_WORDS]
        self._at = int(self._state.ctypes.data)
        self._scratch = np.zeros(0, np.uint8)
        self._threads: list[threading.Thread] = []
        self._state[TICKET] = _IDLE
        self._state[ACTIVE] = 1
        self._work = team_work.call
        self._profile_start = (0.0, 0)
        self._scratch_bytes = -(-scratch_bytes // 4096) * 4096
        _living.add(self)
        self.set_threads(threads)

    @property
    def threads(self) -> int:
        """How many threads work, the caller included."""
        return len(self._threads) + 1

    def set_threads(self, threads: int) -> None:
        """Change the number of threads; between runs only."""
        threads = max(1, min(threads, MAX_THREADS))
        self._dismiss(threads)
        self._scratch = np.zeros(threads * self._scratch_bytes + 64, np.uint8)
        self._state[SCRATCH] = -(-self._scratch.ctypes.data // 64) * 64
        self._state[SCRATCH_BYTES] = self._scratch_bytes
        self._state[ACTIVE] = threads
        for number in range(len(self._threads) + 1, threads):
            thread = threading.Thread(
                target=self._work, args=(self._at, number), name=f"kvscope-kernel-{number}", daemon=True
            )
            thread.start()
            self._threads.append(thread)

    def _dismiss(self, keep: int) -> None:
        """End the helpers with numbers from ``keep`` on."""
        if len(self._threads) + 1 <= keep:
            return
        self._state[ACTIVE] = keep
        leaving, self._threads = self._threads[keep - 1 :], self._threads[: keep - 1]
        team_wake.call(self._at)
        for thread in leaving:
            thread.join()

    @property
    def memory_bytes(self) -> int:
        """Memory of the shared state and of the threads' scratch."""
        return int(self._memory.nbytes + self._scratch.nbytes)

    def reserve_scratch(self, n: int) -> None:
        """Give every thread at least ``n`` bytes of scratch; between runs only."""
        if n > self._scratch_bytes:
            self._scratch_bytes = -(-n // 4096) * 4096
            self.set_threads(self.threads)

    def run(self, program: np.ndarray, context: np.ndarray) -> None:
        """Run ``program`` int64[phases, PHASE_WORDS]; blocks without the GIL until its last phase is complete or
        ``cancelled``. Both arrays, and what they point to, must outlive the call."""
        self.run_at(address_of(program), len(program), address_of(context))

    def run_at(self, program: int, phases: int, context: int) -> None:
        """As ``run``, with the arrays given by address."""
        if phases > MAX_PHASES:
            raise ValueError(f"a program has at most {MAX_PHASES} phases, not {phases}")
        self._state[PROGRAM : CONTEXT + 1] = program, phases, context
        self._work(self._at, 0)

    @property
    def cancelled(self) -> bool:
        """The cancel flag; a running program stops at its next checkpoint when it is set."""
        return bool(self._state[CANCEL])

    @cancelled.setter
    def cancelled(self, value: bool) -> None:
        self._state[CANCEL] = int(value)

    def profile(self, on: bool) -> None:
        """Start counting time by kind of phase from zero, or stop."""
        self._state[TIMES:RANGES] = 0
        self._profile_start = time.perf_counter(), cycle_count.call()
        self._state[PROFILE] = int(on)

    def seconds(self) -> np.ndarray:
        """Time by kind of phase since ``profile(True)``, summed over threads, float64[32]; the last is waiting."""
        elapsed = time.perf_counter() - self._profile_start[0]
        counted = cycle_count.call() - self._profile_start[1]
        rate = elapsed / counted if counted else 0.0
        return np.asarray(self._state[TIMES:RANGES].reshape(MAX_THREADS, 32).sum(axis=0) * rate)

    def close(self) -> None:
        """End the helper threads. The team can still run, on the caller's thread alone."""
        self._dismiss(1)
