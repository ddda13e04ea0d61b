"""Causal attention over pages, with a running softmax.

The positions of a sequence are cut at absolute places: vectors of 16, tiles of 64 (the running maximum changes once a
tile) and partitions of 512 (each has a softmax of its own; they are merged in ascending order). So a row's result
does not depend on the chunk it came in, on its neighbours, or on who computed which partition.

A work item is a block of consecutive rows of one sequence and one kv head; its columns are the (row, query head) pairs
that share that kv head's keys and values, so that each vector of K or V is loaded once for all of them. Running
softmax: Milakov and Gimelshein 2018; grouped queries: Ainslie et al. 2023.
"""

from __future__ import annotations

from engine.kernels.attention_tiles import (
    A_ELEMENT,
    A_GROUP,
    A_HEAD_SIZE,
    A_K_AT,
    A_KV_HEADS,
    A_OUT_ROWS,
    A_Q_ROWS,
    A_SCALE,
    A_SCORES,
    A_SOFTCAP,
    A_V_AT,
    A_VALUES,
    A_WINDOW,
    AT_BODY,
    AT_SCORES,
    COLUMNS,
    TILE,
    W_FACTOR,
    W_K,
    W_KV_HEAD,
    W_LIMIT,
    W_LOWER,
    W_MAX,
    W_ROW,
    W_SUM,
    W_TOP,
    W_TOP_SUM,
    W_V,
)
from engine.kernels.kernel import helper, kernel
from engine.kernels.layout import (
    C_ATTEND_LIST,
    C_MEMORY,
    C_MERGE_LIST,
    C_OWNERS,
    C_PAGE_BYTES,
    C_PAGE_ROWS,
    C_PARTIALS,
    C_POSITIONS,
    C_TABLES,
)
from engine.kernels.simd import (
    first_lane,
    get,
    get_f,
    lane_index,
    load_f,
    load_f32,
    load_i32,
    max_lanes,
    maximum,
    put,
    splat_f,
    splat_i,
    store_f,
    store_f32,
    sum_lanes,
    where_less,
)
from engine.kernels.sync import invoke
from engine.kernels.vmath import exp16, tanh16

# A block of the step's list.
B_ROW, B_COUNT, B_PART, B_PARTS, B_SLOT = range(5)
BLOCK_WORDS = 8

PARTITION = 512
_LOWEST, _HIDDEN = -1e30, -3e38


def scratch_bytes(head_size: int) -> int:
    """Scratch that ``attend`` needs."""
    return AT_BODY + 3 * COLUMNS * padded(head_size) * 4


def partial_bytes(head_size: int) -> int:
    """Memory of one kept partition of one column."""
    return 4 * (32 + padded(head_size))


def padded(head_size: int) -> int:
    """A head's floats in scratch, whole vectors."""
    return -(-head_size // 16) * 16


@helper
def _find_vectors(context, args, scratch, first, end, most):
    """Note where K and V of each vector of 16 positions lie, from ``first`` to ``end``; and those of one tile more, for
    they are fetched ahead (there are ``most`` vectors; after the last one, its place again)."""
    page_rows = get(context, C_PAGE_ROWS)
    element = get(args, A_ELEMENT)
    head = element * get(scratch, W_KV_HEAD) * get(args, A_HEAD_SIZE) * page_rows
    table = get(get(context, C_TABLES), load_i32(get(context, C_OWNERS) + 4 * get(scratch, W_ROW)))
    for entry in range(end + TILE // 16 - first):
        v = min(first + entry, most - 1)
        page = load_i32(table + 4 * (16 * v // page_rows))
        base = get(context, C_MEMORY) + page * get(context, C_PAGE_BYTES) + head
        slot = element * (16 * v % page_rows)
        put(scratch, W_K + entry, base + get(args, A_K_AT) * page_rows + slot)
        put(scratch, W_V + entry, base + get(args, A_V_AT) * page_rows + slot * get(args, A_HEAD_SIZE))


@helper
def _soften(args, scratch, m, first, vectors):
    """Scores of a tile to weights exp(score - max), with masks; updates the running maximum and sum of each column."""
    cap = get_f(args, A_SOFTCAP)
    for c in range(m):
        scores = scratch + AT_SCORES + 4 * TILE * c
        limit = get(scratch, W_LIMIT + c) + 1
        lower = get(scratch, W_LOWER + c)
        masked = limit < 16 * (first + vectors) or lower > 16 * first
        top = splat_f(_HIDDEN)
        for v in range(vectors):
            s = load_f(scores + 64 * v)
            if cap > 0:
                s = splat_f(cap) * tanh16(s / splat_f(cap))
                store_f(scores + 64 * v, s)
            if masked:
                at = splat_i(16 * (first + v)) + lane_index()
                s = where_less(at, splat_i(limit), s, splat_f(_HIDDEN))
                s = where_less(at, splat_i(lower), splat_f(_HIDDEN), s)
                store_f(scores + 64 * v, s)
            top = maximum(top, s)
        before = get_f(scratch, W_MAX + c)
        after = max(before, max_lanes(top))
        factor = splat_f(1.0)
        if after != before:
            factor = exp16(splat_f(before - after))
        total = load_f(scratch + 8 * W_SUM + 64 * c) * factor
        for v in range(vectors):
            weight = exp16(load_f(scores + 64 * v) - splat_f(after))
            store_f(scores + 64 * v, weight)
            total = total + weight
        store_f(scratch + 8 * W_SUM + 64 * c, total)
        store_f32(scratch + 8 * (W_MAX + c), after)
        store_f32(scratch + 8 * (W_FACTOR + c), first_lane(factor))


@helper
def _start_partition(scratch, m, size):
    """Empty maximum, sum and accumulators of a partition."""
    for c in range(m):
        store_f32(scratch + 8 * (W_MAX + c), _LOWEST)
        store_f(scratch + 8 * W_SUM + 64 * c, splat_f(0.0))
        for i in range(0, size, 16):
            store_f(scratch + AT_BODY + 4 * (COLUMNS * size + c * size + i), splat_f(0.0))


@helper
def _merge_partition(scratch, m, size):
    """Fold a finished partition into the merged maximum, sum and values of each column."""
    for c in range(m):
        old = get_f(scratch, W_TOP + c)
        own = get_f(scratch, W_MAX + c)
        top = max(old, own)
        keep = exp16(splat_f(old - top))
        take = exp16(splat_f(own - top))
        at = scratch + 64 * c
        store_f32(scratch + 8 * (W_TOP + c), top)
        store_f(at + 8 * W_TOP_SUM, load_f(at + 8 * W_TOP_SUM) * keep + load_f(at + 8 * W_SUM) * take)
        at = scratch + AT_BODY + 4 * c * size
        for i in range(0, size, 16):
            own_value = load_f(at + 4 * (COLUMNS * size + i))
            merged = at + 4 * (2 * COLUMNS * size + i)
            store_f(merged, load_f(merged) * keep + own_value * take)


@helper
def _attend_partition(context, args, scratch, m, begin, end):
    """Positions [begin, end) of one partition for the ``m`` columns in scratch, tile by tile."""
    _start_partition(scratch, m, (get(args, A_HEAD_SIZE) + 15) // 16 * 16)
    _find_vectors(context, args, scratch, begin // 16, (end + 15) // 16, (get(scratch, W_LIMIT + m - 1) + 16) // 16)
    for tile_at in range(begin // TILE * TILE, end, TILE):
        first = max(tile_at, begin) // 16
        last = min(tile_at + TILE, end)
        vectors = (last + 15) // 16 - first
        at = first - begin // 16
        invoke(get(get(args, A_SCORES), m), context, args, at, at + vectors, scratch)
        _soften(args, scratch, m, first, vectors)
        invoke(get(get(args, A_VALUES), m), context, args, 16 * at, last - begin, scratch)


@helper
def _reset(scratch, m, size):
    """Empty merged maximum, sum and values."""
    for c in range(m):
        store_f32(scratch + 8 * (W_TOP + c), _LOWEST)
        store_f(scratch + 8 * W_TOP_SUM + 64 * c, splat_f(0.0))
        for i in range(0, size, 16):
            store_f(scratch + AT_BODY + 4 * ((2 * COLUMNS + c) * size + i), splat_f(0.0))


@helper
def _partial_at(context, block, head, column, columns, part, size):
    """Where a partition's result for a column is kept until all are merged."""
    index = (head * columns + column) * get(block, B_PARTS) + part
    return get(context, C_PARTIALS) + 4 * (32 + size) * (get(block, B_SLOT) + index)


@helper
def _save(context, block, scratch, first, m, columns, size):
    """Keep a partition's maxima, sums and values."""
    for c in range(m):
        at = _partial_at(context, block, get(scratch, W_KV_HEAD), first + c, columns, get(block, B_PART), size)
        store_f32(at, get_f(scratch, W_MAX + c))
        store_f(at + 64, load_f(scratch + 8 * W_SUM + 64 * c))
        for i in range(0, size, 16):
            store_f(at + 128 + 4 * i, load_f(scratch + AT_BODY + 4 * ((COLUMNS + c) * size + i)))


@helper
def _restore(context, block, scratch, first, m, columns, part, size):
    """Get a partition's maxima, sums and values back."""
    for c in range(m):
        at = _partial_at(context, block, get(scratch, W_KV_HEAD), first + c, columns, part, size)
        store_f32(scratch + 8 * (W_MAX + c), load_f32(at))
        store_f(scratch + 8 * W_SUM + 64 * c, load_f(at + 64))
        for i in range(0, size, 16):
            store_f(scratch + AT_BODY + 4 * ((COLUMNS + c) * size + i), load_f(at + 128 + 4 * i))


@helper
def _gather(context, args, scratch, first, m):
    """Scaled queries and limits of the columns ``first`` … ``first + m - 1`` of an item."""
    group = get(args, A_GROUP)
    head_size = get(args, A_HEAD_SIZE)
    size = (head_size + 15) // 16 * 16
    scale = get_f(args, A_SCALE)
    window = get(args, A_WINDOW)
    for c in range(m):
        row = get(scratch, W_ROW) + (first + c) // group
        head = get(scratch, W_KV_HEAD) * group + (first + c) % group
        q = get(get(args, A_Q_ROWS), row) + 4 * head * head_size
        for d in range(head_size):
            store_f32(scratch + AT_BODY + 4 * (d * COLUMNS + c), load_f32(q + 4 * d) * scale)
        position = load_i32(get(context, C_POSITIONS) + 4 * row)
        put(scratch, W_LIMIT + c, position)
        put(scratch, W_LOWER + c, max(0, position - window + 1) if window > 0 else 0)
    _reset(scratch, m, size)


@helper
def _scatter(args, scratch, first, m):
    """Merged values divided by their sums, to the output rows."""
    group = get(args, A_GROUP)
    head_size = get(args, A_HEAD_SIZE)
    size = (head_size + 15) // 16 * 16
    for c in range(m):
        row = get(scratch, W_ROW) + (first + c) // group
        head = get(scratch, W_KV_HEAD) * group + (first + c) % group
        out = get(get(args, A_OUT_ROWS), row) + 4 * head * head_size
        total = splat_f(sum_lanes(load_f(scratch + 8 * W_TOP_SUM + 64 * c)))
        merged = scratch + AT_BODY + 4 * (2 * COLUMNS + c) * size
        for i in range(0, head_size, 16):
            # Where the last two vectors overlap, both hold the same numbers.
            d = min(i, head_size - 16)
            store_f(out + 4 * d, load_f(merged + 4 * i) / total)


@kernel
def attend(context, args, begin, end, scratch):
    """Items [begin, end): item i is block i // kv_heads of the step's list and kv head i % kv_heads. A block stands for
    all partitions of its rows, which are merged at once, or for one of them, which is kept for ``merge_attention``."""
    kv_heads = get(args, A_KV_HEADS)
    size = (get(args, A_HEAD_SIZE) + 15) // 16 * 16
    for item in range(begin, end):
        block = get(context, C_ATTEND_LIST) + 8 * BLOCK_WORDS * (item // kv_heads)
        put(scratch, W_ROW, get(block, B_ROW))
        put(scratch, W_KV_HEAD, item % kv_heads)
        columns = get(block, B_COUNT) * get(args, A_GROUP)
        part = get(block, B_PART)
        turns = (columns + COLUMNS - 1) // COLUMNS
        first = 0
        while turns > 0:
            m = (columns - first + turns - 1) // turns
            _gather(context, args, scratch, first, m)
            low = get(scratch, W_LOWER) // 16 * 16
            high = get(scratch, W_LIMIT + m - 1) + 1
            one = part if part >= 0 else low // PARTITION
            last = part + 1 if part >= 0 else (high + PARTITION - 1) // PARTITION
            for p in range(one, last):
                _attend_partition(
                    context, args, scratch, m, max(low, p * PARTITION), min(high, p * PARTITION + PARTITION)
                )
                if part < 0:
                    _merge_partition(scratch, m, size)
            if part < 0:
                _scatter(args, scratch, first, m)
            else:
                _save(context, block, scratch, first, m, columns, size)
            first += m
            turns -= 1


@kernel
def merge_attention(context, args, begin, end, scratch):
    """Merge kept partitions in ascending order. Item i: block i // kv_heads of the merge list, kv head i % kv_heads."""
    kv_heads = get(args, A_KV_HEADS)
    size = (get(args, A_HEAD_SIZE) + 15) // 16 * 16
    for item in range(begin, end):
        block = get(context, C_MERGE_LIST) + 8 * BLOCK_WORDS * (item // kv_heads)
        put(scratch, W_ROW, get(block, B_ROW))
        put(scratch, W_KV_HEAD, item % kv_heads)
        columns = get(block, B_COUNT) * get(args, A_GROUP)
        for first in range(0, columns, COLUMNS):
            m = min(COLUMNS, columns - first)
            _reset(scratch, m, size)
            for part in range(get(block, B_PARTS)):
                _restore(context, block, scratch, first, m, columns, part, size)
                _merge_partition(scratch, m, size)
            _scatter(args, scratch, first, m)
