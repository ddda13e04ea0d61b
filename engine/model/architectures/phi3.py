"""Phi-3, Phi-3.5 and Phi-4-mini: q, k and v in one matrix, gate and up in another."""

from __future__ import annotations

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention


def build(b: Builder) -> Program:
    """Longrope: one set of frequency factors within the original context, another for longer ones."""
    config = b.config
    b.embed()
    original = config.rope.original_context or config.n_ctx_train
    b.weights.ignore("rope_factors_long.weight", "rope_factors_short.weight")
    rope = b.rope(factors="rope_factors_long.weight" if b.n_ctx > original else "rope_factors_short.weight")
    feed_forward = FeedForward(b)
    for layer in range(config.n_layers):
        attention(b, layer, rope=rope, window=config.window)
        feed_forward.dense(layer)
    return b.finish()
