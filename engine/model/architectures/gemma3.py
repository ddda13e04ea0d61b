"""Gemma 3 (text): norms around each block and on q and k, five windowed layers to each that sees everything."""

from __future__ import annotations

from dataclasses import replace

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention
from engine.model.config import RopeConfig
from engine.model.rope import rope_table

_LAYERS_27B = 62


def build(b: Builder) -> Program:
    """Windowed layers turn by a base of their own, unstretched; the 27B model scales scores by its width per head."""
    config = b.config
    if config.n_layers == _LAYERS_27B:
        b.config = replace(config, attention_scale=(config.n_embd / config.n_heads) ** -0.5)
    b.embed(config.n_embd**0.5)
    whole = b.rope()
    local = rope_table(RopeConfig(base=config.local_rope_base, rotated=config.rope.rotated), b.n_ctx)
    feed_forward = FeedForward(b, act="gelu")
    pattern = config.window_pattern or 6
    for layer in range(config.n_layers):
        sees_all = (layer + 1) % pattern == 0
        rope, window = (whole, 0) if sees_all else (local, config.window)
        attention(b, layer, rope=rope, norms="both", qk_norms="heads", window=window)
        feed_forward.dense(layer, norms="both")
    return b.finish(softcap=config.final_softcap)
