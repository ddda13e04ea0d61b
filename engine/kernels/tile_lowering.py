"""Phases for steps of prompt rows where there are matrix tiles."""

from __future__ import annotations

import numpy as np

from engine.kernels import layout, ops, tile_matmul
from engine.kernels import quantize as quantizing
from engine.kernels.cpu import TileUnit
from engine.kernels.formats import GROUP
from engine.kernels.lowering import Lowering
from engine.kernels.ops import Reg
from engine.kernels.packing import Packed
from engine.kernels.phases import PhaseOp
from engine.kernels.workspace import address


class TileLowering(Lowering):
    """As ``like``, in the same registers, with products of packed weights on tiles.

    Float weights keep their precision, and so do mixtures of experts (few rows for each) and the head (mostly one row,
    for which expanding the vocabulary's weights would not pay): these have the same arithmetic in both lanes.
    """

    def __init__(self, like: Lowering, unit: TileUnit) -> None:
        self._kernel = tile_matmul.PRODUCTS[unit]
        super().__init__(like.program, like.packed, like.max_rows, like.kv_bytes, like)

    def multiplying(self, op: ops.Matmul, packed: Packed) -> PhaseOp:
        """The operation of a product, on tiles where the weights are packed and the rows are the step's."""
        if packed.format is None or self.source != layout.C_ROWS:
            return super().multiplying(op, packed)
        args = self.arguments(op, packed, self._convert(op.x))
        args[layout.M_EXPAND] = tile_matmul.EXPANDERS[packed.format.name].address
        args[layout.M_SPAN] = tile_matmul.span(packed.groups)
        self.scratch_bytes = max(self.scratch_bytes, tile_matmul.scratch_bytes(packed.groups))
        pairs = -(-packed.blocks // tile_matmul.PAIR)
        return PhaseOp(self._kernel, args, pairs, tile_matmul.PAIR * packed.block_bytes)

    def _convert(self, x: Reg) -> int:
        """Address of a register's rows as tiles, which are made once after each change of it."""
        size = tile_matmul.rows_bytes(x.width, self.max_rows)
        tiles: np.ndarray = self.shared(("tiles", x.index), lambda: self.work.memory(size))
        words = {
            quantizing.X_ROWS: self.at(x),
            quantizing.X_OUT_ROWS: address(tiles),
            quantizing.X_GROUPS: x.width // GROUP,
        }
        self.once(x, "tiles", lambda: PhaseOp(tile_matmul.tiles_convert, self.work.record(words), x.width))
        return address(tiles)
