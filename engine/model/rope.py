"""Tables of cos and sin for rotary embeddings, with the ways in which models stretch them to longer contexts."""

from __future__ import annotations

import math

import numpy as np

from engine.kernels.ops import RopeTable
from engine.model.config import RopeConfig

_YARN_FAST, _YARN_SLOW = 32.0, 1.0


def rope_table(config: RopeConfig, n_ctx: int, *, factors: np.ndarray | None = None) -> RopeTable:
    """The table for positions 0 … n_ctx - 1.

    ``factors`` float32[rotated / 2] divide the frequencies one by one (Llama 3.1, Phi-3's longrope). Computed in
    float64, stored in float32.
    """
    frequency = config.base ** (-np.arange(0, config.rotated, 2, dtype=np.float64) / config.rotated)
    magnitude = config.magnitude
    if factors is not None:
        frequency = frequency / factors.astype(np.float64)
    if config.scaling == "linear":
        frequency = frequency / config.factor
    elif config.scaling == "yarn" and config.factor > 1:
        frequency = _yarn(frequency, config)
        magnitude *= 1.0 + 0.1 * math.log(config.factor)
    angle = np.arange(n_ctx, dtype=np.float64)[:, None] * frequency[None, :]
    cos = (np.cos(angle) * magnitude).astype(np.float32)
    sin = (np.sin(angle) * magnitude).astype(np.float32)
    return RopeTable(cos, sin)


def _yarn(frequency: np.ndarray, config: RopeConfig) -> np.ndarray:
    """Peng et al. 2023: frequencies that turn rarely within the original context are stretched, quick ones kept."""

    def dimension(turns: float) -> float:
        wavelengths = config.original_context / (turns * 2 * math.pi)
        return config.rotated * math.log(wavelengths) / (2 * math.log(config.base))

    low = max(0.0, math.floor(dimension(_YARN_FAST)))
    high = min(config.rotated - 1.0, math.ceil(dimension(_YARN_SLOW)))
    ramp = np.clip((np.arange(len(frequency)) - low) / max(0.001, high - low), 0.0, 1.0)
    return np.asarray(frequency * (1 - ramp) + frequency / config.factor * ramp)
