"""Ways to damage a GGUF file: each takes a ``Spec`` and a seeded random source and gives the damaged file's bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

from tests.fuzz import gguf_build as gb
from tests.fuzz.gguf_build import Spec

Mutation = Callable[[Spec, random.Random], bytes]

EXTREMES = (0, 1, 2, 7, 31, 33, 255, 256, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
ODD_FLOATS = (float("nan"), float("inf"), float("-inf"), 0.0, -1.0, 1e38, 1e-45)


def flip_bytes(spec: Spec, rng: random.Random) -> bytes:
    """Change one to eight bytes of the header."""
    blob, marks = spec.build()
    damaged = bytearray(blob)
    for _ in range(rng.randint(1, 8)):
        damaged[rng.randrange(marks[-1])] = rng.randrange(256)
    return bytes(damaged)


def truncate(spec: Spec, rng: random.Random) -> bytes:
    """Cut the file at a section's border, near one, or anywhere."""
    blob, marks = spec.build()
    place = rng.choice(marks) + rng.choice((-1, 0, 0, 1, 3)) if rng.random() < 0.8 else rng.randrange(len(blob))
    return blob[: max(0, place)]


def huge_number(spec: Spec, rng: random.Random) -> bytes:
    """Write an extreme 32- or 64-bit number over the beginning of a field."""
    blob, marks = spec.build()
    damaged = bytearray(blob)
    place = rng.choice(marks[:-1]) + rng.choice((0, 0, 0, 4))
    raw = struct.pack("<Q", rng.choice(EXTREMES))[: rng.choice((4, 8))]
    damaged[place : place + len(raw)] = raw
    return bytes(damaged)


def splice(spec: Spec, rng: random.Random) -> bytes:
    """Insert, delete or repeat a stretch of the header."""
    blob, marks = spec.build()
    start = rng.choice(marks)
    size = rng.randint(1, 64)
    how = rng.randrange(3)
    if how == 0:
        return blob[:start] + rng.randbytes(size) + blob[start:]
    if how == 1:
        return blob[:start] + blob[start + size :]
    return blob[:start] + blob[start : start + size] * rng.randint(2, 50) + blob[start + size :]


def wrong_counts(spec: Spec, rng: random.Random) -> bytes:
    """Claim too many or too few tensors or metadata entries."""
    n_true = rng.choice((len(spec.tensors), len(spec.entries)))
    claimed = rng.choice((*EXTREMES, n_true + 1, max(0, n_true - 1)))
    if rng.random() < 0.5:
        spec.n_tensors = claimed
    else:
        spec.n_entries = claimed
    return spec.bytes()


def metadata_shape(spec: Spec, rng: random.Random) -> bytes:
    """Remove, repeat, rename or reorder metadata entries."""
    entry = rng.choice(spec.entries)
    how = rng.randrange(4)
    if how == 0:
        spec.entries.remove(entry)
    elif how == 1:
        spec.entries.append(entry)
    elif how == 2:
        entry.key = rng.choice((b"", b"\xff\xfe", b"a\nb", b"k" * 70_000, entry.key + b"x"))
    else:
        rng.shuffle(spec.entries)
    return spec.bytes()


def metadata_value(spec: Spec, rng: random.Random) -> bytes:
    """Give one to three entries another type or an extreme value: missing or contradictory metadata."""
    for _ in range(rng.randint(1, 3)):
        entry = rng.choice(spec.entries)
        kind = rng.choice((gb.U8, gb.U32, gb.I32, gb.U64, gb.F32, gb.BOOL, gb.STRING, 13, 2**32 - 1))
        if kind == gb.STRING:
            value = gb.text(rng.choice((b"", b"\xff\xff", b"gpt2", b"llama", b"x" * 100_000)))
        elif kind == gb.F32:
            value = gb.scalar(gb.F32, rng.choice(ODD_FLOATS))
        elif kind in gb.FORMATS:
            value = struct.pack("<Q", rng.choice(EXTREMES))[: struct.calcsize(gb.FORMATS[kind])]
        else:
            value = rng.randbytes(8)
        entry.kind, entry.value = kind, value
    return spec.bytes()


def arrays(spec: Spec, rng: random.Random) -> bytes:
    """Wrong vocabulary sizes, impossible array counts, deep nesting, strings that are no text."""
    lists = [entry for entry in spec.entries if entry.kind == gb.ARRAY]
    entry = rng.choice(lists)
    how = rng.randrange(6)
    if how == 0:
        entry.value = entry.value[:4] + gb.u64(rng.choice(EXTREMES)) + entry.value[12:]
    elif how == 1:
        entry.value = gb.array(gb.STRING, [f"t{i}" for i in range(rng.choice((0, 1, 255, 257, 5000)))])
    elif how == 2:
        entry.value = gb.array(rng.choice((gb.I32, gb.F32, gb.U8, gb.BOOL)), [1] * rng.choice((0, 1, 255, 70_000)))
    elif how == 3:
        entry.value = gb.nested(rng.choice((1, 3, 4, 5, 2000)))
    elif how == 4:
        entry.value = gb.array(gb.STRING, [b"\xf0\x28", b"", b"\xed\xa0\x80"])
    else:
        entry.value = gb.array(gb.F32, [rng.choice(ODD_FLOATS) for _ in range(256)])
    return spec.bytes()


def tensor_shape(spec: Spec, rng: random.Random) -> bytes:
    """Impossible dimensions, types and names."""
    tensor = rng.choice(spec.tensors)
    how = rng.randrange(6)
    if how == 0:
        dims = list(tensor.dims)
        dims[rng.randrange(len(dims))] = rng.choice(EXTREMES)
        tensor.dims = tuple(dims)
    elif how == 1:
        tensor.dims = tuple(rng.choice(EXTREMES) for _ in range(rng.randint(1, 4)))
    elif how == 2:
        tensor.n_dims = rng.choice((0, 1, 3, 4, 5, 2**31, 2**32 - 1))
    elif how == 3:
        tensor.kind = rng.choice((*range(45), 2**31, 2**32 - 1))
    elif how == 4:
        tensor.name = rng.choice((b"", b"\xff", b"x" * 300, b"a\0b", rng.choice(spec.tensors).name))
    else:
        tensor.dims = tensor.dims[::-1]
    return spec.bytes()


def tensor_place(spec: Spec, rng: random.Random) -> bytes:
    """Overlapping, misaligned or far-away data; missing tensors; odd alignments."""
    tensor = rng.choice(spec.tensors)
    how = rng.randrange(4)
    if how == 0:
        tensor.offset = rng.choice(spec.tensors).offset
    elif how == 1:
        tensor.offset = rng.choice((*EXTREMES, len(spec.data), len(spec.data) - 32, tensor.offset + 1))
    elif how == 2:
        spec.tensors.remove(tensor)
    else:
        spec.set("general.alignment", gb.U32, gb.u32(rng.choice(EXTREMES)))
    return spec.bytes()


def odd_scales(spec: Spec, rng: random.Random) -> bytes:
    """NaN and infinite numbers among the weights, in half and single precision."""
    data = bytearray(spec.data)
    for _ in range(rng.randint(1, 200)):
        raw = rng.choice((b"\x00\x7e", b"\x00\x7c", b"\x00\xfc", b"\x00\x00\xc0\x7f", b"\x00\x00\x80\x7f", b"\xff" * 8))
        place = rng.randrange(0, max(1, len(data) - 8), 2)
        data[place : place + len(raw)] = raw
    spec.data = bytes(data)
    return spec.bytes()


def other_version(spec: Spec, rng: random.Random) -> bytes:
    """Another version number or another magic."""
    if rng.random() < 0.5:
        spec.version = rng.choice((0, 1, 2, 3, 4, 0x02000000, 0x03000000, 2**32 - 1))
    else:
        spec.magic = rng.choice((b"GGUG", b"\0\0\0\0", b"PK\x03\x04", b"lmgg", b"<htm", rng.randbytes(4)))
    return spec.bytes()


MUTATIONS: tuple[Mutation, ...] = (
    flip_bytes,
    truncate,
    huge_number,
    splice,
    wrong_counts,
    metadata_shape,
    metadata_value,
    arrays,
    tensor_shape,
    tensor_place,
    odd_scales,
    other_version,
)
