"""OLMo 2: norms only after each block, and over the whole rows of q and k."""

from __future__ import annotations

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention


def build(b: Builder) -> Program:
    """Post-norm layers, rotary halves."""
    b.embed()
    rope = b.rope()
    feed_forward = FeedForward(b)
    for layer in range(b.config.n_layers):
        attention(b, layer, rope=rope, norms="post", qk_norms="row")
        feed_forward.dense(layer, norms="post")
    return b.finish()
