"""From a ``Program`` to phases: tables of kernel addresses and arguments that a ``Team`` runs.

Operations on single rows that follow each other become one phase, in which a thread takes some rows through all of
them while they are in its cache. Products that read the same register (q, k and v; gate and up) become one phase that
shares out their blocks of weights. The residual is added where a product is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import assert_never

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from engine.errors import UnsupportedModelError
from engine.kernels import attention, layout, matmul, ops, rowops
from engine.kernels import quantize as quantizing
from engine.kernels.formats import GROUP
from engine.kernels.kernel import Kernel
from engine.kernels.ops import Program, Reg, Tensor
from engine.kernels.packing import Packed, aligned, reader_arguments
from engine.kernels.team import (
    CHECKPOINT,
    O_ARGUMENTS,
    O_ITEMS,
    O_KERNEL,
    O_STEP,
    O_UNITS,
    OP_WORDS,
    P_FLAGS,
    P_KIND,
    P_N_OPS,
    P_OPS,
    P_SOURCE,
    P_STEP,
    P_UNITS,
    PARALLEL,
    PHASE_WORDS,
)

KINDS = ("rows", "matmul", "attention", "experts", "head")
_ITEM_BYTES = 32 << 10
_ITEM_FLOATS = 4096


@dataclass(slots=True)
class _Op:
    kernel: Kernel
    args: np.ndarray
    units: int = 0
    step: int = 1


@dataclass(slots=True)
class _Phase:
    kind: str
    source: int
    ops: list[_Op]
    flags: int = 0
    step: int = 1
    multiplier: int = 1
    reads: int = -1
    writes: set[int] = field(default_factory=set)


class Lowered:
    """A program as phases: ``table`` int64[phases, PHASE_WORDS]; the first ``n_body`` phases are the body, ``n_hidden``
    those up to the final norm. Row tables of the head (``residual``, ``hidden``, ``logits``) are filled in per step."""

    def __init__(self, lowering: _Lowering) -> None:
        phases = lowering.phases
        self.n_body, self.n_hidden = lowering.n_body, lowering.n_hidden
        self.residual, self.hidden, self.logits = lowering.residual, lowering.hidden, lowering.logits
        self.residual_rows = lowering.body_tables[lowering.program.residual.index]
        self.hidden_rows = lowering.body_tables[lowering.program.hidden.index]
        self.workspace_bytes = lowering.workspace_bytes
        self.scratch_bytes = lowering.scratch_bytes
        self.group = lowering.group
        self._kept = lowering
        self._ops = np.zeros((sum(len(phase.ops) for phase in phases), OP_WORDS), np.int64)
        self.table = np.zeros((len(phases), PHASE_WORDS), np.int64)
        at = 0
        for record, phase in zip(self.table, phases, strict=True):
            record[P_OPS] = self._ops[at:].ctypes.data
            for op in phase.ops:
                self._fill_op(self._ops[at], op)
                at += 1
            self._fill_phase(record, phase)

    @staticmethod
    def _fill_op(record: np.ndarray, op: _Op) -> None:
        record[O_KERNEL], record[O_ARGUMENTS] = op.kernel.address, op.args.ctypes.data
        record[O_UNITS], record[O_STEP], record[O_ITEMS] = op.units, op.step, -(-op.units // op.step)

    @staticmethod
    def _fill_phase(record: np.ndarray, phase: _Phase) -> None:
        record[P_FLAGS], record[P_N_OPS], record[P_SOURCE] = phase.flags, len(phase.ops), phase.source
        record[P_UNITS], record[P_STEP], record[P_KIND] = phase.multiplier, phase.step, KINDS.index(phase.kind)
        if phase.flags & PARALLEL:
            record[P_SOURCE], record[P_STEP] = -1, 1
            record[P_UNITS] = sum(-(-op.units // op.step) for op in phase.ops)


class _Lowering:
    """Builds the phases of one program; keeps everything that they point to."""

    def __init__(self, program: Program, packed: dict[int, Packed], max_rows: int, kv_bytes: int) -> None:
        self.program, self.packed, self.max_rows, self.kv_bytes = program, packed, max_rows, kv_bytes
        self.phases: list[_Phase] = []
        self.kept: list[np.ndarray] = []
        self.workspace_bytes = 0
        self.scratch_bytes = attention.scratch_bytes(program.head_size)
        self.group = 1
        self.n_hidden = 0
        self._pending: list[_Op] = []
        self._source = layout.C_ROWS
        self._quantized: dict[int, np.ndarray] = {}
        self._fresh: set[int] = set()
        self._vectors: dict[int, np.ndarray] = {}
        self.residual, self.hidden, self.logits = self._table(), self._table(), self._table()
        self.tables = [
            self.logits if index == program.logits.index else self._register(width)
            for index, width in enumerate(program.registers)
        ]
        self.body_tables = tuple(self.tables)
        for op in program.body:
            self._lower(op)
        self._flush()
        self.n_body = len(self.phases)
        self._lower_head(program)

    def _lower_head(self, program: Program) -> None:
        """The head reads the wanted rows of the residual through a table of its own, and writes its final norm and
        logits where the step wants them."""
        self._source = layout.C_WANTED
        self._fresh.clear()
        self.tables[program.residual.index] = self.residual
        for number, op in enumerate(program.head):
            self._lower(op)
            if number == 0:
                self._flush()
                self.tables[program.hidden.index] = self.hidden
                self.n_hidden = len(self.phases)
        self._flush()

    # -- memory

    def _keep(self, array: np.ndarray) -> np.ndarray:
        self.kept.append(array)
        return array

    def _table(self) -> np.ndarray:
        return self._keep(np.zeros(self.max_rows, np.int64))

    def _work(self, n: int) -> np.ndarray:
        self.workspace_bytes += n
        return self._keep(aligned(n))

    def _rows(self, stride: int, count: int) -> np.ndarray:
        """Memory for ``count`` rows of ``stride`` bytes; returns the table of their addresses."""
        first = self._work(stride * count).ctypes.data
        return self._keep(first + np.arange(count, dtype=np.int64) * stride)

    def _register(self, width: int, count: int | None = None) -> np.ndarray:
        """Memory of a register of ``count`` rows (None: as many as a step may have); returns its row table."""
        return self._rows(-(-width // 16) * 64, count or self.max_rows)

    def _record(self, words: dict[int, int], floats: dict[int, float] | None = None) -> np.ndarray:
        """Arguments of a kernel."""
        args = self._keep(np.zeros(16, np.int64))
        for index, word in words.items():
            args[index] = word
        for index, number in (floats or {}).items():
            args[index : index + 1].view(np.float32)[0] = number
        return args

    def _vector(self, tensor: Tensor) -> int:
        """Address of a vector's float32 values, padded to whole vectors."""
        if id(tensor) not in self._vectors:
            values = dequantized(tensor).reshape(-1)
            memory = self._keep(aligned(-(-len(values) // 16) * 64)).view(np.float32)
            memory[: len(values)] = values
            self._vectors[id(tensor)] = memory
        return int(self._vectors[id(tensor)].ctypes.data)

    def _at(self, register: Reg) -> int:
        """Address of a register's row table."""
        return int(self.tables[register.index].ctypes.data)

    # -- phases

    def _row_op(self, kernel: Kernel, args: np.ndarray, out: Reg | None, width: int) -> None:
        """Add an operation on single rows; ``out`` is the register that it changes."""
        self._pending.append(_Op(kernel, args, width))
        if out is not None:
            self._fresh.discard(out.index)

    def _flush(self) -> None:
        """End the phase of row operations under construction."""
        if self._pending:
            width = max(op.units for op in self._pending)
            step = max(1, _ITEM_FLOATS // width)
            self.phases.append(_Phase("rows", self._source, self._pending, step=step))
            self._pending = []

    def _lower(self, op: ops.Op) -> None:
        match op:
            case ops.Embed():
                packed = self.packed[id(op.table)]
                self._row_op(packed.reader, self._keep(reader_arguments(packed, self._at(op.out), op.scale)), op.out, 1)
            case ops.RmsNorm():
                self._norm(op)
            case ops.Matmul():
                self._matmul(op)
            case ops.Rope():
                self._rope(op)
            case ops.StoreKV():
                self._store(op)
            case ops.Attend():
                self._attend(op)
            case ops.Glu():
                kernel = rowops.silu_glu if op.act == "silu" else rowops.gelu_glu
                self._elementwise(kernel, op.out, op.gate, op.up, 1.0)
            case ops.Add():
                self._elementwise(rowops.add, op.out, op.a, op.b, op.scale)
            case ops.Scale():
                self._elementwise(rowops.scale, op.out, op.x, op.x, op.factor)
            case ops.Softcap():
                self._elementwise(rowops.softcap, op.out, op.x, op.x, op.cap)
            case ops.SigmoidGate():
                self._elementwise(rowops.sigmoid_gate, op.out, op.x, op.gate, 1.0)
            case ops.Experts():
                raise UnsupportedModelError("mixtures of experts cannot be computed yet")
            case _:
                assert_never(op)

    def _elementwise(self, kernel: Kernel, out: Reg, a: Reg, b: Reg, factor: float) -> None:
        words = {rowops.E_A_ROWS: self._at(a), rowops.E_B_ROWS: self._at(b), rowops.E_OUT_ROWS: self._at(out)}
        words[rowops.E_WIDTH] = out.width
        self._row_op(kernel, self._record(words, {rowops.E_FACTOR: factor}), out, out.width)

    def _norm(self, op: ops.RmsNorm) -> None:
        part = op.x.width // op.groups
        at_head = self._source == layout.C_WANTED and op.out.index == self.program.hidden.index
        out = int(self.hidden.ctypes.data) if at_head else self._at(op.out)
        words = {
            rowops.N_X_ROWS: self._at(op.x),
            rowops.N_OUT_ROWS: out,
            rowops.N_PART: part,
            rowops.N_PARTS: op.groups,
        }
        if op.weight is not None:
            words[rowops.N_WEIGHT] = self._vector(op.weight)
            words[rowops.N_WEIGHT_STEP] = 4 * part if op.weight.shape[-1] != part else 0
        self._row_op(rowops.rms_norm, self._record(words, {rowops.N_EPS: op.eps}), op.out, op.x.width)

    def _rope(self, op: ops.Rope) -> None:
        cos, sin = (self._keep(np.ascontiguousarray(t, np.float32)) for t in (op.table.cos, op.table.sin))
        words = {
            rowops.R_X_ROWS: self._at(op.x),
            rowops.R_HEADS: op.heads,
            rowops.R_HEAD_SIZE: op.head_size,
            rowops.R_HALF: op.rotated // 2,
            rowops.R_COS: cos.ctypes.data,
            rowops.R_SIN: sin.ctypes.data,
        }
        kernel = rowops.rope_halves if op.pairs == "halves" else rowops.rope_adjacent
        self._row_op(kernel, self._record(words), op.x, op.x.width)

    def _kv_at(self, layer: int) -> tuple[int, int]:
        """Bytes before a layer's K and V in a page, per page row."""
        size = self.program.kv_heads * self.program.head_size * self.kv_bytes
        return 2 * layer * size, (2 * layer + 1) * size

    def _store(self, op: ops.StoreKV) -> None:
        k_at, v_at = self._kv_at(op.layer)
        words = {
            rowops.S_K_ROWS: self._at(op.k),
            rowops.S_V_ROWS: self._at(op.v),
            rowops.S_K_AT: k_at,
            rowops.S_V_AT: v_at,
            rowops.S_HEADS: self.program.kv_heads,
            rowops.S_HEAD_SIZE: self.program.head_size,
            rowops.S_ELEMENT: self.kv_bytes,
        }
        self._row_op(rowops.store_kv, self._record(words), None, 2 * op.k.width)

    def _attend(self, op: ops.Attend) -> None:
        self._flush()
        self.group = max(self.group, op.heads // op.kv_heads)
        k_at, v_at = self._kv_at(op.layer)
        words = {
            attention.A_Q_ROWS: self._at(op.q),
            attention.A_OUT_ROWS: self._at(op.out),
            attention.A_K_AT: k_at,
            attention.A_V_AT: v_at,
            attention.A_KV_HEADS: op.kv_heads,
            attention.A_GROUP: op.heads // op.kv_heads,
            attention.A_HEAD_SIZE: op.head_size,
            attention.A_WINDOW: op.window,
            attention.A_ELEMENT: self.kv_bytes,
            attention.A_SCORES: self._addresses(attention.SCORES[self.kv_bytes]),
            attention.A_VALUES: self._addresses(attention.VALUES[self.kv_bytes]),
        }
        args = self._record(words, {attention.A_SCALE: op.scale, attention.A_SOFTCAP: op.softcap})
        phase = _Phase("attention", layout.C_ATTEND_BLOCKS, [_Op(attention.attend, args)], CHECKPOINT)
        phase.multiplier = op.kv_heads
        self.phases.append(phase)
        self._fresh.discard(op.out.index)

    def _addresses(self, kernels: Sequence[Kernel]) -> int:
        """A table of kernel addresses by number of columns (1 …)."""
        return int(self._keep(np.array([0, *(k.address for k in kernels)], np.int64)).ctypes.data)

    # -- products

    def _matmul(self, op: ops.Matmul) -> None:
        packed = self.packed[id(op.weight)]
        source = self._quantize(op.x) if packed.format else self._at(op.x)
        self._flush()
        words = {
            layout.M_WEIGHTS: packed.address,
            layout.M_BLOCK_BYTES: packed.block_bytes,
            layout.M_GROUPS: packed.groups,
            layout.M_COLS: packed.cols,
            layout.M_X: source,
            layout.M_OUT: self._at(op.out),
            layout.M_BIAS: self._vector(op.bias) if op.bias is not None else 0,
            layout.M_OUTPUTS: packed.rows,
            layout.M_ADD: int(op.add),
            layout.M_ROWS: self._source,
            layout.M_TILES: self._addresses(matmul.tiles(packed.format, packed.kind)),
        }
        args = self._record(words, {layout.M_SCALE: op.scale})
        step = max(1, _ITEM_BYTES // packed.block_bytes)
        self._share(_Op(matmul.matmul_rows, args, packed.blocks, step), op)
        self._fresh.discard(op.out.index)

    def _share(self, made: _Op, op: ops.Matmul) -> None:
        """Add a product to the phase before it if that one reads the same register, else as a phase of its own."""
        last = self.phases[-1] if self.phases else None
        joins = (
            last is not None
            and last.reads == op.x.index
            and last.source == self._source
            and op.out.index not in last.writes | {op.x.index}
        )
        if last is None or not joins:
            kind = "head" if self._source == layout.C_WANTED else "matmul"
            last = _Phase(kind, self._source, [], PARALLEL, reads=op.x.index)
            self.phases.append(last)
        last.ops.append(made)
        last.writes.add(op.out.index)

    def _quantize(self, x: Reg) -> int:
        """Address of the table of a register's quantized rows, which are made once after each change of it."""
        if x.index not in self._quantized:
            self._quantized[x.index] = self._rows(_record_bytes(x.width), self.max_rows)
        at = int(self._quantized[x.index].ctypes.data)
        if x.index not in self._fresh:
            words = {
                quantizing.X_ROWS: self._at(x),
                quantizing.X_OUT_ROWS: at,
                quantizing.X_GROUPS: x.width // GROUP,
            }
            self._row_op(quantizing.quantize_rows, self._record(words), None, x.width)
            self._fresh.add(x.index)
        return at


def _record_bytes(width: int) -> int:
    """Bytes of a quantized row: the records and the high digits."""
    return width // GROUP * layout.Q_BYTES * 2


def dequantized(tensor: Tensor) -> np.ndarray:
    """A small tensor's float32 values."""
    rows = np.ascontiguousarray(tensor.data).reshape(1, -1).view(np.uint8)
    return np.asarray(dequantize(rows, GGMLQuantizationType(tensor.type)), dtype=np.float32)


def weights_of(program: Program) -> list[Tensor]:
    """The tensors of a program that are packed, each once."""
    found: dict[int, Tensor] = {}
    for op in (*program.body, *program.head):
        match op:
            case ops.Embed():
                found[id(op.table)] = op.table
            case ops.Matmul():
                found[id(op.weight)] = op.weight
            case ops.Experts():
                found |= {id(tensor): tensor for tensor in (op.gate, op.up, op.down)}
    return list(found.values())


def lower(program: Program, packed: dict[int, Packed], *, max_rows: int, kv_bytes: int) -> Lowered:
    """Phases of ``program`` over its packed weights (by ``id`` of the tensor)."""
    return Lowered(_Lowering(program, packed, max_rows, kv_bytes))
