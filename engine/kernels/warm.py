"""Compile kernels into the on-disk cache ahead of their use: ``python -m engine.kernels.warm``.

Prints one JSON line per kernel, ``{"done": 3, "total": 40, "name": "rms_norm"}``, so that an application can run it as
a child process, show its progress and kill it at any moment; what was finished by then stays. On POSIX systems the
work is shared with forked processes, one per processor. Nothing is printed but these lines.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Iterator

from gguf import GGMLQuantizationType

from engine.kernels import executor, kernel
from engine.kernels.cache_locator import prune
from engine.kernels.cpu import TileUnit, tile_unit
from engine.kernels.formats import BY_TYPE, FLOATS, expanded
from engine.kernels.kernel import Kernel
from engine.kernels.tile_check import usable_tile_unit

_TYPED = ("matmul_", "expand_", "pack_", "read_", "attend_")
_MOST_PROCESSES = 4


def needed(types: Iterable[str] | None = None, kv_dtype: str | None = None) -> list[Kernel]:
    """The kernels that models with tensors of these types (GGUF names; None: all types) and this KV type (None: both)
    may call."""
    kinds = None if types is None else {name for t in types for name in _names(GGMLQuantizationType[t])}
    unit = tile_unit()
    found = []
    for name, made in kernel.registry.items():
        family, _, rest = name.partition("_")
        if family == "tiles":
            keep = unit is not None and _of_tiles(rest, unit, kinds)
        elif f"{family}_" not in _TYPED or not rest:
            keep = True
        elif family == "attend":
            keep = kv_dtype is None or not rest.endswith(("half", "float")) or rest.endswith(_KV_NAMES[kv_dtype])
        else:
            kind = rest.split("_")[0]
            keep = kinds is None or kind in kinds or kind == "rows"
        if keep:
            found.append(made)
    return found


def _of_tiles(rest: str, unit: TileUnit, kinds: set[str] | None) -> bool:
    """Whether the kernel ``tiles_{rest}`` is needed where ``unit`` multiplies."""
    if rest.startswith("rows_"):
        return rest == f"rows_{unit}"
    return kinds is None or rest in kinds or rest == "convert"


_KV_NAMES = {"float16": "half", "float32": "float"}


def _names(kind: GGMLQuantizationType) -> set[str]:
    """How kernels call a tensor type."""
    if kind in FLOATS:
        return {f"f{FLOATS[kind]}", "4" if kind == GGMLQuantizationType.F32 else "2"}
    return {BY_TYPE[kind].name, expanded(BY_TYPE[kind]).name} if kind in BY_TYPE else set()


def is_warm(types: Iterable[str] | None = None, kv_dtype: str | None = None) -> bool:
    """Whether a model with these tensor types would start without compiling."""
    return all(made.is_cached for made in needed(types, kv_dtype))


def warm(kernels: list[Kernel], processes: int) -> Iterator[str]:
    """Compile what is missing; yields the name of each kernel when it is done."""
    missing = [made for made in kernels if not made.is_cached]
    yield from (made.name for made in kernels if made.is_cached)
    if processes < 2 or not hasattr(os, "fork") or len(missing) < 2:
        for made in missing:
            yield _compile(made)
        return
    yield from _share_out(missing, processes)


def _compile(made: Kernel) -> str:
    return made.name if made.address else ""


def _share_out(missing: list[Kernel], processes: int) -> Iterator[str]:
    """Compile in several processes, which take kernels from one pipe and report to another."""
    queue_read, queue_write = os.pipe()
    report_read, report_write = os.pipe()
    os.write(queue_write, b"".join(i.to_bytes(2, "little") for i in range(len(missing))))
    os.close(queue_write)
    children = []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            os.close(report_read)
            os._exit(_work(missing, queue_read, report_write))
        children.append(child)
    os.close(report_write)
    os.close(queue_read)
    with os.fdopen(report_read, "rb") as reports:
        while report := reports.read(2):
            yield missing[int.from_bytes(report, "little")].name
    failed = [child for child in children if os.waitpid(child, 0)[1] != 0]
    if failed:
        raise RuntimeError("A process that compiles kernels ended early.")


def _work(missing: list[Kernel], queue: int, report: int) -> int:
    """A child's share; it ends early if its parent is gone."""
    parent = os.getppid()
    while (item := os.read(queue, 2)) and os.getppid() == parent:
        _compile(missing[int.from_bytes(item, "little")])
        os.write(report, item)
    return 0


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m engine.kernels.warm", description="Compile kernels ahead of use.")
    parser.add_argument("--types", help="only for these tensor types, as GGUF names: Q4_1,Q8_0,F32")
    parser.add_argument("--kv", choices=["float16", "float32"], help="only for this type of KV cache")
    parser.add_argument("--processes", type=int, default=min(os.cpu_count() or 1, _MOST_PROCESSES))
    options = parser.parse_args(arguments)
    kernels = needed(options.types.split(",") if options.types else None, options.kv)
    for done, name in enumerate(warm(kernels, options.processes), 1):
        sys.stdout.write(json.dumps({"done": done, "total": len(kernels), "name": name}) + "\n")
        sys.stdout.flush()
    usable_tile_unit()  # a processor whose tiles are bad shows it here, before the application depends on them
    prune()
    return 0


__all__ = ["executor", "is_warm", "main", "needed", "warm"]

if __name__ == "__main__":
    sys.exit(main())
