"""The memory that the phases of a program work in, and the argument records that point into it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from gguf import GGMLQuantizationType
from gguf.quants import dequantize

from engine.kernels.kernel import Kernel
from engine.kernels.ops import Tensor
from engine.kernels.packing import aligned


class Workspace:
    """Makes registers, row tables and argument records, and keeps all of them alive."""

    def __init__(self, max_rows: int) -> None:
        self.max_rows = max_rows
        self.bytes = 0
        self._kept: list[np.ndarray] = []
        self._vectors: dict[int, np.ndarray] = {}
        self._kernel_tables: dict[tuple[Kernel, ...], int] = {}

    def keep(self, array: np.ndarray) -> np.ndarray:
        """Keep an array that a record points to."""
        self._kept.append(array)
        return array

    def memory(self, n: int) -> np.ndarray:
        """``n`` zero bytes, aligned."""
        self.bytes += n
        return self.keep(aligned(n))

    def table(self, n: int | None = None) -> np.ndarray:
        """An empty table of addresses, one for each row a step may have (or of ``n``)."""
        return self.keep(np.zeros(n or self.max_rows, np.int64))

    def rows(self, stride: int, count: int | None = None) -> np.ndarray:
        """Memory for ``count`` rows of ``stride`` bytes (None: as many as a step may have); returns the table of their
        addresses."""
        count = count or self.max_rows
        first = self.memory(stride * count).ctypes.data
        return self.keep(first + np.arange(count, dtype=np.int64) * stride)

    def register(self, width: int, count: int | None = None) -> np.ndarray:
        """Rows of ``width`` float32, padded to whole vectors; returns the table of their addresses."""
        return self.rows(-(-width // 16) * 64, count)

    def record(self, words: dict[int, int], floats: dict[int, float] | None = None) -> np.ndarray:
        """Arguments of a kernel."""
        args = self.keep(np.zeros(16, np.int64))
        for index, word in words.items():
            args[index] = word
        for index, number in (floats or {}).items():
            args[index : index + 1].view(np.float32)[0] = number
        return args

    def vector(self, tensor: Tensor) -> int:
        """Address of a vector's float32 values, padded to whole vectors."""
        if id(tensor) not in self._vectors:
            raw = np.ascontiguousarray(tensor.data).reshape(1, -1).view(np.uint8)
            values = dequantize(raw, GGMLQuantizationType(tensor.type)).reshape(-1)
            memory = self.keep(aligned(-(-len(values) // 16) * 64)).view(np.float32)
            memory[: len(values)] = values
            self._vectors[id(tensor)] = memory
        return int(self._vectors[id(tensor)].ctypes.data)

    def kernels(self, kernels: Sequence[Kernel]) -> int:
        """Address of a table of kernel addresses by number of columns (1 …)."""
        key = tuple(kernels)
        if key not in self._kernel_tables:
            table = self.keep(np.array([0, *(k.address for k in key)], np.int64))
            self._kernel_tables[key] = int(table.ctypes.data)
        return self._kernel_tables[key]


def address(table: np.ndarray) -> int:
    """Where an array's data is."""
    return int(table.ctypes.data)
