"""Windows and macOS icons from the PNG files in ``resources/icons/app``; both formats simply hold PNG files."""

from __future__ import annotations

import struct
from pathlib import Path

# Type codes of an .icns file for square PNG images, by size in pixels.
_ICNS_TYPES = {16: b"icp4", 32: b"icp5", 64: b"icp6", 128: b"ic07", 256: b"ic08", 512: b"ic09"}


def png_files(folder: Path) -> dict[int, bytes]:
    """The application's icons by size in pixels; raises ValueError if there is none."""
    found = {}
    for file in folder.glob("kvscope-*.png"):
        data = file.read_bytes()
        found[int.from_bytes(data[16:20], "big")] = data
    if not found:
        raise ValueError(f"there are no icons in {folder}")
    return dict(sorted(found.items()))


def ico(images: dict[int, bytes]) -> bytes:
    """A Windows icon: a directory of 16 bytes an image, then the PNG files. It holds sizes up to 256."""
    images = {size: data for size, data in images.items() if size <= 256}
    directory = struct.pack("<HHH", 0, 1, len(images))
    offset = len(directory) + 16 * len(images)
    for size, data in images.items():
        # A size of 256 is written as 0.
        directory += struct.pack("<BBBBHHII", size % 256, size % 256, 0, 0, 1, 32, len(data), offset)
        offset += len(data)
    return directory + b"".join(images.values())


def icns(images: dict[int, bytes]) -> bytes:
    """A macOS icon: one chunk an image, each with its type and length, in a chunk of the whole file."""
    chunks = b"".join(
        _ICNS_TYPES[size] + struct.pack(">I", len(data) + 8) + data
        for size, data in images.items()
        if size in _ICNS_TYPES
    )
    return b"icns" + struct.pack(">I", len(chunks) + 8) + chunks
