"""NumPy twins of the kernels that ``engine.kernels.reference`` does not cover, and helpers that call single kernels."""

from __future__ import annotations

import numpy as np

from engine.kernels import layout
from engine.kernels.kernel import Kernel
from engine.kernels.packing import aligned
from engine.kernels.quantize import OUTLIER

F = np.float32


class Rows:
    """float32[n, width] with guard values behind every row, and its table of row addresses."""

    def __init__(self, values: np.ndarray) -> None:
        n, self.width = values.shape
        padded = -(-self.width // 16) * 16
        self.memory = np.full((n, padded + 16), -77.0, F)
        self.memory[:, : self.width] = values
        self.table = self.memory.ctypes.data + np.arange(n, dtype=np.int64) * self.memory.strides[0]

    @property
    def at(self) -> int:
        return int(self.table.ctypes.data)

    @property
    def values(self) -> np.ndarray:
        return self.memory[:, : self.width].copy()

    def guards_hold(self) -> bool:
        """Whether nothing was written behind the rows."""
        return bool((self.memory[:, self.width :] == -77.0).all())


def arguments(words: dict[int, int], floats: dict[int, float] | None = None) -> np.ndarray:
    """A kernel's argument record."""
    args = np.zeros(16, np.int64)
    for index, word in words.items():
        args[index] = word
    for index, number in (floats or {}).items():
        args[index : index + 1].view(F)[0] = number
    return args


def call(kernel: Kernel, args: np.ndarray, end: int, context: np.ndarray | None = None) -> None:
    """Run a kernel on units [0, end)."""
    context = np.zeros(layout.CONTEXT_WORDS, np.int64) if context is None else context
    scratch = aligned(1 << 18)
    kernel.call(context.ctypes.data, args.ctypes.data, 0, end, scratch.ctypes.data)


def quantize_row(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(int32 codes[groups, 32], float32 scales[groups]) of float32[32 * groups]."""
    limit = F(np.abs(x).astype(np.float64).sum() * (OUTLIER / len(x)))
    groups = x.reshape(-1, 32)
    sizes = np.abs(groups)
    peaks = sizes.max(axis=1)
    inner = np.where(sizes <= limit, sizes, 0).max(axis=1)
    scales = np.where(peaks > limit, np.maximum(peaks / F(16000), inner / F(127)), peaks / F(127)).astype(F)
    inverse = np.where(scales > 0, F(1) / np.where(scales > 0, scales, F(1)), F(0)).astype(F)
    return np.rint(groups * inverse[:, None]).astype(np.int32), scales


def to_bfloat(x: np.ndarray) -> np.ndarray:
    """Numbers rounded to the nearest even bfloat16, as float32."""
    bits = np.ascontiguousarray(x, F).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype(np.uint32).view(F)


class Quantized:
    """Records of quantized rows as the kernels read them."""

    def __init__(self, n: int, width: int) -> None:
        self.n, self.groups = n, width // 32
        self.memory = aligned(n * self.groups * 2 * layout.Q_BYTES).reshape(n, 2, self.groups, layout.Q_BYTES)
        self.table = self.memory.ctypes.data + np.arange(n, dtype=np.int64) * self.memory.strides[0]

    @property
    def at(self) -> int:
        return int(self.table.ctypes.data)

    @property
    def codes(self) -> np.ndarray:
        """int32[n, groups, 32], both digits."""
        low, high = (self.memory[:, i, :, :32].view(np.int8).astype(np.int32) for i in range(2))
        return low + 128 * high

    def field(self, offset: int, dtype: type) -> np.ndarray:
        """A number of each group's record, [n, groups]."""
        return self.memory[:, 0, :, offset : offset + 4].copy().view(dtype)[..., 0]

    @property
    def values(self) -> np.ndarray:
        """What the codes stand for, float64[n, width]."""
        scales = self.field(layout.Q_SCALE, F).astype(np.float64)
        return (self.codes * scales[..., None]).reshape(self.n, -1)
