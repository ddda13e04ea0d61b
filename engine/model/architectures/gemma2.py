"""Gemma 2: norms before and after each block, capped scores and logits, every other layer with a sliding window."""

from __future__ import annotations

from dataclasses import replace

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention

_LAYERS_27B = 46
_WINDOW = 4096
"""Where an early file does not state it."""


def build(b: Builder) -> Program:
    """Even layers see a window, odd ones everything; the 27B model scales its scores by its own width per head."""
    config = b.config
    if config.n_layers == _LAYERS_27B:
        b.config = replace(config, attention_scale=(config.n_embd / config.n_heads) ** -0.5)
    b.embed(config.n_embd**0.5)
    rope = b.rope()
    feed_forward = FeedForward(b, act="gelu")
    pattern = config.window_pattern or 2
    for layer in range(config.n_layers):
        sees_all = (layer + 1) % pattern == 0
        attention(b, layer, rope=rope, norms="both", window=0 if sees_all else config.window or _WINDOW)
        feed_forward.dense(layer, norms="both")
    return b.finish(softcap=config.final_softcap)
