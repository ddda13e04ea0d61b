"""Runs the steps of a program: packed weights, phases, a team of threads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from engine.errors import CancelledError, UnsupportedModelError
from engine.kernels import layout
from engine.kernels.attention_plan import AttentionPlan
from engine.kernels.layout import address_of
from engine.kernels.lowered import lower
from engine.kernels.lowering import weights_of
from engine.kernels.ops import Batch, Program
from engine.kernels.packing import pack_all
from engine.kernels.phases import KINDS
from engine.kernels.sample_row import SampleRow
from engine.kernels.sampling import Sampler
from engine.kernels.team import Team
from engine.kernels.tile_check import usable_tile_unit

_SMALLEST_HEAD = 16


class Executor:
    """The compiled executor of one program.

    ``step`` is called from one thread at a time; ``cancel`` may be set from any thread. ``progress`` hears of loading
    (0 … 1), and loading ends with ``CancelledError`` when ``cancelled`` says so. Registers belong to the executor: a
    step's results are in the caller's arrays when it returns. ``tiles`` says what multiplies the rows of prompt steps.
    """

    def __init__(
        self,
        program: Program,
        *,
        max_rows: int,
        threads: int,
        kv_dtype: Literal["float16", "float32"] = "float16",
        progress: Callable[[float], None] | None = None,
        cancelled: Callable[[], bool] | None = None,
    ) -> None:
        if program.head_size < _SMALLEST_HEAD:
            raise UnsupportedModelError(
                f"Attention heads of {program.head_size} values are too small; at least {_SMALLEST_HEAD} are needed."
            )
        self.program, self.max_rows = program, max_rows
        self.kv_dtype = np.dtype(kv_dtype)
        self._team = Team(threads)
        try:
            self._load(progress, cancelled)
        except BaseException:
            self._team.close()
            raise
        self._context = np.zeros(layout.CONTEXT_WORDS, np.int64)
        self._rows = np.zeros((3, max_rows), np.int32)
        self._tables = np.zeros(max_rows, np.int64)
        words = (layout.C_TOKENS, layout.C_POSITIONS, layout.C_OWNERS, layout.C_TABLES)
        for word, array in zip(words, (*self._rows, self._tables), strict=True):
            self._context[word] = address_of(array)
        self._context_at = address_of(self._context)
        self._plan = AttentionPlan(
            max_rows=max_rows,
            kv_heads=program.kv_heads,
            group=self._lowered.group,
            head_size=program.head_size,
        )
        self._closed = False

    def _load(self, progress: Callable[[float], None] | None, cancelled: Callable[[], bool] | None) -> None:
        """Pack the weights, a few at a time so that progress can be told, and lower the program."""
        tensors = weights_of(self.program)
        total = sum(tensor.data.nbytes for tensor in tensors) or 1
        self._packed = {}
        done = 0
        for first in range(0, len(tensors), 16):
            if cancelled is not None and cancelled():
                raise CancelledError("Loading was cancelled.")
            some = tensors[first : first + 16]
            for tensor, packed in zip(some, pack_all(some, self._team), strict=True):
                self._packed[id(tensor)] = packed
                done += tensor.data.nbytes
            if progress is not None:
                progress(done / total)
        self._tensors = tensors  # their ids are the keys of the packed weights
        self.tiles = usable_tile_unit()
        self._lowered = lower(
            self.program,
            self._packed,
            max_rows=self.max_rows,
            kv_bytes=self.kv_dtype.itemsize,
            threads=self._team.threads,
            tiles=self.tiles,
        )
        self._team.reserve_scratch(self._lowered.scratch_bytes)
        self._sampler = Sampler(self._team)

    @property
    def threads(self) -> int:
        """How many threads work on a step."""
        return self._team.threads

    def set_threads(self, threads: int) -> None:
        """Change the number of threads; between steps only."""
        self._team.set_threads(threads)

    @property
    def cancel(self) -> bool:
        """Set it from any thread to end the running step (or the next one) with ``CancelledError``."""
        return self._team.cancelled

    @cancel.setter
    def cancel(self, value: bool) -> None:
        self._team.cancelled = value

    @property
    def weights_bytes(self) -> int:
        """Memory of the packed weights."""
        return sum(packed.memory.nbytes for packed in self._packed.values())

    @property
    def workspace_bytes(self) -> int:
        """Memory of registers and threads."""
        return self._lowered.workspace_bytes + self._team.memory_bytes + self._plan.nbytes

    def step(self, batch: Batch) -> None:
        """Evaluate the rows of ``batch``: their keys and values to the pool, then the wanted logits. On
        ``CancelledError`` the pages of the step's rows hold unfinished values."""
        n, wanted = len(batch.tokens), len(batch.wanted)
        if not 0 < n <= self.max_rows:
            raise ValueError(f"a step has 1 to {self.max_rows} rows, not {n}")
        tables = self._describe(batch, n, wanted)
        plan = self._lowered.plan(n, batch.lane)
        phases = plan.n_body
        if wanted:
            self._describe_head(batch, wanted)
            only_hidden = batch.hidden is not None and not batch.logits
            phases = plan.n_hidden if only_hidden else plan.n_phases
        self._team.run_at(plan.address, phases, self._context_at)
        del tables
        if self._team.cancelled:
            self._team.cancelled = False
            raise CancelledError("The evaluation was cancelled.")

    def _describe(self, batch: Batch, n: int, wanted: int) -> list[np.ndarray]:
        """Fill in the context; returns the block tables that it points to."""
        tokens, positions, owner = self._rows
        tokens[:n], positions[:n], owner[:n] = batch.tokens, batch.positions, batch.owner
        tables = [np.ascontiguousarray(table, np.int32) for table in batch.tables]
        self._tables[: len(tables)] = [address_of(table) for table in tables]
        c = self._context
        c[layout.C_ROWS], c[layout.C_WANTED], c[layout.C_PAGE_ROWS] = n, wanted, batch.page_rows
        c[layout.C_MEMORY], c[layout.C_PAGE_BYTES] = address_of(batch.memory), batch.memory.strides[0]
        self._plan.fill(c, positions[:n], owner[:n], self._team.threads)
        return tables

    def _describe_head(self, batch: Batch, wanted: int) -> None:
        """Point the head's row tables at the wanted rows, and at the arrays that want the results."""
        lowered = self._lowered
        lowered.residual[:wanted] = lowered.residual_rows[batch.wanted]
        if batch.hidden is not None:
            step = batch.hidden.strides[0]
            lowered.hidden[:wanted] = address_of(batch.hidden) + np.arange(wanted) * step
        else:
            lowered.hidden[:wanted] = lowered.hidden_rows[:wanted]
        lowered.logits[: len(batch.logits)] = [address_of(logits) for logits in batch.logits]

    def sample(self, rows: Sequence[SampleRow]) -> list[int]:
        """The next token of each row (see ``sampling``), rows shared out to the threads."""
        return self._sampler(rows)

    def profile(self, on: bool) -> None:
        """Start counting time by kind of work from zero, or stop."""
        self._team.profile(on)

    def times(self) -> dict[str, float]:
        """Seconds by kind of work since ``profile(True)``, summed over threads; ``waiting`` is time without work."""
        seconds = self._team.seconds()
        shares = {kind: float(seconds[i]) for i, kind in enumerate(KINDS)}
        return {**shares, "waiting": float(seconds[-1])}

    def close(self) -> None:
        """End the threads and give the weights back."""
        if self._closed:
            return
        self._closed = True
        self._team.close()
        self._packed.clear()
        del self._lowered
