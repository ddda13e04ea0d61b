"""Choosing what runs a ``Program``: the compiled executor or the NumPy interpreter."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from engine.kernels.ops import Batch, Program

if TYPE_CHECKING:
    from engine.kernels.sampling import SampleRow

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


def make_executor(
    program: Program,
    *,
    max_rows: int,
    kv_dtype: KVDtype,
    threads: int | None,
    backend: Backend,
    progress: Callable[[float], None] | None,
    cancel: Callable[[], bool] | None,
) -> Executor:
    """The executor of ``backend``; ``threads`` None takes all processors (the interpreter has no say in its own)."""
    if backend == "numpy":
        from engine.kernels.reference import NumpyExecutor

        return NumpyExecutor(program, max_rows=max_rows, kv_dtype=kv_dtype)
    from engine.kernels.executor import Executor as CompiledExecutor

    return CompiledExecutor(
        program,
        max_rows=max_rows,
        threads=threads or available_threads(),
        kv_dtype=kv_dtype,
        progress=progress,
        cancelled=cancel,
    )
