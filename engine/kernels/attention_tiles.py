"""The two products of attention over a tile of up to 64 positions: scores with its keys, and its weighted values.

A tile's positions are vectors of 16, whose places in memory are noted in scratch. While a tile's keys are multiplied
its values are asked for, and meanwhile the next tile's keys: a head's part of a page is too short for the processor to
fetch ahead by itself.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.kernels.cpu import target
from engine.kernels.grids import (
    addresses,
    fetch_apart,
    fetch_each,
    fma_grid,
    load_each,
    load_row,
    load_scaled_grid,
    store_grid,
    zero_grid,
)
from engine.kernels.kernel import Kernel, named_helper
from engine.kernels.layout import C_PAGE_ROWS
from engine.kernels.simd import get

A_Q_ROWS, A_OUT_ROWS, A_K_AT, A_V_AT, A_KV_HEADS, A_GROUP, A_HEAD_SIZE = range(7)
A_SCALE, A_SOFTCAP, A_WINDOW, A_ELEMENT, A_SCORES, A_VALUES = range(7, 13)

COLUMNS = 8 if target().avx512 else 6 if target().avx2 else 4
_REGISTERS = 28 if target().avx512 else 0
"""Vectors that registers hold beside what else a loop needs; with few registers one vector at a time is best."""
TILE = 64
_NAMES = {2: "half", 4: "float"}
# Scratch of one item: per column 16 header words, then vectors; q, accumulators and merged values by head size.
W_LIMIT, W_LOWER, W_MAX, W_FACTOR, W_TOP, W_TOP_SUM, W_SUM = 0, 8, 16, 24, 32, 40, 168
W_ROW, W_KV_HEAD, W_K, W_V = 296, 297, 304, 344
AT_SCORES = 8 * 512
AT_BODY = AT_SCORES + COLUMNS * TILE * 4
"""Byte offsets in scratch: scores float32[COLUMNS][TILE], then queries float32[padded head size][COLUMNS], accumulators
and merged values, both float32[COLUMNS][padded head size]."""


def _vectors_at_once(m: int) -> int:
    """How many vectors beside ``m`` columns the registers hold: accumulators, the vectors themselves and a factor."""
    return max(1, min(TILE // 16, _REGISTERS // (m + 1)))


def _score_vectors(m: int, n: int, element: int) -> Callable[..., None]:
    """Scores of ``m`` columns with the ``n`` vectors from ``first`` on, to ``out``."""

    def score(args, scratch, first, step, out):
        keys = addresses(n, scratch + 8 * (W_K + first))
        values = addresses(n, scratch + 8 * (W_V + first))
        acc = zero_grid(m, n)
        queries = scratch + AT_BODY
        at = 0
        for d in range(get(args, A_HEAD_SIZE)):
            fetch_each(values, 16 * element * d)
            acc = fma_grid(acc, load_each(element, keys, at), queries, 4)
            at += step
            queries += 4 * COLUMNS
        store_grid(acc, n, out, 4 * TILE)

    return named_helper(f"attend_score_{m}_{n}_{element}", score)


def _scores(m: int, element: int) -> Kernel:
    """Scores of ``m`` columns with vectors [begin, end) of a partition, a tile; ``element`` bytes a KV value."""
    n = _vectors_at_once(m)
    some, one = _score_vectors(m, n, element), _score_vectors(m, 1, element)

    def scores(context, args, begin, end, scratch):
        step = element * get(context, C_PAGE_ROWS)
        out = scratch + AT_SCORES
        v = begin
        while v + n <= end:
            some(args, scratch, v, step, out)
            out += 64 * n
            v += n
        while v < end:
            one(args, scratch, v, step, out)
            out += 64
            v += 1

    return Kernel(f"attend_scores_{m}_{_NAMES[element]}", scores)


def _add_values(m: int, n: int, element: int) -> Callable[..., None]:
    """Entries d … d + 16 * ``n`` - 1 of the values, for the accumulators at ``at``."""

    def add(scratch, d, at, size, steps, begin, end):
        step, key_step = steps
        acc = load_scaled_grid(m, n, at, 4 * size, scratch + 8 * W_FACTOR)
        weights = scratch + AT_SCORES
        for position in range(begin, end, 16):
            x = get(scratch, W_V + position // 16) + element * d
            key = get(scratch, W_K + position // 16 + TILE // 16) + key_step * d
            for _ in range(min(16, end - position)):
                fetch_apart(n, key, 16 * key_step)
                acc = fma_grid(acc, load_row(element, n, x), weights, 4 * TILE)
                x += step
                key += key_step
                weights += 4
        store_grid(acc, n, at, 4 * size)

    return named_helper(f"attend_add_{m}_{n}_{element}", add)


def _values(m: int, element: int) -> Kernel:
    """Add the values of positions [begin, end) of a partition, a tile, weighted, to the accumulators of ``m`` columns,
    which are first multiplied by their factors."""
    n = _vectors_at_once(m)
    some, one = _add_values(m, n, element), _add_values(m, 1, element)

    def values(context, args, begin, end, scratch):
        head_size = get(args, A_HEAD_SIZE)
        size = (head_size + 15) // 16 * 16
        at = scratch + AT_BODY + 4 * COLUMNS * size
        steps = element * head_size, element * get(context, C_PAGE_ROWS)
        i = 0
        while i + 16 * n <= head_size:
            some(scratch, i, at + 4 * i, size, steps, begin, end)
            i += 16 * n
        while i < head_size:
            # The last vector of an odd head size overlaps the one before, so as not to read past a page.
            one(scratch, min(i, head_size - 16), at + 4 * i, size, steps, begin, end)
            i += 16

    return Kernel(f"attend_values_{m}_{_NAMES[element]}", values)


SCORES = {element: tuple(_scores(m, element) for m in range(1, COLUMNS + 1)) for element in (2, 4)}
VALUES = {element: tuple(_values(m, element) for m in range(1, COLUMNS + 1)) for element in (2, 4)}
