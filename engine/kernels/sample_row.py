"""What is wanted of one row of logits; apart from the kernels, since most of the project needs only this."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class SampleRow:
    """One row to sample: ``logits`` float32[n_vocab] (left unchanged), and how. ``history`` are the tokens that
    penalties look at; ``mask`` bool[n_vocab] the tokens allowed; ``u`` in [0, 1) is the draw."""

    logits: np.ndarray
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    history: Sequence[int] = ()
    bias: tuple[tuple[int, float], ...] = ()
    mask: np.ndarray | None = None
    u: float = 0.0
