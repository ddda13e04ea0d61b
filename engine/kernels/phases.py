"""Phases as data, and the tables that a ``Team`` reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.kernels.kernel import Kernel
from engine.kernels.layout import C_ROWS, address_of
from engine.kernels.team import (
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

KINDS = ("rows", "matmul", "attention", "experts", "head", "sampling", "packing")
"""What time is counted by."""
_SMALLEST_ITEM, _LARGEST_ITEM, _MANY_ROWS_ITEM, _ITEMS_A_THREAD = 12 << 10, 64 << 10, 8 << 10, 4


@dataclass(slots=True)
class PhaseOp:
    """A kernel and its arguments. In a parallel phase it has ``units`` of its own, each of which reads ``unit_bytes``;
    of an operation on rows, ``units`` are a row's floats."""

    kernel: Kernel
    args: np.ndarray
    units: int = 0
    unit_bytes: int = 1


@dataclass(slots=True)
class Phase:
    """Operations over units: ``multiplier`` times word ``source`` of the context (or ``multiplier``, if it is -1),
    ``step`` of them to an item. ``reads`` and ``writes`` are registers, for joining products to one phase."""

    kind: str
    source: int
    ops: list[PhaseOp]
    flags: int = 0
    step: int = 1
    multiplier: int = 1
    reads: int = -1
    writes: set[int] = field(default_factory=set)


def phase_tables(phases: list[Phase], threads: int = 1, *, many_rows: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """(int64[phases, PHASE_WORDS], int64[operations, OP_WORDS]); the first points into the second.

    With ``many_rows`` the items of products over the step's rows are small: each is long work then.
    """
    table = np.zeros((len(phases), PHASE_WORDS), np.int64)
    ops = np.zeros((sum(len(phase.ops) for phase in phases), OP_WORDS), np.int64)
    at = 0
    for record, phase in zip(table, phases, strict=True):
        record[P_OPS] = address_of(ops[at:])
        item_bytes = _MANY_ROWS_ITEM if many_rows and phase.source == C_ROWS else _item_bytes(phase, threads)
        items = 0
        for op in phase.ops:
            step = _even_step(op, item_bytes)
            ops[at, [O_KERNEL, O_ARGUMENTS]] = op.kernel.address, address_of(op.args)
            ops[at, [O_UNITS, O_STEP, O_ITEMS]] = op.units, step, -(-op.units // step)
            items += ops[at, O_ITEMS]
            at += 1
        record[[P_FLAGS, P_N_OPS, P_KIND]] = phase.flags, len(phase.ops), KINDS.index(phase.kind)
        record[[P_SOURCE, P_UNITS, P_STEP]] = phase.source, phase.multiplier, phase.step
        if phase.flags & PARALLEL:
            record[[P_SOURCE, P_UNITS, P_STEP]] = -1, items, 1
    return table, ops


def _item_bytes(phase: Phase, threads: int) -> int:
    """How much an item of a parallel phase should read: enough that memory is read in long streams, and little enough
    that every thread gets several items."""
    total = sum(op.units * op.unit_bytes for op in phase.ops)
    return min(_LARGEST_ITEM, max(_SMALLEST_ITEM, total // (_ITEMS_A_THREAD * threads)))


def _even_step(op: PhaseOp, item_bytes: int) -> int:
    """Units to an item, so that the items of an operation are about equal."""
    items = max(1, round(op.units * op.unit_bytes / item_bytes))
    return max(1, -(-op.units // items))
