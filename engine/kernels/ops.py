"""The forward pass as data: an architecture emits a ``Program`` of typed operations over named registers.

Two executors run the same program: the NumPy interpreter in ``reference.py`` (the oracle, float32 throughout) and the
compiled one in ``executor.py`` (one call per thread and step). Architectures know neither.

Registers are float32[rows, width] scratch buffers, one row per token of the batch; weights are ``Tensor``s as they lie
in the file. Shapes are (out features, in features), so a product is ``out[r] = W @ x[r]``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """A weight as it lies in the file.

    ``type`` is a ``gguf.GGMLQuantizationType`` value; ``shape`` is C order: (cols,), (rows, cols) or
    (experts, rows, cols); ``data`` the raw bytes, uint8, usually a view of a memory map. ``rows`` of a 2-D tensor are
    contiguous blocks of whole rows, so row slices (for fused q/k/v) are views too.
    """

    name: str
    type: int
    shape: tuple[int, ...]
    data: np.ndarray


@dataclass(frozen=True, slots=True)
class Reg:
    """A register: ``index`` into ``Program.registers``, ``width`` floats a row."""

    index: int
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class RopeTable:
    """cos and sin, float32[n_ctx, rotated / 2] each, any frequency factors and magnitude scale included."""

    cos: np.ndarray
    sin: np.ndarray


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """out = table[token] * scale."""

    out: Reg
    table: Tensor
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class RmsNorm:
    """out = x / sqrt(mean(x²) + eps) * weight, over each of ``groups`` equal parts of a row (heads for q/k norms,
    whose weight has width / groups entries; a weight with ``width`` entries runs over the row). ``out`` may be ``x``.
    """

    out: Reg
    x: Reg
    weight: Tensor | None
    eps: float
    groups: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Matmul:
    """out = (W x + bias) * scale, or out += (W x + bias) * scale with ``add`` (the residual stream)."""

    out: Reg
    x: Reg
    weight: Tensor
    bias: Tensor | None = None
    add: bool = False
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Rope:
    """Rotate the first ``rotated`` entries of each head in place, by the row's position.

    ``pairs`` "adjacent": (0,1), (2,3), … as in llama files; "halves": (i, i + rotated/2), the NeoX order.
    """

    x: Reg
    heads: int
    head_size: int
    rotated: int
    table: RopeTable
    pairs: Literal["adjacent", "halves"]


@dataclass(frozen=True, slots=True, eq=False)
class StoreKV:
    """Write the row's k and v (kv_heads * head_size each) to its page, in the pool's dtype."""

    layer: int
    k: Reg
    v: Reg


@dataclass(frozen=True, slots=True, eq=False)
class Attend:
    """Causal attention over the row's own sequence, read from pages (the current rows included, as stored).

    score = scale * q·k, then softcap * tanh(score / softcap) if ``softcap`` > 0; positions p with
    p > row position - window only, if ``window`` > 0. Query head h reads kv head h // (heads / kv_heads).
    """

    out: Reg
    q: Reg
    layer: int
    heads: int
    kv_heads: int
    head_size: int
    scale: float
    softcap: float = 0.0
    window: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Glu:
    """out = act(gate) * up. ``out`` may be ``gate`` or ``up``.

    "gelu" is the tanh approximation as ggml has it: its argument is rounded to half precision and so is its value; from
    10 on it is the (unrounded) argument, up to -10 it is 0. Without these roundings Gemma's logits differ visibly.
    """

    out: Reg
    gate: Reg
    up: Reg
    act: Literal["silu", "gelu"]


@dataclass(frozen=True, slots=True, eq=False)
class Add:
    """out = a + b * scale. ``out`` may be ``a`` or ``b``."""

    out: Reg
    a: Reg
    b: Reg
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Scale:
    """out = x * factor."""

    out: Reg
    x: Reg
    factor: float


@dataclass(frozen=True, slots=True, eq=False)
class Softcap:
    """out = cap * tanh(x / cap)."""

    out: Reg
    x: Reg
    cap: float


@dataclass(frozen=True, slots=True, eq=False)
class SigmoidGate:
    """out = x * sigmoid(gate), where ``gate`` has width 1 (the shared expert's gate)."""

    out: Reg
    x: Reg
    gate: Reg


@dataclass(frozen=True, slots=True, eq=False)
class Experts:
    """A mixture of gated feed-forward experts, added to ``out``.

    probabilities = softmax(router_logits); the ``used`` largest (ties: lower index first) are taken, divided by their
    sum if ``renormalize``; out += Σ p_e * down_e (act(gate_e x) * (up_e x)) * scale, experts in ascending index.
    """

    out: Reg
    x: Reg
    router_logits: Reg
    gate: Tensor
    up: Tensor
    down: Tensor
    used: int
    act: Literal["silu", "gelu"]
    renormalize: bool
    scale: float = 1.0


Op = Embed | RmsNorm | Matmul | Rope | StoreKV | Attend | Glu | Add | Scale | Softcap | SigmoidGate | Experts


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """A forward pass. ``body`` runs for all rows; ``head`` only for the rows whose logits are wanted.

    ``residual`` is the register that the head reads (the executor gathers wanted rows first), ``hidden`` the one that
    holds the final normed state after the first op of the head, ``logits`` the head's last output (width n_vocab).
    """

    body: tuple[Op, ...]
    head: tuple[Op, ...]
    registers: tuple[int, ...]
    residual: Reg
    hidden: Reg
    logits: Reg
    n_layers: int
    kv_heads: int
    head_size: int
    n_ctx: int
    n_vocab: int


@dataclass(slots=True, eq=False)
class Batch:
    """The rows of one step. Every row is one token of one sequence.

    ``tokens``, ``positions``, ``owner``: int32[n]; ``owner[r]`` indexes ``tables``, the block tables (int32, page ids,
    entry i covers positions [i * page_rows, (i + 1) * page_rows)). ``memory`` uint8[pages, page_bytes] is the pool's.
    Inside a page, by layer: K as [kv_heads][head_size][page_rows] (so that 16 positions lie side by side), then V as
    [kv_heads][page_rows][head_size]; element type ``kv_dtype``. ``page_rows`` is a multiple of 16.
    ``wanted`` int32[k]: the rows whose logits are written to ``logits[j]``, float32[n_vocab] each.
    ``hidden``, if given, receives the wanted rows' final normed states, float32[k, width]; with ``hidden`` given,
    ``logits`` may be empty: then only the first op of the head runs. ``lane`` is the arithmetic of all rows of the
    step; it is chosen by what the rows are (prompt or generated), never by their number.
    """

    tokens: np.ndarray
    positions: np.ndarray
    owner: np.ndarray
    tables: list[np.ndarray]
    memory: np.ndarray
    page_rows: int
    wanted: np.ndarray
    logits: list[np.ndarray]
    hidden: np.ndarray | None = None
    lane: Literal["prompt", "generated"] = "generated"
