"""Reading little-endian values from a buffer of known size, never beyond its end."""

from __future__ import annotations

import struct
from typing import Any

from engine.errors import ModelFileError

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")


def quoted(name: str) -> str:
    """A name from the file for use in a message: shortened, with nothing unprintable in it."""
    shown = name if len(name) <= 80 else name[:77] + "…"
    return "“" + "".join(char if char.isprintable() else "?" for char in shown) + "”"


class Cursor:
    """A position in ``buf``; every read names the ``field`` it serves, for the error that a short file ends in.

    ``buf`` supports slicing to bytes and the buffer protocol (``mmap`` or ``bytes``).
    """

    def __init__(self, buf: Any, file_name: str) -> None:
        self.buf = buf
        self.file_name = file_name
        self.end = len(buf)
        self.pos = 0

    @property
    def left(self) -> int:
        """Bytes between the position and the end."""
        return self.end - self.pos

    def damaged(self, field: str, what: str) -> ModelFileError:
        """The error for a file that contradicts itself or the format; ``what`` is a clause about ``field``."""
        return ModelFileError(f"{self.file_name} is damaged: {what}; download it again.", field=field)

    def skip(self, size: int, field: str) -> int:
        """Move over ``size`` bytes and return where they start."""
        if size > self.end - self.pos:
            raise self.damaged(
                field, f"it ends inside {quoted(field)}, which needs {size} bytes where {self.left} are left"
            )
        start = self.pos
        self.pos += size
        return start

    def u32(self, field: str) -> int:
        """An unsigned 32-bit number."""
        return _U32.unpack_from(self.buf, self.skip(4, field))[0]

    def u64(self, field: str) -> int:
        """An unsigned 64-bit number."""
        return _U64.unpack_from(self.buf, self.skip(8, field))[0]

    def count(self, field: str, item_bytes: int, limit: int) -> int:
        """A count of items that take at least ``item_bytes`` each and of which there may be at most ``limit``."""
        count = self.u64(field)
        if count > self.left // item_bytes:
            raise self.damaged(
                field, f"{quoted(field)} claims {count} items, more than the {self.left} bytes left can hold"
            )
        if count > limit:
            raise self.damaged(
                field, f"{quoted(field)} claims {count} items, more than the {limit} this program accepts"
            )
        return count

    def string(self, field: str, limit: int) -> bytes:
        """A length (64 bits) and that many bytes, at most ``limit``."""
        size = self.u64(field)
        if size > limit:
            raise self.damaged(field, f"{quoted(field)} claims {size} bytes where at most {limit} are allowed")
        start = self.skip(size, field)
        return self.buf[start : self.pos]

    def skip_strings(self, count: int, field: str) -> None:
        """Move over ``count`` strings. A tight loop: vocabularies have hundreds of thousands of them."""
        buf, pos, last = self.buf, self.pos, self.end - 8
        unpack = _U64.unpack_from
        for index in range(count):
            if pos > last:
                raise self.damaged(field, f"it ends inside {quoted(field)}, at item {index} of {count}")
            pos += 8 + unpack(buf, pos)[0]
        if pos > self.end:
            raise self.damaged(field, f"the last item of {quoted(field)} reaches beyond the end of the file")
        self.pos = pos

    def strings(self, count: int, field: str) -> list[str]:
        """Decode ``count`` strings."""
        buf, pos, last = self.buf, self.pos, self.end - 8
        unpack = _U64.unpack_from
        items: list[str] = []
        append = items.append
        try:
            for _ in range(count):
                if pos > last:
                    raise self.damaged(field, f"it ends inside {quoted(field)}, at item {len(items)} of {count}")
                start = pos + 8
                pos = start + unpack(buf, pos)[0]
                append(buf[start:pos].decode())
        except UnicodeDecodeError:
            raise self.damaged(field, f"item {len(items)} of {quoted(field)} is not valid UTF-8 text") from None
        self.pos = pos
        return items
