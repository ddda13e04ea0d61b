"""Qwen 2 and 2.5: llama's layers with biases on q, k and v."""

from __future__ import annotations

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention


def build(b: Builder) -> Program:
    """Pre-norm layers, rotary halves; the biases are taken where the file has them."""
    b.embed()
    rope = b.rope()
    feed_forward = FeedForward(b)
    for layer in range(b.config.n_layers):
        attention(b, layer, rope=rope)
        feed_forward.dense(layer)
    return b.finish()
