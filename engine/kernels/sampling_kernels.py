"""Kernels that choose tokens without sorting the vocabulary (see ``sampling``).

One pass notes the largest logit of every block of 128 tokens; the k-th largest of these bounds the k-th largest logit
from below, so that only few tokens remain to be looked at. For top-p, tokens too light to matter even together are left
out. Among what remains, the boundary is found by selection (Hoare's). Weights are summed in float64 and in ascending
order of tokens.
"""

from __future__ import annotations

import math

import numpy as np

from engine.kernels.kernel import helper, kernel
from engine.kernels.sampling_edits import (
    L_LOGITS,
    L_MIN_P,
    L_TEMPERATURE,
    L_TOKEN,
    L_TOP_K,
    L_TOP_P,
    L_UNIFORM,
    L_VOCAB,
    RECORD_BYTES,
    adjust,
)
from engine.kernels.simd import (
    first_lane,
    get,
    get_d,
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

BLOCK = 128
_LOWEST = -3.4e38
_MARGIN = 1e-4
BUCKETS, _BUCKETS_A_UNIT = 1536, 16


@helper
def _logits_at(x, i, n):
    """16 logits from ``i`` on; those past the last, and NaN, are at least as low as any."""
    if n - i >= 16:
        return load_f(x + 4 * i)
    return where_less(lane_index(), splat_i(n - i), load_f_part(x + 4 * i, n - i), splat_f(_LOWEST))


@helper
def _note_maxima(x, n, maxima):
    """The largest logit of each block; returns the largest of all."""
    top = np.float32(_LOWEST)
    for start in range(0, n, BLOCK):
        best = splat_f(_LOWEST)
        for i in range(start, min(start + BLOCK, n), 16):
            best = maximum(_logits_at(x, i, n), best)
        own = max_lanes(best)
        store_f32(maxima + start // BLOCK * 4, own)
        top = max(top, own)
    return top


@helper
def _find(x, n, maxima, value):
    """The first token with this logit (0 if there is none)."""
    for start in range(0, n, BLOCK):
        if load_f32(maxima + start // BLOCK * 4) == value:
            for i in range(start, min(start + BLOCK, n)):
                if load_f32(x + 4 * i) == value:
                    return i
    return 0


@helper
def _select(values, weights, n, target):
    """Where a descending walk through ``values`` reaches ``target`` in weight: (the value there, the weight of those
    above it). Reorders both arrays."""
    low = 0
    high = n
    above = 0.0
    while True:
        pivot = load_f32(values + 4 * (low + (high - low) // 2))
        larger, i, smaller = low, low, high
        weight_larger = 0.0
        weight_same = 0.0
        while i < smaller:
            value = load_f32(values + 4 * i)
            weight = load_f32(weights + 4 * i)
            if value > pivot:
                weight_larger += weight
                _swap(values, i, larger)
                _swap(weights, i, larger)
                larger += 1
                i += 1
            elif value < pivot:
                smaller -= 1
                _swap(values, i, smaller)
                _swap(weights, i, smaller)
            else:
                weight_same += weight
                i += 1
        if above + weight_larger >= target and larger > low:
            high = larger
        elif above + weight_larger + weight_same >= target or smaller == high:
            return pivot, above + weight_larger
        else:
            above += weight_larger + weight_same
            low = smaller


@helper
def _swap(array, i, j):
    first = load_f32(array + 4 * i)
    store_f32(array + 4 * i, load_f32(array + 4 * j))
    store_f32(array + 4 * j, first)


@helper
def _gather(x, n, maxima, limit, tokens, values):
    """Tokens with logits of at least ``limit``, in ascending order; returns how many."""
    count = 0
    for start in range(0, n, BLOCK):
        if load_f32(maxima + start // BLOCK * 4) >= limit:
            for i in range(start, min(start + BLOCK, n)):
                value = load_f32(x + 4 * i)
                if value >= limit:
                    store_i32(tokens + 4 * count, i)
                    store_f32(values + 4 * count, value)
                    count += 1
    return count


@helper
def _keep(tokens, values, count, boundary, ties):
    """Drop what is below ``boundary``, and of those at it all but the first ``ties``; returns how many are left."""
    kept = 0
    for i in range(count):
        value = load_f32(values + 4 * i)
        if value > boundary or (value == boundary and ties > 0):
            if value == boundary:
                ties -= 1
            store_i32(tokens + 4 * kept, load_i32(tokens + 4 * i))
            store_f32(values + 4 * kept, value)
            kept += 1
    return kept


@helper
def _weigh(values, count, top, temperature, weights):
    """exp((value - top) / temperature)."""
    for i in range(0, count, 16):
        store_f(weights + 4 * i, exp16((load_f(values + 4 * i) - splat_f(top)) / splat_f(temperature)))


@helper
def _sum(weights, count):
    total = 0.0
    for i in range(count):
        total += load_f32(weights + 4 * i)
    return total


@helper
def _weigh_blocks(x, n, maxima, top, temperature, sums):
    """The weight of each block as float32; returns the sum of these."""
    total = 0.0
    for start in range(0, n, BLOCK):
        own = np.float32(0)
        if load_f32(maxima + start // BLOCK * 4) > top - np.float32(88) * temperature:
            acc = splat_f(0.0)
            for i in range(start, min(start + BLOCK, n), 16):
                value = maximum(_logits_at(x, i, n), splat_f(_LOWEST))
                acc = acc + exp16((value - splat_f(top)) / splat_f(temperature))
            own = sum_lanes(acc)
        store_f32(sums + start // BLOCK * 4, own)
        total += own
    return total


@helper
def _draw(tokens, weights, count, target):
    """The token where the running sum passes ``target``."""
    run = 0.0
    for i in range(count):
        run += load_f32(weights + 4 * i)
        if run > target:
            return load_i32(tokens + 4 * i)
    return load_i32(tokens + 4 * (count - 1))


@helper
def _copy(source, target, count):
    for i in range(0, count, 16):
        store_f(target + 4 * i, load_f(source + 4 * i))


@helper
def _draw_from_all(x, n, sums, top, temperature, target, tokens, values, weights):
    """As ``_draw`` over the whole vocabulary, by blocks."""
    run = 0.0
    last = 0
    for start in range(0, n, BLOCK):
        own = load_f32(sums + start // BLOCK * 4)
        if own > 0:
            last = start
            if run + own > target:
                break
        run += own
    count = 0
    for i in range(last, min(last + BLOCK, n)):
        value = load_f32(x + 4 * i)
        if value > _LOWEST:
            store_i32(tokens + 4 * count, i)
            store_f32(values + 4 * count, value)
            count += 1
    _weigh(values, count, top, temperature, weights)
    return _draw(tokens, weights, count, target - run)


@helper
def _bound(top, temperature, share):
    """A logit below which a token weighs less than ``share`` for certain."""
    return np.float32(max(top + temperature * (math.log(share) - _MARGIN), _LOWEST))


@helper
def _nucleus(tokens, values, weights, count, target, top, temperature, spare, heavy):
    """Keep the fewest candidates, largest first, that hold ``target`` of weight; returns how many.

    Weights are summed by buckets of 1/16 of log weight first, so that only the bucket in which the walk ends needs a
    selection.
    """
    for i in range(BUCKETS):
        store_f32(spare + 4 * i, 0.0)
    for i in range(count):
        at = spare + 4 * _bucket(load_f32(values + 4 * i), top, temperature)
        store_f32(at, load_f32(at) + load_f32(weights + 4 * i))
    above = 0.0
    last = 0
    for i in range(BUCKETS):
        own = load_f32(spare + 4 * i)
        if own > 0:
            last = i
            if above + own >= target:
                break
            above += own
    inside = 0
    above = 0.0
    for i in range(count):
        value = load_f32(values + 4 * i)
        weight = load_f32(weights + 4 * i)
        bucket = _bucket(value, top, temperature)
        if bucket < last:
            above += weight
        elif bucket == last:
            store_f32(spare + 4 * inside, value)
            store_f32(heavy + 4 * inside, weight)
            inside += 1
    boundary, more = _select(spare, heavy, inside, target - above)
    above += more
    own = exp16((splat_f(boundary) - splat_f(top)) / splat_f(temperature))
    ties = max(1, int(math.ceil((target - above) / first_lane(own))))
    return _keep(tokens, values, count, boundary, ties)


@helper
def _bucket(value, top, temperature):
    """Which bucket a logit's weight falls into; the first is the heaviest."""
    return min(int((top - value) / temperature * _BUCKETS_A_UNIT), BUCKETS - 1)


@helper
def _heavy_enough(tokens, weights, count, least):
    """Keep candidates with at least this weight; returns how many."""
    kept = 0
    for i in range(count):
        weight = load_f32(weights + 4 * i)
        if weight >= least:
            store_i32(tokens + 4 * kept, load_i32(tokens + 4 * i))
            store_f32(weights + 4 * kept, weight)
            kept += 1
    return kept


@helper
def _ones(array, count):
    for i in range(0, count, 16):
        store_f(array + 4 * i, splat_f(1.0))


@helper
def _largest(tokens, values, count, k, spare, ones):
    """Keep the ``k`` largest of more candidates; returns ``k``."""
    _copy(values, spare, count)
    _ones(ones, count)
    boundary, above = _select(spare, ones, count, float(k))
    return _keep(tokens, values, count, boundary, k - int(above))


@helper
def _kth_maximum(maxima, blocks, k, spare, ones):
    """The k-th largest of the blocks' maxima: at least k logits are as large."""
    _copy(maxima, spare, blocks)
    _ones(ones, blocks)
    return _select(spare, ones, blocks, float(k))[0]


@helper
def _sample(record, scratch):
    """The token of one row, as ``sampling_reference.draw`` defines it."""
    x, n, k = get(record, L_LOGITS), get(record, L_VOCAB), get(record, L_TOP_K)
    span = 4 * ((n + 31) // 16 * 16)
    maxima, sums, tokens = scratch, scratch + span, scratch + 2 * span
    values, weights, spare = tokens + span, tokens + 2 * span, tokens + 3 * span
    temperature, p, least = get_f(record, L_TEMPERATURE), get_d(record, L_TOP_P), get_d(record, L_MIN_P)
    u = get_d(record, L_UNIFORM)
    top = _note_maxima(x, n, maxima)
    if temperature <= 0 or top > -_LOWEST or top == np.float32(_LOWEST):
        return _find(x, n, maxima, top)
    blocks = (n + BLOCK - 1) // BLOCK
    limit = np.float32(_LOWEST)
    total = 0.0
    some = 0 < k < n
    if some:
        if k <= blocks:
            limit = _kth_maximum(maxima, blocks, k, spare, sums)
    elif p < 1 or least <= 0:
        total = _weigh_blocks(x, n, maxima, top, temperature, sums)
        if p >= 1:
            return _draw_from_all(x, n, sums, top, temperature, u * total, tokens, values, weights)
        limit = _bound(top, temperature, (1 - p) * total / n)
    else:
        limit = _bound(top, temperature, least)
    count = _gather(x, n, maxima, limit, tokens, values)
    if some and count > k:
        count = _largest(tokens, values, count, k, spare, sums)
    _weigh(values, count, top, temperature, weights)
    if p < 1:
        if some:
            total = _sum(weights, count)
        count = _nucleus(tokens, values, weights, count, p * total, top, temperature, spare, sums)
        _weigh(values, count, top, temperature, weights)
    if least > 0:
        count = _heavy_enough(tokens, weights, count, least)
    return _draw(tokens, weights, count, u * _sum(weights, count))


@kernel
def sample_tokens(context, args, begin, end, scratch):
    """Sample rows [begin, end); bias and penalties are undone afterwards."""
    for row in range(begin, end):
        record = args + RECORD_BYTES * row
        edits = adjust(record, scratch)
        used = (8 * edits + 63) // 64 * 64
        put(record, L_TOKEN, _sample(record, scratch + used))
        for i in range(edits):
            at = get(record, L_LOGITS) + 4 * load_i32(scratch + 8 * i)
            store_f32(at, load_f32(scratch + 8 * i + 4))
