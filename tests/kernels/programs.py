"""Small random models, weights and batches for the kernel tests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES

from engine.kernels import ops
from engine.kernels.ops import Program, Reg, RopeTable, Tensor

_SCALE_AT = {
    T.Q4_0: (0,),
    T.Q4_1: (0, 2),
    T.Q5_0: (0,),
    T.Q5_1: (0, 2),
    T.Q8_0: (0,),
    T.Q4_K: (0, 2),
    T.Q5_K: (0, 2),
    T.Q6_K: (208,),
    T.Q3_K: (108,),
    T.Q2_K: (80, 82),
    T.IQ4_NL: (0,),
    T.IQ4_XS: (0,),
    T.MXFP4: (),
}


def random_tensor(rng: np.random.Generator, kind: T, *shape: int, size: float = 0.1) -> Tensor:
    """Weights of about ``size`` in any type: random codes under random scales."""
    rows = int(np.prod(shape[:-1]))
    if kind == T.F32:
        data = (rng.standard_normal(shape) * size).astype(np.float32).reshape(rows, -1).view(np.uint8)
    elif kind == T.F16:
        data = (rng.standard_normal(shape) * size).astype(np.float16).reshape(rows, -1).view(np.uint8)
    elif kind == T.BF16:
        bits = (rng.standard_normal(shape) * size).astype(np.float32).view(np.uint32) >> 16
        data = bits.astype(np.uint16).reshape(rows, -1).view(np.uint8)
    else:
        data = _random_blocks(rng, kind, rows, shape[-1], size)
    return Tensor(f"random-{kind.name}", int(kind), shape, data)


def _random_blocks(rng: np.random.Generator, kind: T, rows: int, cols: int, size: float) -> np.ndarray:
    columns, bytes_ = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows, cols // columns, bytes_), dtype=np.uint8)
    if kind == T.MXFP4:
        blocks[:, :, 0] = 120 + rng.integers(0, 4, blocks.shape[:2])
    span = {T.Q8_0: 64, T.IQ4_NL: 64, T.Q2_K: 12, T.Q3_K: 50, T.Q4_K: 240, T.Q5_K: 480, T.Q6_K: 1000, T.IQ4_XS: 1000}
    for number, at in enumerate(_SCALE_AT[kind]):
        scale = size / span.get(kind, 8) * rng.uniform(0.5, 1.5, blocks.shape[:2])
        if number == 1:
            scale = -size * rng.uniform(0.5, 1.5, blocks.shape[:2]) if kind in (T.Q4_1, T.Q5_1) else scale * 4
        blocks[:, :, at : at + 2] = scale.astype(np.float16)[..., None].view(np.uint8)
    return blocks.reshape(rows, -1)


@dataclass(frozen=True)
class Shape:
    """Dimensions of a small llama."""

    width: int = 256
    heads: int = 6
    kv_heads: int = 2
    head_size: int = 32
    inner: int = 512
    layers: int = 2
    vocab: int = 203
    n_ctx: int = 2048


def random_llama(
    rng: np.random.Generator,
    kind: T,
    shape: Shape = Shape(),
    *,
    pairs: str = "adjacent",
    window: int = 0,
    cap: float = 0.0,
) -> Program:
    """A llama with random weights of one type; biases on q, k and v."""
    s = shape
    widths = (
        s.width,
        s.width,
        s.heads * s.head_size,
        s.kv_heads * s.head_size,
        s.kv_heads * s.head_size,
        s.heads * s.head_size,
        s.inner,
        s.inner,
        s.vocab,
    )
    x, normed, q, k, v, mixed, gate, up, logits = (Reg(i, w) for i, w in enumerate(widths))
    angles = np.arange(s.n_ctx)[:, None] / 10000.0 ** (np.arange(s.head_size // 2) * 2 / s.head_size)[None]
    table = RopeTable(np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32))

    def weight(out: Reg, source: Reg) -> Tensor:
        return random_tensor(rng, kind, out.width, source.width, size=1.5 * source.width**-0.5)

    def vector(n: int, around: float) -> Tensor:
        data = (around + 0.1 * rng.standard_normal(n)).astype(np.float32)
        return Tensor("vector", int(T.F32), (n,), data.view(np.uint8))

    embedding = random_tensor(rng, kind, s.vocab, s.width, size=1.0)
    body: list[ops.Op] = [ops.Embed(x, embedding)]
    for layer in range(s.layers):
        body += [
            ops.RmsNorm(normed, x, vector(s.width, 1), 1e-5),
            ops.Matmul(q, normed, weight(q, normed), vector(q.width, 0)),
            ops.Matmul(k, normed, weight(k, normed), vector(k.width, 0)),
            ops.Matmul(v, normed, weight(v, normed), vector(v.width, 0)),
            ops.Rope(q, s.heads, s.head_size, s.head_size, table, pairs),
            ops.Rope(k, s.kv_heads, s.head_size, s.head_size, table, pairs),
            ops.StoreKV(layer, k, v),
            ops.Attend(mixed, q, layer, s.heads, s.kv_heads, s.head_size, s.head_size**-0.5, cap, window),
            ops.Matmul(x, mixed, weight(x, mixed), add=True),
            ops.RmsNorm(normed, x, vector(s.width, 1), 1e-5),
            ops.Matmul(gate, normed, weight(gate, normed)),
            ops.Matmul(up, normed, weight(up, normed)),
            ops.Glu(gate, gate, up, "silu"),
            ops.Matmul(x, gate, weight(x, gate), add=True),
        ]
    head = (ops.RmsNorm(normed, x, vector(s.width, 1), 1e-5), ops.Matmul(logits, normed, embedding))
    return Program(tuple(body), head, widths, x, normed, logits, s.layers, s.kv_heads, s.head_size, s.n_ctx, s.vocab)


class Sequences:
    """Token sequences over one small pool, and the batches that extend them."""

    def __init__(
        self,
        program: Program,
        n: int,
        *,
        kv_dtype: str = "float16",
        page_rows: int = 16,
        pages: int = 64,
        rng: np.random.Generator | None = None,
    ) -> None:
        self.program, self.page_rows, self.dtype = program, page_rows, np.dtype(kv_dtype)
        page = program.n_layers * 2 * program.kv_heads * program.head_size * page_rows * self.dtype.itemsize
        self.memory = np.full((n * pages, page), 0xFF, np.uint8)  # NaN: what was never written must not be read
        order = np.arange(n * pages, dtype=np.int32)
        if rng is not None:
            rng.shuffle(order)
        self.tables = list(order.reshape(n, pages))
        self.past = [0] * n

    def batch(self, rows: list[tuple[int, list[int]]], *, wanted: str = "last") -> ops.Batch:
        """A step that extends sequence i by tokens, for each (i, tokens); logits of each last row (or of all)."""
        tokens, positions, owner, want = [], [], [], []
        for who, ids in rows:
            tokens += ids
            positions += range(self.past[who], self.past[who] + len(ids))
            owner += [who] * len(ids)
            self.past[who] += len(ids)
            want += [len(tokens) - 1] if wanted == "last" else range(len(tokens) - len(ids), len(tokens))
        logits = [np.full(self.program.n_vocab, np.nan, np.float32) for _ in want]
        ints = (np.array(a, np.int32) for a in (tokens, positions, owner))
        return ops.Batch(*ints, self.tables, self.memory, self.page_rows, np.array(want, np.int32), logits)
