"""Weights from the file's blocks to packed blocks, and back to float32 for those who want to look."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from gguf import GGMLQuantizationType
from gguf.constants import GGML_QUANT_SIZES

from engine.errors import UnsupportedModelError
from engine.kernels import pack_kernels as pk
from engine.kernels.formats import BLOCK_ROWS, BY_TYPE, FLOAT_BYTES, FLOATS, GROUP, Format
from engine.kernels.kernel import Kernel
from engine.kernels.layout import C_TOKENS, CONTEXT_WORDS
from engine.kernels.ops import Tensor
from engine.kernels.phases import Phase, PhaseOp, phase_tables
from engine.kernels.team import PARALLEL, Team

_HUGE = 2 << 20


@dataclass(slots=True, eq=False)
class Packed:
    """A packed tensor: ``experts`` matrices of (rows, cols), blocks of 16 rows each, in ``memory`` (uint8, aligned).

    ``format`` is a ``Format`` or, for float types, None with ``kind`` set (see ``formats.FLOATS``).
    """

    rows: int
    cols: int
    experts: int
    format: Format | None
    kind: int
    block_bytes: int
    memory: np.ndarray

    @property
    def blocks(self) -> int:
        """Blocks of 16 rows in one matrix."""
        return -(-self.rows // BLOCK_ROWS)

    @property
    def groups(self) -> int:
        """Groups of 32 columns (0 for float types)."""
        return self.cols // GROUP if self.format else 0

    @property
    def address(self) -> int:
        """Where the first block lies."""
        return int(self.memory.ctypes.data)

    @property
    def expert_bytes(self) -> int:
        """Bytes from one expert's matrix to the next."""
        return self.blocks * self.block_bytes

    @property
    def reader(self) -> Kernel:
        """The kernel that reads rows back."""
        return pk.READERS[self.format.name] if self.format else pk.FLOAT_READERS[self.kind]


def aligned(n: int) -> np.ndarray:
    """``n`` zero bytes that start at a multiple of 64; on huge pages, where that pays and the system has them."""
    if n < _HUGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        memory = np.zeros(n + 64, np.uint8)
        return memory[-memory.ctypes.data % 64 :][:n]
    pages = mmap.mmap(-1, n + _HUGE)
    pages.madvise(mmap.MADV_HUGEPAGE)
    memory = np.frombuffer(pages, np.uint8)
    return memory[-memory.ctypes.data % _HUGE :][:n]


def _empty(tensor: Tensor) -> Packed:
    """A packed tensor without its memory."""
    rows, cols = tensor.shape[-2:] if len(tensor.shape) > 1 else (1, tensor.shape[0])
    experts = tensor.shape[0] if len(tensor.shape) == 3 else 1
    try:
        kind = GGMLQuantizationType(tensor.type)
    except ValueError:
        raise UnsupportedModelError(f"Tensor {tensor.name!r} has the unknown type {tensor.type}.") from None
    fmt = BY_TYPE.get(kind)
    if fmt is None and kind not in FLOATS:
        raise UnsupportedModelError(
            f"Tensor {tensor.name!r} has type {kind.name}, which this engine cannot compute with."
        )
    _check_size(tensor, kind, rows * experts, cols)
    float_kind = FLOATS.get(kind, -1)
    if fmt:
        block_bytes = fmt.block_bytes(cols // GROUP)
    else:
        block_bytes = -(-cols * BLOCK_ROWS * FLOAT_BYTES[float_kind] // 64) * 64
    return Packed(rows, cols, experts, fmt, float_kind, block_bytes, np.zeros(0, np.uint8))


def _check_size(tensor: Tensor, kind: GGMLQuantizationType, rows: int, cols: int) -> None:
    """Kernels trust shapes: refuse a tensor whose rows are not whole blocks or whose data are too few."""
    columns, size = GGML_QUANT_SIZES[kind]
    if cols % columns:
        raise UnsupportedModelError(
            f"Tensor {tensor.name!r} has {cols} columns, which is no multiple of the {columns} of type {kind.name}."
        )
    if tensor.data.nbytes < rows * (cols // columns) * size:
        raise UnsupportedModelError(f"Tensor {tensor.name!r} has fewer bytes of data than its shape says.")


def pack_all(tensors: Sequence[Tensor], team: Team) -> list[Packed]:
    """Pack tensors with all threads of ``team``; float32[…] for each is ``unpack`` of the result, bit for bit what the
    gguf package dequantizes. Raises ``UnsupportedModelError`` for a type that no kernel computes with."""
    packed = [_empty(tensor) for tensor in tensors]
    arena = aligned(sum(p.experts * p.expert_bytes for p in packed))
    for result in packed:
        size = result.experts * result.expert_bytes
        result.memory, arena = arena[:size], arena[size:]
    kept: list[np.ndarray] = []
    ops: list[PhaseOp] = []
    for tensor, result in zip(tensors, packed, strict=True):
        source = np.ascontiguousarray(tensor.data).reshape(-1).view(np.uint8)
        kept.append(source)
        row_bytes = len(source) // (result.rows * result.experts)
        kernel = pk.PACKERS[result.format.name] if result.format else pk.FLOAT_PACKERS[result.kind]
        for expert in range(result.experts):
            args = np.zeros(16, np.int64)
            args[pk.K_SOURCE] = source.ctypes.data + expert * result.rows * row_bytes
            args[pk.K_TARGET] = result.address + expert * result.expert_bytes
            args[pk.K_ROW_BYTES], args[pk.K_ROWS], args[pk.K_COLS] = row_bytes, result.rows, result.cols
            args[pk.K_GROUPS], args[pk.K_BLOCK_BYTES] = result.groups, result.block_bytes
            kept.append(args)
            ops.append(PhaseOp(kernel, args, result.blocks, result.block_bytes))
    table, tables_ops = phase_tables([Phase("packing", -1, ops, PARALLEL)], team.threads)
    team.run(table, np.zeros(CONTEXT_WORDS, np.int64))
    del tables_ops
    return packed


def pack(tensor: Tensor, threads: int = 1) -> Packed:
    """Pack one tensor."""
    team = Team(threads)
    try:
        return pack_all([tensor], team)[0]
    finally:
        team.close()


def reader_arguments(packed: Packed, out_rows: int, factor: float) -> np.ndarray:
    """The arguments of ``packed.reader``: rows go to the addresses in the table at ``out_rows``."""
    args = np.zeros(16, np.int64)
    args[pk.U_WEIGHTS], args[pk.U_BLOCK_BYTES] = packed.address, packed.block_bytes
    args[pk.U_GROUPS], args[pk.U_COLS], args[pk.U_OUT] = packed.groups, packed.cols, out_rows
    args[pk.U_FACTOR : pk.U_FACTOR + 1].view(np.float32)[0] = factor
    return args


def unpack(packed: Packed) -> np.ndarray:
    """The weights as float32[rows, cols] ([experts, rows, cols] with experts)."""
    out = np.zeros((packed.experts, packed.rows, packed.cols), np.float32)
    rows = np.arange(packed.rows, dtype=np.int32)
    context = np.zeros(CONTEXT_WORDS, np.int64)
    context[C_TOKENS] = rows.ctypes.data
    for expert in range(packed.experts):
        table = out[expert].ctypes.data + np.arange(packed.rows, dtype=np.int64) * packed.cols * 4
        args = reader_arguments(packed, table.ctypes.data, 1.0)
        args[pk.U_WEIGHTS] += expert * packed.expert_bytes
        packed.reader.call(context.ctypes.data, args.ctypes.data, 0, packed.rows, 0)
    return out if packed.experts > 1 else out[0]
