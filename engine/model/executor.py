"""Choosing what runs a ``Program``: the compiled executor or the NumPy interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np

from engine.kernels.ops import Batch, Program
from engine.model.describe import MAX_ROWS
from engine.model.memory import check_fits
from engine.model.warming import warm_kernels

if TYPE_CHECKING:
    from engine.kernels.sample_row import SampleRow

KVDtype = Literal["float16", "float32"]
Backend = Literal["compiled", "numpy"]


class Executor(Protocol):
    """Runs the steps of one program."""

    @property
    def threads(self) -> int: ...
    def set_threads(self, threads: int) -> None: ...
    def step(self, batch: Batch) -> None: ...
    def sample(self, rows: Sequence[SampleRow]) -> list[int]: ...
    def profile(self, on: bool) -> None: ...
    def times(self) -> dict[str, float]: ...
    def close(self) -> None: ...


def available_threads() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Told:
    """Who hears of a load's progress (``compiling``: 0..1 and a phrase; ``loading``: 0..1), and who may end it."""

    compiling: Callable[[float, str], None] | None = None
    loading: Callable[[float], None] | None = None
    cancelled: Callable[[], bool] | None = None


def make_executor(
    program: Program,
    types: Iterable[str],
    *,
    kv_dtype: KVDtype,
    threads: int | None,
    backend: Backend,
    told: Told,
) -> Executor:
    """The executor of ``backend`` for a file with tensors of these ``types``; ``threads`` None takes all processors
    (the interpreter has no say in its own). Errors: ModelMemoryError, CancelledError."""
    if backend == "numpy":
        from engine.kernels.reference import NumpyExecutor

        return NumpyExecutor(program, max_rows=MAX_ROWS, kv_dtype=kv_dtype)
    check_fits(program, max_rows=MAX_ROWS, kv_item_bytes=np.dtype(kv_dtype).itemsize)
    warm_kernels(types, kv_dtype, report=told.compiling, cancelled=told.cancelled)
    from engine.kernels.executor import Executor as CompiledExecutor

    return CompiledExecutor(
        program,
        max_rows=MAX_ROWS,
        threads=threads or available_threads(),
        kv_dtype=kv_dtype,
        progress=told.loading,
        cancelled=told.cancelled,
    )
