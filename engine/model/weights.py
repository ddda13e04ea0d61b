"""Checked access to a file's tensors: every shape is compared with what the config asks for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf import TENSOR_TYPES
from engine.kernels.formats import BY_TYPE, FLOATS
from engine.kernels.ops import Tensor

_F32 = 0
_KNOWN_TYPES = frozenset({int(kind) for kind in (*BY_TYPE, *FLOATS)})


class Weights:
    """The tensors of a file by name. Errors are ``ModelFileError`` and name the tensor."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._tensors = tensors
        self._used: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def rows(self, name: str) -> int:
        """How many rows a matrix has, before anything is known about the model."""
        tensor = self._tensors.get(name)
        if tensor is None or len(tensor.shape) != 2:
            raise ModelFileError(f"The model file has no usable tensor {name}; the file may be cut short.", field=name)
        return tensor.shape[0]

    def tensor(self, name: str, *shape: int) -> Tensor:
        """The tensor ``name``, which must have exactly this C-order ``shape``."""
        tensor = self._tensors.get(name)
        if tensor is None:
            raise ModelFileError(f"The model file lacks the tensor {name}; the file may be cut short.", field=name)
        if tensor.shape != shape:
            raise ModelFileError(
                f"The tensor {name} has shape {_text(tensor.shape)}, but the model's own settings ask for "
                f"{_text(shape)}; the file is damaged or was made for another program.",
                field=name,
            )
        if tensor.type not in _KNOWN_TYPES:
            kind = TENSOR_TYPES[tensor.type].name if tensor.type in TENSOR_TYPES else f"number {tensor.type}"
            raise UnsupportedModelError(
                f"The tensor {name} is of type {kind}, which this engine cannot compute with; choose a file with "
                "another quantization, such as Q4_K_M or Q8_0."
            )
        self._used.add(name)
        return tensor

    def optional(self, name: str, *shape: int) -> Tensor | None:
        """The tensor ``name`` of exactly this shape, or None if the file has none."""
        return self.tensor(name, *shape) if name in self._tensors else None

    def as_matrix(self, name: str, cols: int) -> Tensor:
        """A vector of ``cols`` entries as a matrix of one row."""
        tensor = self._tensors.get(name)
        if tensor is not None and tensor.shape == (1, cols):
            return self.tensor(name, 1, cols)
        return replace(self.tensor(name, cols), shape=(1, cols))

    def split_rows(self, name: str, heights: tuple[int, ...], cols: int) -> tuple[Tensor, ...]:
        """A fused matrix as several, ``heights`` rows each: views of the same bytes."""
        fused = self.tensor(name, sum(heights), cols)
        by_row = fused.data.reshape(sum(heights), -1)
        parts, start = [], 0
        for part, height in enumerate(heights):
            data = by_row[start : start + height].reshape(-1)
            parts.append(Tensor(f"{name}[{part}]", fused.type, (height, cols), data))
            start += height
        return tuple(parts)

    def split_vector(self, name: str, sizes: tuple[int, ...]) -> tuple[Tensor | None, ...]:
        """A fused bias as several, views of the same bytes; as many Nones if the file has none."""
        if name not in self._tensors:
            return (None,) * len(sizes)
        fused = self.tensor(name, sum(sizes))
        item = len(fused.data) // fused.shape[0]
        parts, start = [], 0
        for part, size in enumerate(sizes):
            data = fused.data[start * item : (start + size) * item]
            parts.append(Tensor(f"{name}[{part}]", fused.type, (size,), data))
            start += size
        return tuple(parts)

    def floats(self, name: str, n: int) -> np.ndarray:
        """The values of a float32 vector."""
        tensor = self.tensor(name, n)
        if tensor.type != _F32:
            raise ModelFileError(f"The tensor {name} is not in 32-bit floats, as it must be.", field=name)
        return tensor.data.view(np.float32)

    def ignore(self, *names: str) -> None:
        """These tensors may be there and stay unread."""
        self._used.update(names)

    def check_all_used(self) -> None:
        """Refuse a file with tensors that no operation reads: its results would be wrong."""
        unknown = sorted(set(self._tensors) - self._used)
        if unknown:
            raise UnsupportedModelError(
                f"This model has {len(unknown)} tensors that this engine has no use for, {unknown[0]} among them; "
                "it is a variant that cannot be run."
            )


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape)
