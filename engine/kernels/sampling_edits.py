"""A row to sample as kernels see it, and the edits of its logits before the draw: bias and penalties."""

from __future__ import annotations

import numpy as np

from engine.kernels.kernel import helper
from engine.kernels.simd import get, get_f, load_f32, load_i32, store_f32, store_i32

# A row's record.
L_LOGITS, L_VOCAB, L_TEMPERATURE, L_TOP_K, L_TOP_P, L_MIN_P, L_UNIFORM = range(7)
L_BIASES, L_BIAS_TOKENS, L_BIAS_VALUES, L_HISTORY, L_PAST, L_COUNTS = range(7, 13)
L_REPETITION, L_PRESENCE, L_FREQUENCY, L_TOKEN = range(13, 17)
RECORD_WORDS = 24
RECORD_BYTES = 8 * RECORD_WORDS


@helper
def adjust(record, kept):
    """Change logits by bias and penalties; what they were goes to ``kept`` (token, logit); returns how many."""
    x, n = get(record, L_LOGITS), get(record, L_VOCAB)
    edits = 0
    for i in range(get(record, L_BIASES)):
        token = load_i32(get(record, L_BIAS_TOKENS) + 4 * i)
        if 0 <= token < n:
            edits = _note(x, token, kept, edits)
            at = x + 4 * token
            store_f32(at, load_f32(at) + load_f32(get(record, L_BIAS_VALUES) + 4 * i))
    past, length, counts = get(record, L_HISTORY), get(record, L_PAST), get(record, L_COUNTS)
    for i in range(length):
        token = load_i32(past + 4 * i)
        times = load_i32(counts + 4 * i) if counts != 0 else _times(past, length, i)
        if times > 0 and 0 <= token < n:
            edits = _note(x, token, kept, edits)
            at = x + 4 * token
            store_f32(at, _penalized(record, load_f32(at), times))
    return edits


@helper
def _note(x, token, kept, edits):
    """Note a token's logit unless it was noted before; returns how many there are."""
    for i in range(edits):
        if load_i32(kept + 8 * i) == token:
            return edits
    store_i32(kept + 8 * edits, token)
    store_f32(kept + 8 * edits + 4, load_f32(x + 4 * token))
    return edits + 1


@helper
def _times(past, length, i):
    """How often the token at ``i`` occurs from there on; 0 if it occurred before."""
    token = load_i32(past + 4 * i)
    for j in range(i):
        if load_i32(past + 4 * j) == token:
            return 0
    times = 1
    for j in range(i + 1, length):
        if load_i32(past + 4 * j) == token:
            times += 1
    return times


@helper
def _penalized(record, logit, times):
    repetition = get_f(record, L_REPETITION)
    logit = logit / repetition if logit > 0 else logit * repetition
    return logit - get_f(record, L_PRESENCE) - np.float32(times) * get_f(record, L_FREQUENCY)
