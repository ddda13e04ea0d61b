"""Traces in files: a header line, then one JSON object per step. What is read back equals what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, TextIO

from engine.errors import TraceFileError
from engine.scheduling.events import (
    Eviction,
    Finished,
    Miss,
    Piece,
    PoolCounts,
    SchedEvent,
    StepReport,
    StreamState,
)

VERSION = 1


class TraceWriter:
    """Records steps to a file; a context manager. Every step is one line, so a crash loses at most the last one."""

    def __init__(self, path: str | Path) -> None:
        try:
            self._file: TextIO = Path(path).open("w", encoding="utf-8", buffering=1)  # noqa: SIM115 - closed by close
        except OSError as error:
            raise TraceFileError(f"The trace cannot be written to {path}: {error.strerror or error}.") from error
        self._write({"kvscope_trace": VERSION})

    def append(self, report: StepReport) -> None:
        """Write one step."""
        line = asdict(report)
        pairs = zip(report.events, line["events"], strict=True)
        line["events"] = [{"kind": _kind(event), **fields} for event, fields in pairs]
        self._write(line)

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")) + "\n")


def _kind(event: SchedEvent) -> str:
    match event:
        case Piece():
            return "piece"
        case Finished():
            return "finished"


def read_trace(path: str | Path) -> Iterator[StepReport]:
    """The steps of a trace file, in order. A last line that was cut off is left out; anything else that is wrong is a
    ``TraceFileError`` with the line's number."""
    try:
        with Path(path).open(encoding="utf-8", errors="replace") as lines:
            yield from _read(lines)
    except OSError as error:
        raise TraceFileError(f"The trace {path} cannot be read: {error.strerror or error}.") from error


def _read(lines: TextIO) -> Iterator[StepReport]:
    for number, line in enumerate(lines, start=1):
        whole = line.endswith("\n")
        try:
            value = json.loads(line)
            if number > 1:
                report = _report(value)
            elif value.get("kvscope_trace") != VERSION:
                raise TraceFileError("This is no trace of this program, or one of another version.")
            else:
                continue
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            if not whole and number > 1:
                return
            raise TraceFileError(f"Line {number} of the trace is damaged: record it again.") from error
        yield report


def _report(line: dict[str, Any]) -> StepReport:
    line["events"] = tuple(_event(event) for event in line["events"])
    line["decoded"] = tuple(line["decoded"])
    line["prefilled"] = tuple((stream, tokens) for stream, tokens in line["prefilled"])
    line["pool"] = PoolCounts(**line["pool"])
    line["streams"] = tuple(StreamState(**state) for state in line["streams"])
    line["evictions"] = tuple(Eviction(**eviction) for eviction in line["evictions"])
    return StepReport(**line)


def _event(fields: dict[str, Any]) -> SchedEvent:
    kind = fields.pop("kind")
    if kind == "piece":
        fields["top_logprobs"] = tuple((token, logprob) for token, logprob in fields["top_logprobs"])
        return Piece(**fields)
    if kind != "finished":
        raise ValueError(kind)
    miss = fields["miss"]
    if miss is not None:
        miss["stored_tokens"], miss["prompt_tokens"] = tuple(miss["stored_tokens"]), tuple(miss["prompt_tokens"])
        fields["miss"] = Miss(**miss)
    return Finished(**fields)
