"""Packed weight formats: what a GGUF tensor becomes at load, without loss.

Rows are interleaved by 16, so that one vector instruction feeds 16 outputs and needs no horizontal sum. A block of 16
rows is one stream, read from front to back: group by group (32 columns) its codes and then its scales; what 8 groups
share comes before them. (With codes and scales apart, memory gave half the bandwidth.)

* Codes are cut into bit planes. Vector v of a group (v = 0 … 7) has columns 4v … 4v+3 of the 16 rows, byte 4 * row + b
  for column 4v + b. The 4-bit plane keeps vectors v and v + 4 in one (low and high nibble), the 2-bit plane vectors
  v … v+3, the 1-bit plane all eight.
* weight = scale * (code - 2**shift) for formats with an offset, scale * table[code] for those with a table, else
  scale * code + min. With a table the codes are looked up, and the table is stored with 128 added.
* Scales are float16 where that is exact. K-types multiply a float16 per 256 columns by a small integer per group (or
  half group), a product that needs more bits: both factors are kept.
"""

from __future__ import annotations

from dataclasses import dataclass

from gguf import GGMLQuantizationType as T

BLOCK_ROWS = 16
GROUP = 32
SUPER = 8
"""Groups that share one float16 scale in K-types."""

IQ4_TABLE = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)
MXFP4_TABLE = (0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)

# How scales are kept (bytes per group of 16 rows; per 8 groups).
S_HALF = 0  # float16                                    32, 0
S_HALF_MIN = 1  # float16 scale, float16 min             64, 0
S_E8 = 2  # power of two, biased exponent                16, 0
S_K = 3  # uint8 scale, uint8 min; float16 d, dmin       32, 64
S_K16 = 4  # two int8 scales, by half group; float16 d   32, 32
S_K1 = 5  # int8 scale; float16 d                        16, 32
S_K2 = 6  # two of (4-bit scale, 4-bit min); d, dmin     32, 64
S_FLOAT = 7  # float32                                   64, 0
S_FLOAT_MIN = 8  # float32 scale, float32 min            128, 0
S_FLOAT16 = 9  # two float32, by half group              128, 0
S_FLOAT16_MIN = 10  # two float32 scales, two minima     256, 0
_SCALE_BYTES = (32, 64, 16, 32, 32, 16, 32, 64, 128, 128, 256)
_SUPER_BYTES = (0, 0, 0, 64, 32, 32, 64, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Format:
    """One packed format. ``planes`` are the widths of its bit planes from the low bits up."""

    index: int
    name: str
    type: T
    planes: tuple[int, ...]
    scales: int
    shift: int = -1
    table: tuple[int, ...] = ()
    bits: int = 0

    @property
    def code_bytes(self) -> int:
        """Bytes of codes for one group of 16 rows."""
        return sum(64 * bits for bits in self.planes)

    @property
    def scale_bytes(self) -> int:
        """Bytes of scales for one group of 16 rows."""
        return _SCALE_BYTES[self.scales]

    @property
    def super_bytes(self) -> int:
        """Bytes of scales that 8 groups share, 0 if there are none."""
        return _SUPER_BYTES[self.scales]

    @property
    def group_bytes(self) -> int:
        """Bytes of codes and scales for one group of 16 rows."""
        return self.code_bytes + self.scale_bytes

    @property
    def file_bytes(self) -> int:
        """Bytes in the file for one block of a row (32 or 256 columns)."""
        return _FILE_BYTES[self.type]

    @property
    def halves(self) -> bool:
        """Whether each half of a group has its own scale."""
        return self.scales in (S_K16, S_K2, S_FLOAT16, S_FLOAT16_MIN)

    @property
    def mins(self) -> bool:
        """Whether a weight has a min added."""
        return self.scales in (S_HALF_MIN, S_K, S_K2, S_FLOAT_MIN, S_FLOAT16_MIN)

    @property
    def largest(self) -> int:
        """The largest code that a product meets."""
        return (1 << (8 if self.table else self.bits or sum(self.planes))) - 1

    @property
    def expanded(self) -> bool:
        """Whether this is a format that only lives in a thread's scratch."""
        return self.scales >= S_FLOAT

    def block_bytes(self, groups: int) -> int:
        """Bytes of one block of 16 rows with ``groups`` groups, a multiple of 64."""
        total = groups * self.group_bytes
        if self.super_bytes:
            total += groups // SUPER * self.super_bytes
        return -(-total // 64) * 64


FORMATS = (
    Format(0, "u4", T.Q4_0, (4,), S_HALF, shift=3),
    Format(1, "u4m", T.Q4_1, (4,), S_HALF_MIN),
    Format(2, "u5", T.Q5_0, (4, 1), S_HALF, shift=4),
    Format(3, "u5m", T.Q5_1, (4, 1), S_HALF_MIN),
    Format(4, "u8", T.Q8_0, (8,), S_HALF, shift=7),
    Format(5, "u4k", T.Q4_K, (4,), S_K),
    Format(6, "u5k", T.Q5_K, (4, 1), S_K),
    Format(7, "u6k", T.Q6_K, (4, 2), S_K16, shift=5),
    Format(8, "u3k", T.Q3_K, (2, 1), S_K16, shift=2),
    Format(9, "u2k", T.Q2_K, (2,), S_K2),
    Format(10, "l4", T.IQ4_NL, (4,), S_HALF, shift=7, table=IQ4_TABLE),
    Format(11, "l4k", T.IQ4_XS, (4,), S_K1, shift=7, table=IQ4_TABLE),
    Format(12, "l4e", T.MXFP4, (4,), S_E8, shift=7, table=MXFP4_TABLE),
)
BY_TYPE = {format.type: format for format in FORMATS}
# What a block becomes while many rows are multiplied by it: codes of 8 bits (tables looked up), float32 scales.
EXPANDED = (
    Format(13, "x3", T.F32, (8,), S_FLOAT, shift=3, bits=4),
    Format(14, "x4", T.F32, (8,), S_FLOAT, shift=4, bits=5),
    Format(15, "x7", T.F32, (8,), S_FLOAT, shift=7),
    Format(16, "xm", T.F32, (8,), S_FLOAT_MIN, bits=4),
    Format(17, "xh5", T.F32, (8,), S_FLOAT16, shift=5, bits=6),
    Format(18, "xh2", T.F32, (8,), S_FLOAT16, shift=2, bits=3),
    Format(19, "xhm", T.F32, (8,), S_FLOAT16_MIN, bits=2),
    Format(20, "xm5", T.F32, (8,), S_FLOAT_MIN, bits=5),
)


def expanded(fmt: Format) -> Format:
    """The expanded format that stands for the same numbers."""
    wanted = fmt.largest, fmt.shift, fmt.mins, fmt.halves
    return next(x for x in EXPANDED if (x.largest, x.shift, x.mins, x.halves) == wanted)


def by_index(index: int) -> Format:
    """A format by its number."""
    return (*FORMATS, *EXPANDED)[index]


_FILE_BYTES = {
    T.Q4_0: 18,
    T.Q4_1: 20,
    T.Q5_0: 22,
    T.Q5_1: 24,
    T.Q8_0: 34,
    T.Q4_K: 144,
    T.Q5_K: 176,
    T.Q6_K: 210,
    T.Q3_K: 110,
    T.Q2_K: 84,
    T.IQ4_NL: 18,
    T.IQ4_XS: 136,
    T.MXFP4: 17,
}

F32, F16, BF16 = 0, 1, 2
FLOATS = {T.F32: F32, T.F16: F16, T.BF16: BF16}
"""Float types stay as they are: 16 rows side by side for each column."""
FLOAT_BYTES = (4, 2, 2)
