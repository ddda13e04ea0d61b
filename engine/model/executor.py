"""Choosing what runs a ``Program``: the compiled executor or the NumPy interpreter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol

from engine.kernels.ops import Batch, Program


class Executor(Protocol):
    """Runs the steps of one program."""

    def step(self, batch: Batch) -> None: ...
    def close(self) -> None: ...


def make_executor(
    program: Program,
    *,
    max_rows: int,
    kv_dtype: str,
    threads: int | None,
    backend: Literal["compiled", "numpy"],
    progress: Callable[[float], None] | None,
    cancel: Callable[[], bool] | None,
) -> Executor:
    """The executor of ``backend``; ``threads`` None takes all cores."""
    from engine.kernels.reference import NumpyExecutor

    return NumpyExecutor(program, max_rows=max_rows, kv_dtype=kv_dtype)
