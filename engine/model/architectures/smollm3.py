"""SmolLM3: llama's layers, but every fourth has no positions at all."""

from __future__ import annotations

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention

_NO_ROPE_EVERY = 4


def build(b: Builder) -> Program:
    """Pre-norm layers, adjacent rotary pairs, NoPE in layers 3, 7, 11, …"""
    b.embed()
    rope = b.rope()
    feed_forward = FeedForward(b)
    for layer in range(b.config.n_layers):
        attention(b, layer, rope=None if (layer + 1) % _NO_ROPE_EVERY == 0 else rope, pairs="adjacent")
        feed_forward.dense(layer)
    return b.finish()
