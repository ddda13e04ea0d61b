"""Phases as data, and the tables that a ``Team`` reads."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from engine.kernels.kernel import Kernel
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

KINDS = ("rows", "matmul", "attention", "experts", "head", "sampling")
"""What time is counted by."""


@dataclass(slots=True)
class PhaseOp:
    """A kernel and its arguments. In a parallel phase it has ``units`` of its own, ``step`` of them to an item."""

    kernel: Kernel
    args: np.ndarray
    units: int = 0
    step: int = 1


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


def phase_tables(phases: list[Phase]) -> tuple[np.ndarray, np.ndarray]:
    """(int64[phases, PHASE_WORDS], int64[operations, OP_WORDS]); the first points into the second."""
    table = np.zeros((len(phases), PHASE_WORDS), np.int64)
    ops = np.zeros((sum(len(phase.ops) for phase in phases), OP_WORDS), np.int64)
    at = 0
    for record, phase in zip(table, phases, strict=True):
        record[P_OPS] = ops[at:].ctypes.data
        for op in phase.ops:
            ops[at, [O_KERNEL, O_ARGUMENTS]] = op.kernel.address, op.args.ctypes.data
            ops[at, [O_UNITS, O_STEP, O_ITEMS]] = op.units, op.step, -(-op.units // op.step)
            at += 1
        record[[P_FLAGS, P_N_OPS, P_KIND]] = phase.flags, len(phase.ops), KINDS.index(phase.kind)
        record[[P_SOURCE, P_UNITS, P_STEP]] = phase.source, phase.multiplier, phase.step
        if phase.flags & PARALLEL:
            record[[P_SOURCE, P_UNITS, P_STEP]] = -1, sum(-(-op.units // op.step) for op in phase.ops), 1
    return table, ops
