"""From a ``Program`` to phases: tables of kernel addresses and arguments that a ``Team`` runs.

Operations on single rows that follow each other become one phase, in which a thread takes some rows through all of
them while they are in its cache. Products that read the same register (q, k and v; gate and up) become one phase that
shares out their blocks of weights. The residual is added where a product is stored.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, assert_never

import numpy as np

from engine.kernels import attention, attention_tiles, layout, matmul, ops, rowops
from engine.kernels import quantize as quantizing
from engine.kernels.expert_phases import lower_experts
from engine.kernels.formats import GROUP, expanded
from engine.kernels.kernel import Kernel
from engine.kernels.ops import Program, Reg, Tensor
from engine.kernels.packing import Packed, reader_arguments
from engine.kernels.phases import Phase, PhaseOp
from engine.kernels.team import CHECKPOINT, PARALLEL
from engine.kernels.workspace import Workspace, address

_ITEM_FLOATS = 4096


class Lowering:
    """Builds the phases of one program; keeps everything that they point to. The phases work in the registers of
    ``like``, if that is given."""

    def __init__(
        self,
        program: Program,
        packed: dict[int, Packed],
        max_rows: int,
        kv_bytes: int,
        like: Lowering | None = None,
    ) -> None:
        self.program, self.packed, self.max_rows, self.kv_bytes = program, packed, max_rows, kv_bytes
        self.phases: list[Phase] = []
        self.scratch_bytes = attention.scratch_bytes(program.head_size)
        self.group = 1
        self.n_hidden = 0
        self._pending: list[PhaseOp] = []
        self.source = layout.C_ROWS
        self._fresh: dict[int, set[str]] = {}
        if like is None:
            self._make_registers()
        else:
            self._share_registers(like)
        self.tables = list(self.body_tables)
        for op in program.body:
            self._lower(op)
        self.flush()
        self.n_body = len(self.phases)
        self._lower_head(program)

    def _make_registers(self) -> None:
        self.work = Workspace(self.max_rows)
        self._shared: dict[Hashable, Any] = {}
        self.residual, self.hidden, self.logits = self.work.table(), self.work.table(), self.work.table()
        self.body_tables = tuple(
            self.logits if index == self.program.logits.index else self.work.register(width)
            for index, width in enumerate(self.program.registers)
        )

    def _share_registers(self, like: Lowering) -> None:
        self.work, self._shared, self.body_tables = like.work, like._shared, like.body_tables
        self.residual, self.hidden, self.logits = like.residual, like.hidden, like.logits

    def _lower_head(self, program: Program) -> None:
        """The head reads the wanted rows of the residual through a table of its own, and writes its final norm and
        logits where the step wants them."""
        self.source = layout.C_WANTED
        self._fresh.clear()
        self.tables[program.residual.index] = self.residual
        for number, op in enumerate(program.head):
            self._lower(op)
            if number == 0:
                self.flush()
                self.tables[program.hidden.index] = self.hidden
                self.n_hidden = len(self.phases)
        self.flush()

    def at(self, register: Reg) -> int:
        """Address of a register's row table."""
        return address(self.tables[register.index])

    # -- phases

    def row_op(self, kernel: Kernel, args: np.ndarray, out: Reg | None, width: int) -> None:
        """Add an operation on single rows; ``out`` is the register that it changes."""
        self._pending.append(PhaseOp(kernel, args, width))
        if out is not None:
            self.changed(out)

    def changed(self, register: Reg) -> None:
        """What was made of a register's rows no longer holds."""
        self._fresh.pop(register.index, None)

    def once(self, register: Reg, form: str, make: Callable[[], PhaseOp]) -> None:
        """Add an operation that makes ``form`` of a register's rows, unless that was made since they changed."""
        forms = self._fresh.setdefault(register.index, set())
        if form not in forms:
            self._pending.append(make())
            forms.add(form)

    def flush(self) -> None:
        """End the phase of row operations under construction."""
        if self._pending:
            width = max(op.units for op in self._pending)
            step = max(1, _ITEM_FLOATS // width)
            self.phases.append(Phase("rows", self.source, self._pending, step=step))
            self._pending = []

    def _lower(self, op: ops.Op) -> None:
        match op:
            case ops.Embed():
                packed = self.packed[id(op.table)]
                self.row_op(
                    packed.reader, self.work.keep(reader_arguments(packed, self.at(op.out), op.scale)), op.out, 1
                )
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
                lower_experts(self, op)
            case _:
                assert_never(op)

    def _elementwise(self, kernel: Kernel, out: Reg, a: Reg, b: Reg, factor: float) -> None:
        words = {rowops.E_A_ROWS: self.at(a), rowops.E_B_ROWS: self.at(b), rowops.E_OUT_ROWS: self.at(out)}
        words[rowops.E_WIDTH] = out.width
        self.row_op(kernel, self.work.record(words, {rowops.E_FACTOR: factor}), out, out.width)

    def _norm(self, op: ops.RmsNorm) -> None:
        part = op.x.width // op.groups
        at_head = self.source == layout.C_WANTED and op.out.index == self.program.hidden.index
        out = int(self.hidden.ctypes.data) if at_head else self.at(op.out)
        words = {
            rowops.N_X_ROWS: self.at(op.x),
            rowops.N_OUT_ROWS: out,
            rowops.N_PART: part,
            rowops.N_PARTS: op.groups,
        }
        if op.weight is not None:
            words[rowops.N_WEIGHT] = self.work.vector(op.weight)
            words[rowops.N_WEIGHT_STEP] = 4 * part if op.weight.shape[-1] != part else 0
        self.row_op(rowops.rms_norm, self.work.record(words, {rowops.N_EPS: op.eps}), op.out, op.x.width)

    def _rope(self, op: ops.Rope) -> None:
        cos, sin = (self.work.keep(np.ascontiguousarray(t, np.float32)) for t in (op.table.cos, op.table.sin))
        words = {
            rowops.R_X_ROWS: self.at(op.x),
            rowops.R_HEADS: op.heads,
            rowops.R_HEAD_SIZE: op.head_size,
            rowops.R_HALF: op.rotated // 2,
            rowops.R_COS: cos.ctypes.data,
            rowops.R_SIN: sin.ctypes.data,
        }
        kernel = rowops.rope_halves if op.pairs == "halves" else rowops.rope_adjacent
        self.row_op(kernel, self.work.record(words), op.x, op.x.width)

    def _kv_at(self, layer: int) -> tuple[int, int]:
        """Bytes before a layer's K and V in a page, per page row."""
        size = self.program.kv_heads * self.program.head_size * self.kv_bytes
        return 2 * layer * size, (2 * layer + 1) * size

    def _store(self, op: ops.StoreKV) -> None:
        k_at, v_at = self._kv_at(op.layer)
        words = {
            rowops.S_K_ROWS: self.at(op.k),
            rowops.S_V_ROWS: self.at(op.v),
            rowops.S_K_AT: k_at,
            rowops.S_V_AT: v_at,
            rowops.S_HEADS: self.program.kv_heads,
            rowops.S_HEAD_SIZE: self.program.head_size,
            rowops.S_ELEMENT: self.kv_bytes,
        }
        self.row_op(rowops.store_kv, self.work.record(words), None, 2 * op.k.width)

    def _attend(self, op: ops.Attend) -> None:
        self.flush()
        self.group = max(self.group, op.heads // op.kv_heads)
        k_at, v_at = self._kv_at(op.layer)
        words = {
            attention_tiles.A_Q_ROWS: self.at(op.q),
            attention_tiles.A_OUT_ROWS: self.at(op.out),
            attention_tiles.A_K_AT: k_at,
            attention_tiles.A_V_AT: v_at,
            attention_tiles.A_KV_HEADS: op.kv_heads,
            attention_tiles.A_GROUP: op.heads // op.kv_heads,
            attention_tiles.A_HEAD_SIZE: op.head_size,
            attention_tiles.A_WINDOW: op.window,
            attention_tiles.A_ELEMENT: self.kv_bytes,
            attention_tiles.A_SCORES: self.work.kernels(attention_tiles.SCORES[self.kv_bytes]),
            attention_tiles.A_VALUES: self.work.kernels(attention_tiles.VALUES[self.kv_bytes]),
        }
        args = self.work.record(words, {attention_tiles.A_SCALE: op.scale, attention_tiles.A_SOFTCAP: op.softcap})
        phase = Phase("attention", layout.C_ATTEND_BLOCKS, [PhaseOp(attention.attend, args)], CHECKPOINT)
        phase.multiplier = op.kv_heads
        self.phases.append(phase)
        merge = [PhaseOp(attention.merge_attention, args)]
        self.phases.append(Phase("attention", layout.C_MERGE_BLOCKS, merge, multiplier=op.kv_heads))
        self.changed(op.out)

    # -- products

    def _matmul(self, op: ops.Matmul) -> None:
        made = self.multiplying(op, self.packed[id(op.weight)])
        self.flush()
        self._share(made, op)
        self.changed(op.out)

    def multiplying(self, op: ops.Matmul, packed: Packed) -> PhaseOp:
        """The operation of a product; what it needs of its rows is added before."""
        source = self.quantize(op.x) if packed.format else self.at(op.x)
        return PhaseOp(matmul.matmul_rows, self.arguments(op, packed, source), packed.blocks, packed.block_bytes)

    def arguments(self, op: ops.Matmul, packed: Packed, source: int) -> np.ndarray:
        """Arguments of an operation's product."""
        bias = self.work.vector(op.bias) if op.bias is not None else 0
        return self.product(packed, source, self.at(op.out), bias=bias, add=op.add, scale=op.scale)

    def product(
        self,
        packed: Packed,
        source: int,
        out: int,
        *,
        bias: int = 0,
        add: bool = False,
        scale: float = 1.0,
        expert: int = 0,
    ) -> np.ndarray:
        """Arguments of a product: rows from the table at ``source``, results to the table at ``out``."""
        words = {
            layout.M_WEIGHTS: packed.address + expert * packed.expert_bytes,
            layout.M_BLOCK_BYTES: packed.block_bytes,
            layout.M_GROUPS: packed.groups,
            layout.M_COLS: packed.cols,
            layout.M_X: source,
            layout.M_OUT: out,
            layout.M_BIAS: bias,
            layout.M_OUTPUTS: packed.rows,
            layout.M_ADD: int(add),
            layout.M_ROWS: self.source,
            layout.M_TILES: self.work.kernels(matmul.tiles(packed.format, packed.kind)),
        }
        if packed.format and (size := matmul.expanded_bytes(packed.format, packed.groups)):
            self.scratch_bytes = max(self.scratch_bytes, size)
            words[layout.M_EXPAND] = matmul.EXPANDERS[packed.format.name].address
            words[layout.M_EXPANDED_TILES] = self.work.kernels(matmul.TILES[expanded(packed.format).name])
        return self.work.record(words, {layout.M_SCALE: scale})

    def _share(self, made: PhaseOp, op: ops.Matmul) -> None:
        """Add a product to the phase before it if that one reads the same register, else as a phase of its own."""
        last = self.phases[-1] if self.phases else None
        joins = (
            last is not None
            and last.reads == op.x.index
            and last.source == self.source
            and op.out.index not in last.writes | {op.x.index}
        )
        if last is None or not joins:
            kind = "head" if self.source == layout.C_WANTED else "matmul"
            last = Phase(kind, self.source, [], PARALLEL, reads=op.x.index)
            self.phases.append(last)
        last.ops.append(made)
        last.writes.add(op.out.index)

    def quantize(self, x: Reg) -> int:
        """Address of the table of a register's quantized rows, which are made once after each change of it."""
        rows = self.shared(("codes", x.index), lambda: self.work.rows(self.record_bytes(x.width)))
        self.once(x, "codes", lambda: self.quantizing(self.at(x), address(rows), x.width))
        return address(rows)

    def quantizing(self, rows: int, out_rows: int, width: int) -> PhaseOp:
        """The operation that quantizes rows of ``width``, from one table of addresses to another."""
        words = {quantizing.X_ROWS: rows, quantizing.X_OUT_ROWS: out_rows, quantizing.X_GROUPS: width // GROUP}
        return PhaseOp(quantizing.quantize_rows, self.work.record(words), width)

    @staticmethod
    def record_bytes(width: int) -> int:
        """Bytes of a quantized row: the records and the high digits."""
        return width // GROUP * layout.Q_BYTES * 2

    def shared(self, key: Hashable, make: Callable[[], Any]) -> Any:
        """What ``make`` makes, once for each key."""
        if key not in self._shared:
            self._shared[key] = make()
        return self._shared[key]


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
