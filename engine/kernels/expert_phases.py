"""The phases of a mixture of experts (see ``experts``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from engine.kernels import experts, layout, ops, rowops
from engine.kernels.packing import Packed
from engine.kernels.phases import Phase, PhaseOp
from engine.kernels.workspace import Workspace, address

if TYPE_CHECKING:
    from engine.kernels.lowering import Lowering

_ITEM_BYTES = 32 << 10


@dataclass(slots=True, eq=False)
class _Slots:
    """Memory that all mixtures of one shape share: choices by row, and rows by slot."""

    chosen: np.ndarray
    shares: np.ndarray
    slot_of: np.ndarray
    counts: np.ndarray
    active: np.ndarray
    gate_x: np.ndarray
    up_x: np.ndarray
    gate: np.ndarray
    up: np.ndarray
    mixed: np.ndarray
    down: np.ndarray


def _make_slots(work: Workspace, op: ops.Experts, mixed_bytes: int) -> _Slots:
    n_experts, inner, _ = op.gate.shape
    pairs = work.max_rows * op.used
    return _Slots(
        chosen=work.memory(4 * pairs),
        shares=work.memory(4 * pairs),
        slot_of=work.memory(4 * pairs),
        counts=work.memory(8 * n_experts),
        active=work.memory(24 * n_experts),
        gate_x=work.table(pairs),
        up_x=work.table(pairs),
        gate=work.register(inner, pairs),
        up=work.register(inner, pairs),
        mixed=work.rows(mixed_bytes, pairs),
        down=work.register(op.down.shape[1], pairs),
    )


def lower_experts(lowering: Lowering, op: ops.Experts) -> None:
    """Add the phases of one mixture: route, order pairs by expert, gate and up, activation, down, weighted sum."""
    gate, up, down = (lowering.packed[id(tensor)] for tensor in (op.gate, op.up, op.down))
    inner = op.gate.shape[1]
    slots = lowering.shared(
        ("experts", op.gate.shape, op.down.shape, op.used),
        lambda: _make_slots(lowering.work, op, lowering.record_bytes(inner)),
    )
    sources = [lowering.quantize(op.x) if packed.format else lowering.at(op.x) for packed in (gate, up)]
    routing = _routing(lowering, op, slots, sources)
    lowering.row_op(experts.route, routing, None, op.x.width)
    lowering.flush()
    lowering.phases.append(Phase("experts", -1, [PhaseOp(experts.assign_slots, routing)]))
    products = [
        _products(lowering, packed, slots, address(x), address(out))
        for packed, x, out in ((gate, slots.gate_x, slots.gate), (up, slots.up_x, slots.up))
    ]
    lowering.phases.append(_product_phase(gate, products))
    mixed = _activation(lowering, op, slots, inner, bool(down.format))
    lowering.phases.append(_product_phase(down, [_products(lowering, down, slots, mixed, address(slots.down))]))
    words = {
        experts.W_SLOT_OF: address(slots.slot_of),
        experts.W_SHARES: address(slots.shares),
        experts.W_USED: op.used,
        experts.W_SLOTS: address(slots.down),
        experts.W_OUT_ROWS: lowering.at(op.out),
        experts.W_WIDTH: op.out.width,
    }
    combine = lowering.work.record(words, {experts.W_SCALE: op.scale})
    lowering.row_op(experts.combine_experts, combine, op.out, op.out.width)


def _routing(lowering: Lowering, op: ops.Experts, slots: _Slots, sources: list[int]) -> np.ndarray:
    words = {
        experts.T_LOGITS: lowering.at(op.router_logits),
        experts.T_EXPERTS: op.gate.shape[0],
        experts.T_USED: op.used,
        experts.T_RENORMALIZE: int(op.renormalize),
        experts.T_CHOSEN: address(slots.chosen),
        experts.T_SHARES: address(slots.shares),
        experts.T_SLOT_OF: address(slots.slot_of),
        experts.T_COUNTS: address(slots.counts),
        experts.T_ACTIVE: address(slots.active),
        experts.T_GATE_ROWS: sources[0],
        experts.T_GATE_SLOTS: address(slots.gate_x),
        experts.T_UP_ROWS: sources[1],
        experts.T_UP_SLOTS: address(slots.up_x),
    }
    return lowering.work.record(words)


def _products(lowering: Lowering, packed: Packed, slots: _Slots, x: int, out: int) -> PhaseOp:
    """One product of all experts: a record of arguments for each of them."""
    records = [lowering.product(packed, x, out, expert=expert) for expert in range(packed.experts)]
    table = lowering.work.keep(np.stack(records))
    words = {
        experts.P_ACTIVE: address(slots.active),
        experts.P_BLOCKS: packed.blocks,
        experts.P_RECORDS: address(table),
        experts.P_RECORD_BYTES: table.strides[0],
    }
    return PhaseOp(experts.matmul_experts, lowering.work.record(words))


def _product_phase(packed: Packed, products: list[PhaseOp]) -> Phase:
    """Blocks of all active experts as units."""
    step = max(1, _ITEM_BYTES // packed.block_bytes)
    return Phase("experts", layout.C_EXPERTS, products, step=step, multiplier=packed.blocks)


def _activation(lowering: Lowering, op: ops.Experts, slots: _Slots, inner: int, quantized: bool) -> int:
    """Add act(gate) * up by slots; returns the table of rows that the down product reads."""
    words = {
        rowops.E_A_ROWS: address(slots.gate),
        rowops.E_B_ROWS: address(slots.up),
        rowops.E_OUT_ROWS: address(slots.gate),
        rowops.E_WIDTH: inner,
    }
    kernel = rowops.silu_glu if op.act == "silu" else rowops.gelu_glu
    row_ops = [PhaseOp(kernel, lowering.work.record(words, {rowops.E_FACTOR: 1.0}))]
    mixed = address(slots.gate)
    if quantized:
        mixed = address(slots.mixed)
        row_ops.append(lowering.quantizing(address(slots.gate), mixed, inner))
    lowering.phases.append(Phase("experts", layout.C_SLOTS, row_ops))
    return mixed
