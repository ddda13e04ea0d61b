"""The tensor table: descriptions checked against each other and against the size of the file."""

from __future__ import annotations

from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from engine.errors import ModelFileError
from engine.gguf.cursor import Cursor, quoted
from engine.gguf.header import TensorEntry, read_tensor_entry
from engine.gguf.types import RETIRED_TYPES, TENSOR_TYPES
from engine.kernels.ops import Tensor

MAX_TENSORS = 32_768
MAX_NAME_BYTES = 255
DEFAULT_ALIGNMENT = 32
MAX_ALIGNMENT = 65_536


def read_tensors(cursor: Cursor, count: int, metadata: dict[str, Any]) -> dict[str, Tensor]:
    """Read ``count`` descriptions from the cursor on and return name -> ``Tensor`` over the cursor's buffer."""
    if count > MAX_TENSORS:
        raise cursor.damaged(
            "tensor_count", f"it claims {count} tensors, more than the {MAX_TENSORS} this program accepts"
        )
    alignment = _alignment(cursor, metadata)
    entries: dict[str, TensorEntry] = {}
    for index in range(count):
        entry = read_tensor_entry(cursor, index, MAX_NAME_BYTES)
        if entry.name in entries:
            raise cursor.damaged(f"{entry.name}.name", f"it has the tensor {quoted(entry.name)} twice")
        entries[entry.name] = entry
    data_start = -(-cursor.pos // alignment) * alignment
    sizes = {name: _checked_size(cursor, entry, alignment, data_start) for name, entry in entries.items()}
    _check_overlap(cursor, entries, sizes)
    return {name: _view(cursor.buf, entry, data_start, sizes[name]) for name, entry in entries.items()}


def _alignment(cursor: Cursor, metadata: dict[str, Any]) -> int:
    key = "general.alignment"
    value = metadata.get(key, DEFAULT_ALIGNMENT)
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or not 8 <= value <= MAX_ALIGNMENT or value & (value - 1):
        shown = value if whole else "not a whole number"
        raise cursor.damaged(key, f"{quoted(key)} is {shown}, but must be a power of two between 8 and {MAX_ALIGNMENT}")
    return value


def _checked_size(cursor: Cursor, entry: TensorEntry, alignment: int, data_start: int) -> int:
    """Bytes of the tensor's data, after its type, dimensions and place have been checked."""
    name = quoted(entry.name)
    kind = TENSOR_TYPES.get(entry.type)
    if kind is None:
        raise _unknown_type(cursor, entry)
    if 0 in entry.dims:
        raise cursor.damaged(f"{entry.name}.shape", f"tensor {name} has a dimension of 0")
    cols = entry.dims[0]
    if cols % kind.block:
        raise cursor.damaged(
            f"{entry.name}.shape",
            f"rows of tensor {name} have {cols} weights, not a multiple of the {kind.block} of {kind.name}",
        )
    size = kind.row_bytes(cols) * prod(entry.dims[1:])
    if entry.offset % alignment:
        raise cursor.damaged(f"{entry.name}.offset", f"tensor {name} does not start at a multiple of {alignment} bytes")
    if data_start + entry.offset + size > cursor.end:
        raise cursor.damaged(
            f"{entry.name}.offset",
            f"tensor {name} needs bytes up to {data_start + entry.offset + size}, but the file ends at {cursor.end}",
        )
    return size


def _unknown_type(cursor: Cursor, entry: TensorEntry) -> ModelFileError:
    field, name = f"{entry.name}.type", quoted(entry.name)
    if entry.type in RETIRED_TYPES:
        words = f"tensor {name} has the retired type {RETIRED_TYPES[entry.type]}; get a newer edition of the model."
    else:
        words = f"tensor {name} has the unknown type {entry.type}; the file is damaged or newer than this program."
    return ModelFileError(f"{cursor.file_name} cannot be used: {words}", field=field)


def _check_overlap(cursor: Cursor, entries: dict[str, TensorEntry], sizes: dict[str, int]) -> None:
    by_place = sorted(entries.values(), key=lambda entry: entry.offset)
    for first, second in pairwise(by_place):
        if first.offset + sizes[first.name] > second.offset:
            raise cursor.damaged(
                f"{second.name}.offset", f"the tensors {quoted(first.name)} and {quoted(second.name)} overlap"
            )


def _view(buf: Any, entry: TensorEntry, data_start: int, size: int) -> Tensor:
    data = np.frombuffer(buf, np.uint8, size, data_start + entry.offset)
    return Tensor(entry.name, entry.type, tuple(reversed(entry.dims)), data)
