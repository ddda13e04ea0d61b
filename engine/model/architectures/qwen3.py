"""Qwen 3, dense and as a mixture of experts: norms on every head of q and k."""

from __future__ import annotations

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention


def build(b: Builder) -> Program:
    """Pre-norm layers, rotary halves; the shares of the chosen experts are made to sum to one."""
    b.embed()
    rope = b.rope()
    feed_forward = FeedForward(b)
    for layer in range(b.config.n_layers):
        attention(b, layer, rope=rope, qk_norms="heads")
        if b.config.experts:
            feed_forward.experts(layer, renormalize=True)
        else:
            feed_forward.dense(layer)
    return b.finish()
