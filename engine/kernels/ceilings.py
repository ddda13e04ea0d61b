"""What this machine allows at most: bytes read from memory and byte multiply-adds, measured with our own kernels."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np
from numba.core import types

from engine.kernels.codes import dot_codes
from engine.kernels.columns import load_rows, offset_dots, zero_columns
from engine.kernels.cpu import target
from engine.kernels.formats import BY_TYPE, T, expanded
from engine.kernels.kernel import Kernel, function
from engine.kernels.simd import load_i, splat_i, store_i

_COLUMNS = target().widest_tile
_TURN_MULTIPLY_ADDS = _COLUMNS * 8 * 64
_FORMAT = expanded(BY_TYPE[T.Q4_1]).index
_GROUP_BYTES = 512
_STREAM_BYTES, _TURNS, _ROUNDS = 512 << 20, 400_000, 3


@function(types.void(types.int64, types.int64, types.int64), ahead=False)
def read_stream(begin, end, out):
    """Read the bytes [begin, end) once, 256 at a time."""
    a = b = c = d = splat_i(0)
    for at in range(begin, end, 256):
        a = a + load_i(at)
        b = b + load_i(at + 64)
        c = c + load_i(at + 128)
        d = d + load_i(at + 192)
    store_i(out, a + b + c + d)


@function(types.void(types.int64, types.int64, types.int64, types.int64), ahead=False)
def multiply_bytes(turns, codes, table, out):
    """``turns`` times the dot products of a group of weights (two take turns, so that each is really computed) with as
    many columns as one pass serves, all in the first level of cache. The codes have 4 bits, the fastest of all."""
    rows = load_rows(zero_columns(_COLUMNS), table)
    dots = offset_dots(_COLUMNS, rows, 0, -1)
    for turn in range(turns):
        dots = dot_codes(dots, _FORMAT, 0, 8, codes + _GROUP_BYTES * (turn & 1), rows, 0)
    total = splat_i(0)
    for vector in dots:
        total = total + vector
    store_i(out, total)


def bytes_per_s(threads: int) -> float:
    """Bytes/s that ``threads`` threads read together from memory; the best of a few rounds."""
    memory = np.ones(_STREAM_BYTES, np.uint8)  # written, so that every page is there
    share = _STREAM_BYTES // threads // 256 * 256
    outs = np.zeros((threads, 64), np.uint8)

    def work(i: int) -> None:
        start = memory.ctypes.data + i * share
        read_stream.call(start, start + share, outs[i].ctypes.data)

    return share * threads / _fastest(read_stream, work, threads)


def multiply_adds_per_s(threads: int) -> float:
    """Multiply-adds/s of ``threads`` threads together, of bytes into 32 bits; the best of a few rounds."""
    codes = np.ones(2 * _GROUP_BYTES, np.uint8)
    columns = np.ones((_COLUMNS, 64), np.int8)
    table = np.array([column.ctypes.data for column in columns], np.int64)
    outs = np.zeros((threads, 64), np.uint8)

    def work(i: int) -> None:
        multiply_bytes.call(_TURNS, codes.ctypes.data, table.ctypes.data, outs[i].ctypes.data)

    return _TURN_MULTIPLY_ADDS * _TURNS * threads / _fastest(multiply_bytes, work, threads)


def _fastest(kernel: Kernel, work: Callable[[int], None], threads: int) -> float:
    """The shortest time in which all threads do their work side by side."""
    _ = kernel.address  # compiled before the clock runs
    times = []
    for _ in range(_ROUNDS):
        started = threading.Barrier(threads + 1)

        def run(i: int, started: threading.Barrier = started) -> None:
            started.wait()
            work(i)

        team = [threading.Thread(target=run, args=(i,)) for i in range(threads)]
        for thread in team:
            thread.start()
        started.wait()
        start = time.perf_counter()
        for thread in team:
            thread.join()
        times.append(time.perf_counter() - start)
    return min(times)
