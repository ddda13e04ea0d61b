"""Llama 1 to 3, Mistral, Mixtral and the many models in their shape (SmolLM2 among them)."""

from __future__ import annotations

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention


def build(b: Builder) -> Program:
    """Pre-norm layers, adjacent rotary pairs, frequency factors (Llama 3.1) and experts (Mixtral) where present."""
    b.embed()
    rope = b.rope(factors="rope_freqs.weight")
    feed_forward = FeedForward(b)
    for layer in range(b.config.n_layers):
        attention(b, layer, rope=rope, pairs="adjacent")
        if b.config.experts:
            feed_forward.experts(layer, renormalize=True)
        else:
            feed_forward.dense(layer)
    return b.finish()
