"""Qwen 1.5 and 2 mixtures of experts: many small experts and a gated shared one."""

from __future__ import annotations

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention


def build(b: Builder) -> Program:
    """Qwen2's attention; the chosen experts keep the share that the softmax over all of them gave."""
    b.embed()
    rope = b.rope()
    feed_forward = FeedForward(b)
    for layer in range(b.config.n_layers):
        attention(b, layer, rope=rope)
        feed_forward.experts(layer, renormalize=False)
    return b.finish()
