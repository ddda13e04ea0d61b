"""GGUF files as editable data: build them field by field, wrong ones included, or take a sound file apart.

Written from the format's description, apart from the reader under test.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field, replace
from typing import Any

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
FORMATS = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q", I64: "q", F64: "d"}


def u32(value: int) -> bytes:
    return struct.pack("<I", value & 0xFFFFFFFF)


def u64(value: int) -> bytes:
    return struct.pack("<Q", value & 0xFFFFFFFFFFFFFFFF)


def text(value: str | bytes) -> bytes:
    """A length and the bytes."""
    raw = value.encode() if isinstance(value, str) else value
    return u64(len(raw)) + raw


def scalar(kind: int, value: Any) -> bytes:
    return text(value) if kind == STRING else struct.pack("<" + FORMATS[kind], value)


def array(kind: int, items: list[Any], count: int | None = None) -> bytes:
    """An array's encoding; ``count`` replaces the true number of items."""
    return u32(kind) + u64(len(items) if count is None else count) + b"".join(scalar(kind, item) for item in items)


def nested(depth: int) -> bytes:
    """Arrays of one item each, ``depth`` deep, around an empty list of numbers."""
    return (u32(ARRAY) + u64(1)) * depth + array(U8, [])


@dataclass
class Entry:
    """A metadata entry: its value is already encoded."""

    key: bytes
    kind: int
    value: bytes


@dataclass
class TensorSpec:
    """A tensor description as it will stand in the file; ``n_dims`` replaces the true number of dimensions."""

    name: bytes
    dims: tuple[int, ...]
    kind: int
    offset: int
    n_dims: int | None = None


@dataclass
class Spec:
    """A GGUF file taken apart. ``n_tensors`` and ``n_entries`` replace the true counts."""

    entries: list[Entry] = field(default_factory=list)
    tensors: list[TensorSpec] = field(default_factory=list)
    data: bytes = b""
    magic: bytes = b"GGUF"
    version: int = 3
    alignment: int = 32
    n_tensors: int | None = None
    n_entries: int | None = None

    def build(self) -> tuple[bytes, list[int]]:
        """The file's bytes, and where each of its fields begins (the last one is where the data begins)."""
        pieces = [self.magic, u32(self.version)]
        pieces.append(u64(len(self.tensors) if self.n_tensors is None else self.n_tensors))
        pieces.append(u64(len(self.entries) if self.n_entries is None else self.n_entries))
        for entry in self.entries:
            pieces += [u64(len(entry.key)), entry.key, u32(entry.kind), entry.value]
        for tensor in self.tensors:
            pieces += [u64(len(tensor.name)), tensor.name]
            pieces.append(u32(len(tensor.dims) if tensor.n_dims is None else tensor.n_dims))
            pieces += [u64(dim) for dim in tensor.dims] + [u32(tensor.kind), u64(tensor.offset)]
        marks, place = [], 0
        for piece in pieces:
            marks.append(place)
            place += len(piece)
        padding = -place % self.alignment
        marks.append(place + padding)
        return b"".join(pieces) + b"\0" * padding + self.data, marks

    def bytes(self) -> bytes:
        """The file's bytes alone."""
        return self.build()[0]

    def copy(self) -> Spec:
        """A copy whose lists and entries can be changed freely."""
        return replace(self, entries=[replace(e) for e in self.entries], tensors=[replace(t) for t in self.tensors])

    def set(self, key: str, kind: int, value: Any) -> None:
        """Set or add a metadata entry; ``value`` is a Python value, or bytes that are the encoding itself."""
        encoded = value if isinstance(value, bytes) else scalar(kind, value)
        for entry in self.entries:
            if entry.key == key.encode():
                entry.kind, entry.value = kind, encoded
                return
        self.entries.append(Entry(key.encode(), kind, encoded))


def small(n_tokens: int = 8) -> Spec:
    """A sound little file: some metadata of every type and three tensors."""
    spec = Spec()
    spec.set("general.architecture", STRING, "llama")
    spec.set("general.name", STRING, "Kleines Modell")
    for name, kind, value in (("u8", U8, 200), ("i8", I8, -7), ("u16", U16, 60_000), ("i16", I16, -300)):
        spec.set(f"test.{name}", kind, value)
    for name, kind, value in (("u32", U32, 4_000_000_000), ("i32", I32, -5), ("f32", F32, 0.5), ("f64", F64, 0.1)):
        spec.set(f"test.{name}", kind, value)
    for name, kind, value in (("u64", U64, 1 << 60), ("i64", I64, -(1 << 60)), ("bool", BOOL, 1)):
        spec.set(f"test.{name}", kind, value)
    spec.set("llama.block_count", U32, 1)
    spec.set("llama.embedding_length", U32, 64)
    spec.set("tokenizer.ggml.tokens", ARRAY, array(STRING, [f"t{i}" for i in range(n_tokens)]))
    spec.set("tokenizer.ggml.scores", ARRAY, array(F32, [-float(i) for i in range(n_tokens)]))
    spec.set("tokenizer.ggml.token_type", ARRAY, array(I32, [1] * n_tokens))
    spec.set("test.nested", ARRAY, u32(ARRAY) + u64(2) + array(U8, [1, 2]) + array(STRING, ["a", "ß"]))
    spec.tensors = [
        TensorSpec(b"token_embd.weight", (64, 8), 8, 0),
        TensorSpec(b"blk.0.attn_norm.weight", (64,), 0, 544),
        TensorSpec(b"experts.weight", (32, 2, 3), 1, 800),
    ]
    spec.data = bytes(i % 251 for i in range(800 + 384))
    return spec


def parse(blob: bytes) -> Spec:
    """Take a sound version 2 or 3 file apart."""
    place = 8

    def number(form: str) -> int:
        nonlocal place
        value = struct.unpack_from("<" + form, blob, place)[0]
        place += struct.calcsize("<" + form)
        return value

    def skip(kind: int) -> None:
        nonlocal place
        if kind == STRING:
            size = number("Q")
            place += size
        elif kind == ARRAY:
            item, count = number("I"), number("Q")
            for _ in range(count):
                skip(item)
        else:
            place += struct.calcsize("<" + FORMATS[kind])

    def name() -> bytes:
        nonlocal place
        size = number("Q")
        place += size
        return blob[place - size : place]

    spec = Spec(version=struct.unpack_from("<I", blob, 4)[0])
    n_tensors, n_entries = number("Q"), number("Q")
    for _ in range(n_entries):
        key, kind, start = name(), number("I"), place
        skip(kind)
        spec.entries.append(Entry(key, kind, blob[start:place]))
    for _ in range(n_tensors):
        label, n_dims = name(), number("I")
        dims = tuple(number("Q") for _ in range(n_dims))
        spec.tensors.append(TensorSpec(label, dims, number("I"), number("Q")))
    spec.data = blob[place + -place % spec.alignment :]
    return spec
