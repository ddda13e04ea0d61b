"""The oracle: a NumPy interpreter of ``Program``, float32 throughout over dequantized weights.

It is meant to be read and to be believed. Keys and values are stored in the pool's page layout and read back in their
stored type, as the compiled executor does. Results do not repeat bit for bit between batch shapes, since BLAS may
choose another order of summation.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, assert_never

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from engine.kernels import ops, sampling_reference
from engine.kernels.ops import Batch, Op, Program, Reg, Tensor

if TYPE_CHECKING:
    from engine.kernels.sample_row import SampleRow


def to_float32(tensor: Tensor) -> np.ndarray:
    """The dequantized weights, float32[shape]."""
    rows = tensor.data.reshape(int(np.prod(tensor.shape[:-1])), -1)
    return _dequantize(rows, tensor.type).reshape(tensor.shape)


def _dequantize(rows: np.ndarray, kind: int) -> np.ndarray:
    """Dequantize uint8[rows, row bytes] to float32[rows, cols]."""
    return np.asarray(dequantize(np.ascontiguousarray(rows), GGMLQuantizationType(kind)), dtype=np.float32)


class NumpyExecutor:
    """Runs the steps of one program. Not thread-safe: registers belong to the executor."""

    def __init__(self, program: Program, *, max_rows: int, kv_dtype: str = "float16") -> None:
        self.program = program
        self.max_rows = max_rows
        self.kv_dtype = np.dtype(kv_dtype)
        self.threads = 1
        self._times: dict[str, float] = {}
        self._weights: dict[int, np.ndarray] = {}
        self._values: list[np.ndarray] = [np.zeros((0, width), np.float32) for width in program.registers]

    def step(self, batch: Batch) -> None:
        """Evaluate the rows of ``batch``: writes their keys and values to the pool, then the wanted logits."""
        if len(batch.tokens) > self.max_rows:
            raise ValueError(f"a step has at most {self.max_rows} rows, not {len(batch.tokens)}")
        for op in self.program.body:
            self._timed(op, batch)
        if not len(batch.wanted):
            return
        residual = self.program.residual.index
        self._values[residual] = self._values[residual][batch.wanted]
        only_hidden = batch.hidden is not None and not batch.logits
        for op in self.program.head[:1] if only_hidden else self.program.head:
            self._timed(op, batch)
        if batch.hidden is not None:
            batch.hidden[:] = self._get(self.program.hidden)
        for row, logits in enumerate(batch.logits):
            logits[:] = self._get(self.program.logits)[row]

    def set_threads(self, threads: int) -> None:
        """Kept for the interface's sake: NumPy decides by itself how many threads its products take."""
        self.threads = threads

    def sample(self, rows: Sequence[SampleRow]) -> list[int]:
        """The next token of each row."""
        return [_sample(row) for row in rows]

    def profile(self, on: bool) -> None:
        """Start counting time by operation from zero (or stop: counting costs nothing here, so it just goes on)."""
        if on:
            self._times.clear()

    def times(self) -> dict[str, float]:
        """Seconds by kind of operation since ``profile(True)``."""
        return dict(self._times)

    def close(self) -> None:
        """Forget the dequantized weights."""
        self._weights.clear()

    def _get(self, register: Reg) -> np.ndarray:
        return self._values[register.index]

    def _set(self, register: Reg, value: np.ndarray) -> None:
        self._values[register.index] = value

    def _weight(self, tensor: Tensor) -> np.ndarray:
        key = id(tensor)
        if key not in self._weights:
            self._weights[key] = to_float32(tensor)
        return self._weights[key]

    def _timed(self, op: Op, batch: Batch) -> None:
        start, kind = time.perf_counter(), type(op).__name__
        self._run(op, batch)
        self._times[kind] = self._times.get(kind, 0.0) + time.perf_counter() - start

    def _run(self, op: Op, batch: Batch) -> None:
        """One operation, as ``ops`` defines it."""
        match op:
            case ops.Embed():
                self._set(op.out, self._embed(op.table, batch.tokens) * np.float32(op.scale))
            case ops.RmsNorm():
                self._set(op.out, self._rms_norm(op))
            case ops.Matmul():
                value = self._get(op.x) @ self._weight(op.weight).T
                if op.bias is not None:
                    value = value + self._weight(op.bias)
                value = value * np.float32(op.scale)
                self._set(op.out, self._get(op.out) + value if op.add else value)
            case ops.Rope():
                self._set(op.x, rope(self._get(op.x), op, batch.positions))
            case ops.StoreKV():
                self._store(op, batch)
            case ops.Attend():
                self._set(op.out, self._attend(op, batch))
            case ops.Glu():
                self._set(op.out, activation(self._get(op.gate), op.act) * self._get(op.up))
            case ops.Add():
                self._set(op.out, self._get(op.a) + self._get(op.b) * np.float32(op.scale))
            case ops.Scale():
                self._set(op.out, self._get(op.x) * np.float32(op.factor))
            case ops.Softcap():
                self._set(op.out, softcap(self._get(op.x), op.cap))
            case ops.SigmoidGate():
                self._set(op.out, self._get(op.x) * sigmoid(self._get(op.gate)))
            case ops.Experts():
                self._set(op.out, self._get(op.out) + self._experts(op) * np.float32(op.scale))
            case _:
                assert_never(op)

    def _embed(self, table: Tensor, tokens: np.ndarray) -> np.ndarray:
        """Rows of the table; only these are dequantized unless the whole table is cached as the output weight."""
        if id(table) in self._weights:
            return self._weights[id(table)][tokens]
        return _dequantize(table.data.reshape(table.shape[0], -1)[tokens], table.type)

    def _rms_norm(self, op: ops.RmsNorm) -> np.ndarray:
        x = self._get(op.x)
        parts = x.reshape(len(x), op.groups, -1)
        normed = parts / np.sqrt(np.mean(parts * parts, axis=-1, keepdims=True) + np.float32(op.eps))
        if op.weight is None:
            return normed.reshape(x.shape)
        weight = self._weight(op.weight)
        return (normed * weight.reshape(-1, parts.shape[-1])).reshape(x.shape)

    def _layer(self, batch: Batch, layer: int, kv_heads: int, head_size: int) -> tuple[np.ndarray, np.ndarray]:
        """Views of one layer of the pool: K [pages, kv_heads, head_size, page_rows], V [pages, kv_heads, page_rows,
        head_size]."""
        pages = batch.memory.view(self.kv_dtype)
        size = kv_heads * head_size * batch.page_rows
        start = layer * 2 * size
        k = pages[:, start : start + size].reshape(-1, kv_heads, head_size, batch.page_rows)
        v = pages[:, start + size : start + 2 * size].reshape(-1, kv_heads, batch.page_rows, head_size)
        return k, v

    def _store(self, op: ops.StoreKV, batch: Batch) -> None:
        kv_heads, head_size = self.program.kv_heads, self.program.head_size
        pages_k, pages_v = self._layer(batch, op.layer, kv_heads, head_size)
        block, slot = np.divmod(batch.positions, batch.page_rows)
        page = np.array([batch.tables[owner][b] for owner, b in zip(batch.owner, block, strict=True)], dtype=np.int64)
        pages_k[page, :, :, slot] = self._get(op.k).reshape(-1, kv_heads, head_size)
        pages_v[page, :, slot, :] = self._get(op.v).reshape(-1, kv_heads, head_size)

    def _attend(self, op: ops.Attend, batch: Batch) -> np.ndarray:
        q = self._get(op.q)
        out = np.empty_like(q)
        pages_k, pages_v = self._layer(batch, op.layer, op.kv_heads, op.head_size)
        for owner in np.unique(batch.owner):
            rows = np.flatnonzero(batch.owner == owner)
            positions = batch.positions[rows]
            past = positions.max() + 1
            used = batch.tables[owner][: -(-past // batch.page_rows)]
            k = pages_k[used].astype(np.float32).transpose(1, 2, 0, 3).reshape(op.kv_heads, op.head_size, -1)
            v = pages_v[used].astype(np.float32).transpose(1, 0, 2, 3).reshape(op.kv_heads, -1, op.head_size)
            out[rows] = attention(q[rows], k[..., :past], v[:, :past], positions, op)
        return out

    def _experts(self, op: ops.Experts) -> np.ndarray:
        x, logits = self._get(op.x), self._get(op.router_logits)
        probabilities = softmax(logits)
        chosen = np.argsort(-probabilities, axis=1, kind="stable")[:, : op.used]
        out = np.zeros((len(x), op.down.shape[1]), np.float32)
        gate, up, down = (self._weight(tensor) for tensor in (op.gate, op.up, op.down))
        total = np.take_along_axis(probabilities, chosen, axis=1).sum(axis=1, keepdims=True)
        share = probabilities / total if op.renormalize else probabilities
        for expert in range(op.gate.shape[0]):
            rows = np.flatnonzero((chosen == expert).any(axis=1))
            mixed = activation(x[rows] @ gate[expert].T, op.act) * (x[rows] @ up[expert].T)
            out[rows] += share[rows, expert : expert + 1] * (mixed @ down[expert].T)
        return out


def _sample(row: SampleRow) -> int:
    logits = row.logits if row.mask is None else np.where(row.mask, row.logits, np.float32(-np.inf))
    penalties = {"repetition": row.repetition, "presence": row.presence, "frequency": row.frequency}
    x = sampling_reference.adjust(logits, np.asarray(row.history, np.int64), bias=row.bias, **penalties)
    limits = {"top_p": row.top_p, "min_p": row.min_p}
    return sampling_reference.draw(x, row.u, temperature=row.temperature, top_k=row.top_k, **limits)


def softmax(x: np.ndarray) -> np.ndarray:
    """Softmax over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(e / e.sum(axis=-1, keepdims=True))


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x)), clipped where float32 would overflow."""
    return np.asarray(1 / (1 + np.exp(-np.maximum(x, np.float32(-80)))))


def softcap(x: np.ndarray, cap: float) -> np.ndarray:
    """cap * tanh(x / cap)."""
    return np.float32(cap) * np.tanh(x / np.float32(cap))


def activation(x: np.ndarray, kind: str) -> np.ndarray:
    """SiLU, or GELU in its tanh approximation (Hendrycks and Gimpel 2016), in half precision as ``ops.Glu`` says."""
    if kind == "silu":
        return x * sigmoid(x)
    half = np.clip(x, -10, 10).astype(np.float16).astype(np.float32)
    inner = np.float32(np.sqrt(2 / np.pi)) * (half + np.float32(0.044715) * half * half * half)
    value = (np.float32(0.5) * half * (1 + np.tanh(inner))).astype(np.float16).astype(np.float32)
    return np.where(x >= 10, x, np.where(x <= -10, np.float32(0), value))


def rope(x: np.ndarray, op: ops.Rope, positions: np.ndarray) -> np.ndarray:
    """Rotary embedding (Su et al. 2021) of float32[rows, heads * head_size] at ``positions`` int32[rows]."""
    heads = x.reshape(len(x), op.heads, op.head_size).copy()
    half = op.rotated // 2
    first: slice | np.ndarray = slice(0, op.rotated, 2) if op.pairs == "adjacent" else slice(0, half)
    second: slice | np.ndarray = slice(1, op.rotated, 2) if op.pairs == "adjacent" else slice(half, op.rotated)
    cos, sin = op.table.cos[positions][:, None, :], op.table.sin[positions][:, None, :]
    a, b = heads[..., first].copy(), heads[..., second].copy()
    heads[..., first] = a * cos - b * sin
    heads[..., second] = a * sin + b * cos
    return heads.reshape(x.shape)


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray, op: ops.Attend) -> np.ndarray:
    """Attention of one sequence's rows: q [rows, heads * head_size], k [kv_heads, head_size, past],
    v [kv_heads, past, head_size], all float32; returns float32[rows, heads * head_size]."""
    group = op.heads // op.kv_heads
    query = q.reshape(len(q), op.kv_heads, group, op.head_size).transpose(1, 2, 0, 3)
    scores = (query @ k[:, None]) * np.float32(op.scale)
    if op.softcap > 0:
        scores = softcap(scores, op.softcap)
    past = np.arange(k.shape[-1])
    hidden = past[None, :] > positions[:, None]
    if op.window > 0:
        hidden |= past[None, :] <= positions[:, None] - op.window
    mixed = softmax(np.where(hidden, np.float32(-np.inf), scores)) @ v[:, None]
    return mixed.transpose(2, 0, 1, 3).reshape(q.shape)
