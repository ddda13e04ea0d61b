"""The header of a GGUF file: counts, metadata values and tensor descriptions, each checked before it is used.

Layout (little-endian): "GGUF", version u32, tensor count u64, metadata count u64; the metadata, each a key, a type u32
and a value; the tensor descriptions, each a name, the number of dimensions u32, the dimensions u64 (fastest first), a
type u32 and an offset u64 into the data, which begins at the next multiple of the alignment.
Source: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from engine.errors import ModelFileError
from engine.gguf.cursor import Cursor, quoted
from engine.gguf.metadata import Deferred
from engine.gguf.types import NUMBER_DTYPES, ValueType

MAX_KEYS = 16_384
MAX_KEY_BYTES = 65_535
MAX_ITEMS = 2_097_152
"""Strings and nested lists in all arrays together (Gemma has 262,144; Llama 3 about 400,000)."""
MAX_DEPTH = 4
"""Arrays inside arrays."""
HELD_STRING_BYTES = 65_536
HELD_STRINGS_BYTES = 4_194_304
"""A string up to the first size is kept in memory, up to the second in all; beyond, it is decoded when asked for."""
MAX_STRING_BYTES = 268_435_456

_MIN_KEY_VALUE = 8 + 1 + 4 + 1
_MIN_TENSOR = 8 + 1 + 4 + 8 + 4 + 8


@dataclass(slots=True)
class Counts:
    """The fixed part of the header."""

    version: int
    tensors: int
    keys: int


def read_counts(cursor: Cursor) -> Counts:
    """Version and counts; the magic has been checked by the caller."""
    cursor.skip(4, "magic")
    version = cursor.u32("version")
    if version not in (2, 3):
        raise _bad_version(cursor, version)
    tensors = cursor.u64("tensor_count")
    if tensors > cursor.left // _MIN_TENSOR:
        raise cursor.damaged("tensor_count", f"it claims {tensors} tensors, more than its size can hold")
    keys = cursor.count("metadata_count", _MIN_KEY_VALUE, MAX_KEYS)
    return Counts(version, tensors, keys)


def _bad_version(cursor: Cursor, version: int) -> ModelFileError:
    name = cursor.file_name
    if version and version & 0xFFFF == 0:
        words = f"{name} is a big-endian GGUF file, made for another kind of machine; get the little-endian edition."
    elif version < 2:
        words = f"{name} has GGUF version {version}, which is no longer in use; get a newer edition of the model."
    else:
        words = f"{name} has GGUF version {version}, and only 2 and 3 can be read; get another edition of the model."
    return ModelFileError(words, field="version")


class MetadataReader:
    """Reads the metadata section: ``read(count)`` gives key -> value or ``Deferred``."""

    def __init__(self, cursor: Cursor) -> None:
        self._cursor = cursor
        self._items_left = MAX_ITEMS
        self._held_left = HELD_STRINGS_BYTES

    def read(self, count: int) -> dict[str, Any]:
        """Read ``count`` keys with their values from the cursor's position on."""
        values: dict[str, Any] = {}
        for index in range(count):
            key = self._key(index)
            if key in values:
                raise self._cursor.damaged(key, f"the metadata has {quoted(key)} twice")
            values[key] = self._value(key, self._cursor.u32(key))
        return values

    def _key(self, index: int) -> str:
        field = f"metadata[{index}].key"
        raw = self._cursor.string(field, MAX_KEY_BYTES)
        if not raw.isascii() or not raw.decode("latin-1").isprintable() or not raw:
            raise self._cursor.damaged(field, f"the name of metadata entry {index} is not plain text")
        return raw.decode("ascii")

    def _value(self, key: str, kind: int) -> Any:
        cursor = self._cursor
        if kind == ValueType.STRING:
            return self._string(key)
        if kind == ValueType.ARRAY:
            return self._array(key)
        if kind not in NUMBER_DTYPES:
            raise cursor.damaged(key, f"{quoted(key)} has the unknown type {kind}")
        dtype = NUMBER_DTYPES[kind]
        start = cursor.skip(dtype.itemsize, key)
        value = np.frombuffer(cursor.buf[start : cursor.pos], dtype)[0].item()
        if kind != ValueType.BOOL:
            return value
        if value > 1:
            raise cursor.damaged(key, f"{quoted(key)} should be true or false, but holds {value}")
        return bool(value)

    def _string(self, key: str) -> Any:
        cursor = self._cursor
        size = cursor.u64(key)
        if size > MAX_STRING_BYTES:
            raise cursor.damaged(key, f"{quoted(key)} claims {size} bytes where at most {MAX_STRING_BYTES} are allowed")
        start = cursor.skip(size, key)
        buf, end = cursor.buf, cursor.pos

        def read() -> str:
            return buf[start:end].decode("utf-8", errors="replace")

        if size > HELD_STRING_BYTES or size > self._held_left:
            return Deferred(read, None)
        self._held_left -= size
        return read()

    def _array(self, key: str) -> Deferred:
        """Check an array and move over it; what is returned decodes it."""
        cursor = self._cursor
        start = cursor.pos
        count = self._skip_array(key, MAX_DEPTH)
        buf, name = cursor.buf, cursor.file_name

        def read() -> Any:
            again = Cursor(buf, name)
            again.pos = start
            return _decode_array(again, key)

        return Deferred(read, count)

    def _skip_array(self, key: str, depth: int) -> int:
        cursor = self._cursor
        if depth == 0:
            raise cursor.damaged(key, f"{quoted(key)} holds lists nested more than {MAX_DEPTH} deep")
        kind = cursor.u32(key)
        if kind in NUMBER_DTYPES:
            size = NUMBER_DTYPES[kind].itemsize
            count = cursor.count(key, size, cursor.end)
            cursor.skip(count * size, key)
            return count
        if kind not in (ValueType.STRING, ValueType.ARRAY):
            raise cursor.damaged(key, f"{quoted(key)} is a list of the unknown type {kind}")
        count = cursor.count(key, 8 if kind == ValueType.STRING else 12, self._items_left)
        self._items_left -= count
        if kind == ValueType.STRING:
            cursor.skip_strings(count, key)
        else:
            for _ in range(count):
                self._skip_array(key, depth - 1)
        return count


def _decode_array(cursor: Cursor, key: str) -> Any:
    """Decode an array whose extent was checked: a read-only numpy array, list[str], or a list of arrays."""
    kind = cursor.u32(key)
    count = cursor.u64(key)
    if kind == ValueType.ARRAY:
        return [_decode_array(cursor, key) for _ in range(count)]
    if kind == ValueType.STRING:
        return cursor.strings(count, key)
    dtype = NUMBER_DTYPES[kind]
    start = cursor.skip(count * dtype.itemsize, key)
    array = np.frombuffer(cursor.buf[start : cursor.pos], dtype)
    return array != 0 if kind == ValueType.BOOL else array.astype(dtype.newbyteorder("="), copy=False)


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A tensor description as it stands in the file: ``dims`` fastest first, ``offset`` from the start of the data."""

    name: str
    dims: tuple[int, ...]
    type: int
    offset: int


def read_tensor_entry(cursor: Cursor, index: int, max_name: int) -> TensorEntry:
    """Read one tensor description; only sizes are checked here, meaning in ``engine.gguf.tensors``."""
    field = f"tensors[{index}].name"
    raw = cursor.string(field, max_name)
    try:
        name = raw.decode()
    except UnicodeDecodeError:
        raise cursor.damaged(field, f"the name of tensor {index} is not valid UTF-8 text") from None
    if not name or not name.isprintable():
        raise cursor.damaged(field, f"the name of tensor {index} is not plain text")
    n_dims = cursor.u32(f"{name}.n_dims")
    if not 1 <= n_dims <= 4:
        raise cursor.damaged(
            f"{name}.n_dims", f"tensor {quoted(name)} has {n_dims} dimensions where 1 to 4 are allowed"
        )
    start = cursor.skip(8 * n_dims, f"{name}.shape")
    dims = struct.unpack_from(f"<{n_dims}Q", cursor.buf, start)
    kind = cursor.u32(f"{name}.type")
    return TensorEntry(name, dims, kind, cursor.u64(f"{name}.offset"))
