"""Opening a GGUF file: ``open_gguf`` maps it, reads its header and gives a ``GGUFFile``.

Memory beyond the mapped file itself (whose pages the system can drop): at most the size of the header for keys and
names, plus ``READER_BYTES``. Arrays and long strings are decoded only when asked for.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import stat
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.errors import ModelFileError
from engine.gguf.cursor import Cursor
from engine.gguf.header import MetadataReader, read_counts
from engine.gguf.lookalike import describe
from engine.gguf.metadata import Metadata
from engine.gguf.tensors import read_tensors
from engine.kernels.ops import Tensor

READER_BYTES = 64 << 20
"""What reading a header may need, in bytes, beyond the size of the file."""

_HEAD_BYTES = 512


class GGUFFile:
    """An open GGUF file; a context manager.

    ``path``; ``size`` in bytes; ``version`` 2 or 3; ``metadata``; ``tensors``: name -> ``Tensor`` whose ``data`` is a
    read-only uint8 view of the map.
    """

    def __init__(
        self, path: Path, memory: mmap.mmap, version: int, metadata: Metadata, tensors: dict[str, Tensor]
    ) -> None:
        self.path = path
        self.size = len(memory)
        self.version = version
        self.metadata = metadata
        self.tensors = tensors
        self._memory = memory

    def advise_dontneed(self) -> None:
        """Give mapped pages back to the system, for use once the weights are packed; reading them again still works."""
        if hasattr(mmap, "MADV_DONTNEED") and not self._memory.closed:
            self._memory.madvise(mmap.MADV_DONTNEED)

    def close(self) -> None:
        """Forget the tensors and unmap the file. Closing twice does no harm.

        While someone still holds a view of a tensor the map stays, and goes when the last view does.
        """
        self.tensors = {}
        _unmap(self._memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """Map a GGUF file and read its header.

    Raises ``ModelFileError`` with the name of the wrong field ("path" and "magic" for what is no GGUF file at all).
    """
    path = Path(path)
    memory = _map(path)
    try:
        head = memory[:_HEAD_BYTES]
        if head[:4] != b"GGUF":
            raise _not_gguf(path, head, len(memory))
        cursor = Cursor(memory, path.name)
        counts = read_counts(cursor)
        values = MetadataReader(cursor).read(counts.keys)
        metadata = Metadata(values, file_name=path.name)
        _refuse_split(metadata)
        return GGUFFile(path, memory, counts.version, metadata, read_tensors(cursor, counts.tensors, values))
    except BaseException:
        _unmap(memory)
        raise


def _unmap(memory: mmap.mmap) -> None:
    """Unmap now if nobody holds a view of the memory, else when the last view goes."""
    with contextlib.suppress(BufferError):
        memory.close()


def _map(path: Path) -> mmap.mmap:
    """Map a regular file for reading."""
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise ModelFileError(f"{path} is a folder; pick the .gguf file inside it.", field="path")
        if not stat.S_ISREG(mode):
            raise ModelFileError(f"{path} is not an ordinary file; pick a .gguf file.", field="path")
        with path.open("rb") as file:
            if os.fstat(file.fileno()).st_size == 0:
                raise ModelFileError(f"{path.name} is empty; download it again.", field="path")
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except FileNotFoundError:
        raise ModelFileError(f"There is no file {path}; check the name.", field="path") from None
    except PermissionError:
        raise ModelFileError(f"{path} may not be read by you; change its permissions.", field="path") from None
    except (OSError, ValueError) as error:
        raise ModelFileError(
            f"{path} cannot be opened ({error}); check the name and the disk.", field="path"
        ) from error


def _not_gguf(path: Path, head: bytes, size: int) -> ModelFileError:
    if b"GGUF".startswith(head[:4]):
        return ModelFileError(f"{path.name} is damaged: it has only {size} bytes; download it again.", field="magic")
    looks = describe(head, size)
    words = f": it looks like {looks}" if looks else "; pick a file whose name ends in .gguf, or download it again"
    return ModelFileError(f"{path.name} is not a GGUF file{words}.", field="magic")


def _refuse_split(metadata: Metadata) -> None:
    """Models in several files would need all of them; llama.cpp's tool joins them."""
    key = "split.count"
    parts = metadata.get_int(key, 0, 65_535, 1)
    if parts > 1:
        number = metadata.get_int("split.no", 0, 65_535, 0) + 1
        raise ModelFileError(
            f"{metadata.file_name} is part {number} of a model split into {parts} files; join them with "
            "`llama-gguf-split --merge` or get the model as one file.",
            field=key,
        )
