"""How much memory a program needs: its weights as they are packed, and the scratch space of its steps."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from engine.kernels.ops import Embed, Program, Tensor


def program_tensors(program: Program) -> Iterator[tuple[Tensor, bool]]:
    """Every tensor that the program reads, once, and whether it is only an embedding table."""
    tables = {id(op.table): op.table for op in program.body if isinstance(op, Embed)}
    others: dict[int, Tensor] = {}
    for op in program.body + program.head:
        for item in fields(op):
            value = getattr(op, item.name)
            if isinstance(value, Tensor) and not isinstance(op, Embed):
                others[id(value)] = value
    for tensor in others.values():
        yield tensor, False
    for key, table in tables.items():
        if key not in others:
            yield table, True


def weights_bytes(program: Program) -> int:
    """Bytes of all weights."""
    return sum(len(tensor.data) for tensor, _ in program_tensors(program))


def workspace_bytes(program: Program, max_rows: int) -> int:
    """Bytes of the registers."""
    return sum(program.registers) * max_rows * 4
