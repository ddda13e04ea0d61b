"""IBM Granite 3: llama's layers with multipliers on embeddings, scores, residuals and logits."""

from __future__ import annotations

from engine.kernels.ops import Program
from engine.model.blocks import Builder, FeedForward, attention


def build(b: Builder) -> Program:
    """Pre-norm layers, adjacent rotary pairs; logits are divided by ``logit_scale``."""
    config = b.config
    b.embed(config.embedding_scale)
    rope = b.rope()
    feed_forward = FeedForward(b)
    for layer in range(config.n_layers):
        attention(b, layer, rope=rope, pairs="adjacent", residual_scale=config.residual_scale)
        if config.experts:
            feed_forward.experts(layer, renormalize=True, residual_scale=config.residual_scale)
        else:
            feed_forward.dense(layer, residual_scale=config.residual_scale)
    return b.finish(logit_scale=1.0 / config.logit_scale)
