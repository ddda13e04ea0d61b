"""Mixtures of experts: routing, products over the rows that chose an expert, and the weighted sum.

Every (row, chosen expert) pair has a slot; slots are ordered by expert, then by row. The products of an expert run over
its slots as over rows. A pair's values depend on its row alone, and a row adds its experts in ascending order, so
results do not depend on which rows share a step.
"""

from __future__ import annotations

from engine.kernels.kernel import helper, kernel
from engine.kernels.layout import C_EXPERTS, C_ROWS, C_SLOTS
from engine.kernels.matmul import run_tiles
from engine.kernels.simd import (
    fma,
    get,
    get_f,
    lane_index,
    load_f,
    load_f32,
    load_f_part,
    load_i32,
    max_lanes,
    maximum,
    put,
    splat_f,
    splat_i,
    store_f,
    store_f32,
    store_i32,
    sum_lanes,
    where_less,
)
from engine.kernels.vmath import exp16

# Routing. Tables are int32 or float32 by row and choice, except where said.
T_LOGITS, T_EXPERTS, T_USED, T_RENORMALIZE, T_CHOSEN, T_SHARES = range(6)
T_SLOT_OF, T_COUNTS, T_ACTIVE, T_GATE_ROWS, T_GATE_SLOTS, T_UP_ROWS, T_UP_SLOTS = range(6, 13)
"""``T_COUNTS`` int64[experts]; ``T_ACTIVE`` int64[experts][3]: expert, first slot and count of those with any;
``T_GATE_ROWS`` and ``T_GATE_SLOTS`` tables of addresses: what products read, by row and by slot."""
# Products.
P_ACTIVE, P_BLOCKS, P_RECORDS, P_RECORD_BYTES = range(4)
# The weighted sum.
W_SLOT_OF, W_SHARES, W_USED, W_SLOTS, W_OUT_ROWS, W_WIDTH, W_SCALE = range(7)

_LOWEST = -3e38


@kernel
def route(context, args, begin, end, scratch):
    """Choose the experts of rows [begin, end) and their shares.

    Softmax over the router's logits; the ``used`` largest (ties: lower index), divided by their sum if asked; stored in
    ascending order of expert.
    """
    n = get(args, T_EXPERTS)
    used = get(args, T_USED)
    for row in range(begin, end):
        logits = get(get(args, T_LOGITS), row)
        total = _softmax(logits, n, scratch)
        chosen = get(args, T_CHOSEN) + 4 * used * row
        shares = get(args, T_SHARES) + 4 * used * row
        sum_taken = load_f32(scratch) * 0
        for j in range(used):
            best = 0
            for e in range(1, n):
                if load_f32(scratch + 4 * e) > load_f32(scratch + 4 * best):
                    best = e
            share = load_f32(scratch + 4 * best) / total
            store_f32(scratch + 4 * best, -1.0)
            sum_taken += share
            _insert(chosen, shares, j, best, share)
        if get(args, T_RENORMALIZE) != 0:
            for j in range(used):
                store_f32(shares + 4 * j, load_f32(shares + 4 * j) / sum_taken)


@helper
def _logits(at, n):
    """16 logits; those past the last count as very low."""
    if n >= 16:
        return load_f(at)
    return where_less(lane_index(), splat_i(n), load_f_part(at, n), splat_f(_LOWEST))


@helper
def _softmax(logits, n, out):
    """exp(logit - largest) to ``out``; returns their sum."""
    top = splat_f(_LOWEST)
    for i in range(0, n, 16):
        top = maximum(top, _logits(logits + 4 * i, n - i))
    top = splat_f(max_lanes(top))
    total = splat_f(0.0)
    for i in range(0, n, 16):
        weight = exp16(_logits(logits + 4 * i, n - i) - top)
        store_f(out + 4 * i, weight)
        total = total + weight
    return sum_lanes(total)


@helper
def _insert(chosen, shares, count, expert, share):
    """Insert into ``count`` entries that ascend by expert."""
    j = count
    while j > 0 and load_i32(chosen + 4 * (j - 1)) > expert:
        store_i32(chosen + 4 * j, load_i32(chosen + 4 * (j - 1)))
        store_f32(shares + 4 * j, load_f32(shares + 4 * (j - 1)))
        j -= 1
    store_i32(chosen + 4 * j, expert)
    store_f32(shares + 4 * j, share)


@kernel
def assign_slots(context, args, begin, end, scratch):
    """Order the pairs by expert (a counting sort), note which experts have any, and where each slot reads its row."""
    pairs = get(context, C_ROWS) * get(args, T_USED)
    n = get(args, T_EXPERTS)
    counts = get(args, T_COUNTS)
    for e in range(n):
        put(counts, e, 0)
    for i in range(pairs):
        e = load_i32(get(args, T_CHOSEN) + 4 * i)
        put(counts, e, get(counts, e) + 1)
    first = 0
    active = 0
    for e in range(n):
        count = get(counts, e)
        if count > 0:
            record = get(args, T_ACTIVE) + 24 * active
            put(record, 0, e)
            put(record, 1, first)
            put(record, 2, count)
            active += 1
        put(counts, e, first)
        first += count
    for i in range(pairs):
        e = load_i32(get(args, T_CHOSEN) + 4 * i)
        slot = get(counts, e)
        put(counts, e, slot + 1)
        store_i32(get(args, T_SLOT_OF) + 4 * i, slot)
        row = i // get(args, T_USED)
        put(get(args, T_GATE_SLOTS), slot, get(get(args, T_GATE_ROWS), row))
        put(get(args, T_UP_SLOTS), slot, get(get(args, T_UP_ROWS), row))
    put(context, C_EXPERTS, active)
    put(context, C_SLOTS, pairs)


@kernel
def matmul_experts(context, args, begin, end, scratch):
    """Units [begin, end) of one of the mixture's products: unit u is block u % blocks of active expert u // blocks.

    ``P_RECORDS`` points at one record of product arguments for each expert.
    """
    blocks = get(args, P_BLOCKS)
    for unit in range(begin, end):
        active = get(args, P_ACTIVE) + 24 * (unit // blocks)
        record = get(args, P_RECORDS) + get(args, P_RECORD_BYTES) * get(active, 0)
        block = unit % blocks
        run_tiles(record, get(active, 1), get(active, 2), block, block + 1, scratch)


@kernel
def combine_experts(context, args, begin, end, scratch):
    """out += Σ share * slot * scale over the row's experts in ascending order."""
    used = get(args, W_USED)
    scale = splat_f(get_f(args, W_SCALE))
    for row in range(begin, end):
        out = get(get(args, W_OUT_ROWS), row)
        for i in range(0, get(args, W_WIDTH), 16):
            total = splat_f(0.0)
            for j in range(row * used, (row + 1) * used):
                slot = get(get(args, W_SLOTS), load_i32(get(args, W_SLOT_OF) + 4 * j))
                total = fma(load_f(slot + 4 * i), splat_f(load_f32(get(args, W_SHARES) + 4 * j)), total)
            store_f(out + 4 * i, load_f(out + 4 * i) + total * scale)
