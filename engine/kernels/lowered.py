"""A lowered program: the tables of phases that a step runs, by its number of rows and their lane."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from engine.kernels.cpu import TileUnit
from engine.kernels.lowering import Lowering
from engine.kernels.ops import Program
from engine.kernels.packing import Packed
from engine.kernels.phases import phase_tables
from engine.kernels.tile_lowering import TileLowering
from engine.kernels.workspace import address

_MANY_ROWS = 32


@dataclass(frozen=True, slots=True)
class Plan:
    """Phases at ``address``, as ``Team.run_at`` takes them; the first ``n_body`` are the body, ``n_hidden`` those up to
    the final norm."""

    address: int
    n_body: int
    n_hidden: int
    n_phases: int


class Lowered:
    """A program as phases. Row tables of the head (``residual``, ``hidden``, ``logits``) are filled in per step."""

    def __init__(self, lowering: Lowering, tiled: Lowering | None, threads: int) -> None:
        self.residual, self.hidden, self.logits = lowering.residual, lowering.hidden, lowering.logits
        self.residual_rows = lowering.body_tables[lowering.program.residual.index]
        self.hidden_rows = lowering.body_tables[lowering.program.hidden.index]
        self.workspace_bytes = lowering.work.bytes
        self.scratch_bytes = max(made.scratch_bytes for made in (lowering, tiled) if made)
        self.group = lowering.group
        self._kept: list[object] = [lowering, tiled]
        self._few = self._plan(lowering, threads)
        self._many = self._plan(lowering, threads, many_rows=True)
        self._tiled = self._plan(tiled, threads) if tiled else None

    def _plan(self, lowering: Lowering, threads: int, *, many_rows: bool = False) -> Plan:
        tables = phase_tables(lowering.phases, threads, many_rows=many_rows)
        self._kept.append(tables)
        return Plan(address(tables[0]), lowering.n_body, lowering.n_hidden, len(lowering.phases))

    def plan(self, rows: int, lane: Literal["prompt", "generated"]) -> Plan:
        """The phases for a step of ``rows`` rows. Only the lane decides about results."""
        if self._tiled and lane == "prompt":
            return self._tiled
        return self._many if rows >= _MANY_ROWS else self._few


def lower(
    program: Program,
    packed: dict[int, Packed],
    *,
    max_rows: int,
    kv_bytes: int,
    threads: int,
    tiles: TileUnit | None = None,
) -> Lowered:
    """Phases of ``program`` over its packed weights (by ``id`` of the tensor); prompt rows are multiplied on ``tiles``,
    if that names a unit."""
    lowering = Lowering(program, packed, max_rows, kv_bytes)
    return Lowered(lowering, TileLowering(lowering, tiles) if tiles else None, threads)
