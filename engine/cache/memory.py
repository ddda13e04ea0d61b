"""The pool's memory: one anonymous mapping that the system commits page by page as it is written, and takes back."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator

import numpy as np

from engine.errors import ModelMemoryError

DEFAULT_POOL_TOKENS = 65_536


class PageMemory:
    """``array`` is uint8[capacity, page_bytes]: zero until written, no physical memory behind it until then."""

    def __init__(self, capacity: int, page_bytes: int) -> None:
        self._capacity = capacity
        self._page_bytes = page_bytes
        try:
            self._mapping = _map_private(capacity * page_bytes)
        except (OSError, OverflowError, ValueError) as error:
            raise ModelMemoryError(
                f"The system does not give {capacity * page_bytes / 2**30:,.1f} GiB for the KV pool; take fewer pages."
            ) from error
        self.array: np.ndarray = np.frombuffer(self._mapping, dtype=np.uint8).reshape(capacity, page_bytes)

    def give_back(self, pages: Iterable[int]) -> int:
        """Return the physical memory of ``pages`` to the system and say how many bytes that were.

        Neighbours are joined into runs, so that a KV page need not be a multiple of the system's page size. What such
        pages hold afterwards is undefined. Where the system has no such call nothing happens.
        """
        advice = getattr(mmap, "MADV_DONTNEED", None)
        if advice is None:
            return 0
        given = 0
        for first, end in _runs(sorted(pages)):
            start = -(-first * self._page_bytes // mmap.PAGESIZE) * mmap.PAGESIZE
            stop = end * self._page_bytes // mmap.PAGESIZE * mmap.PAGESIZE
            if stop > start:
                self._mapping.madvise(advice, start, stop - start)
                given += stop - start
        return given

    def close(self) -> None:
        """Drop the mapping. A view of ``array`` that someone still holds keeps it alive until that view goes."""
        self.array = np.empty((0, self._page_bytes), dtype=np.uint8)
        try:
            self._mapping.close()
        except BufferError:  # a foreign view exists; its end unmaps the memory
            return


def _map_private(size: int) -> mmap.mmap:
    if os.name == "nt":
        return mmap.mmap(-1, size)
    # The default flags make shared memory, which the system does not take back page by page.
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _runs(pages: list[int]) -> Iterator[tuple[int, int]]:
    """[first, end) runs of consecutive numbers in a sorted list."""
    first = 0
    for i in range(1, len(pages) + 1):
        if i == len(pages) or pages[i] != pages[i - 1] + 1:
            yield pages[first], pages[i - 1] + 1
            first = i


def free_memory() -> int:
    """Bytes of memory that programs can still get, as far as the system tells (else 8 GiB)."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux: ask in another way
    names = getattr(os, "sysconf_names", {})
    if "SC_AVPHYS_PAGES" in names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if "SC_PHYS_PAGES" in names:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    return 8 << 30
