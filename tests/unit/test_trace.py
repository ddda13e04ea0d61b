"""Traces: the ring in memory, and files that read back to what was written."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.errors import TraceFileError
from engine.scheduling.events import StepReport
from engine.trace.jsonl import TraceWriter, read_trace
from engine.trace.ring import TraceRing
from tests.desk import Desk


@pytest.fixture(scope="module")
def reports() -> list[StepReport]:
    """A run with reuse, misses, evictions, log-probabilities, an error and text of many scripts."""
    desk = Desk(pages=6, max_streams=2)
    desk.run(1, range(12), max_new=3, label="été 🦜 \u2028", chat="a", logprobs=2)
    desk.run(2, [*range(6), 40, 41, 42], max_new=3, chat="a")
    desk.run(3, range(20, 36), max_new=4)
    desk.run(4, range(13), max_new=30)
    desk.model.on_call = lambda name, sessions: 1 // 0 and None
    desk.run(5, [1])
    causes = {event.miss.cause for event in desk.finished.values() if event.miss is not None}
    assert {"never_stored", "diverged", "evicted", "partial_page"} <= causes
    assert any(report.evictions for report in desk.reports)
    return desk.reports


def test_what_is_read_is_what_was_written(reports: list[StepReport], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with TraceWriter(path) as trace:
        for report in reports:
            trace.append(report)
    assert list(read_trace(path)) == reports
    assert len(path.read_text(encoding="utf-8").split("\n")) == len(reports) + 2


def test_a_crash_loses_at_most_the_last_line(reports: list[StepReport], tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    with TraceWriter(path) as trace:
        for report in reports:
            trace.append(report)
    whole = path.read_bytes()
    path.write_bytes(whole[:-9])
    assert list(read_trace(path)) == reports[:-1]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", None),
        ('{"kvscope_trace": 99}\n', "no trace"),
        ("[]\n", "Line 1"),
        ("not json\n", "Line 1"),
        ('{"kvscope_trace": 1}\n{"step": 1}\n', "Line 2"),
        ('{"kvscope_trace": 1}\nnull\n', "Line 2"),
        ('{"kvscope_trace": 1}\n' + "[" * 100_000 + "\n", "Line 2"),
    ],
)
def test_damaged_traces_are_refused_with_the_line(text: str, sentence: str | None, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text, encoding="utf-8")
    if sentence is None:
        assert list(read_trace(path)) == []
        return
    with pytest.raises(TraceFileError, match=sentence):
        list(read_trace(path))


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(TraceFileError):
        list(read_trace(tmp_path / "missing.jsonl"))
    with pytest.raises(TraceFileError):
        TraceWriter(tmp_path / "no folder" / "run.jsonl")


def test_the_ring_keeps_the_last_steps_and_counts_all(reports: list[StepReport]) -> None:
    ring = TraceRing(size=3)
    for report in reports:
        ring.append(report)
    assert ring.last() == tuple(reports[-3:])
    assert ring.last(2) == tuple(reports[-2:]) and ring.last(0) == ()
    assert ring.since(reports[-2].step) == (reports[-1],)
    assert ring.totals.steps == len(reports) and ring.totals.finished == 5
    assert ring.totals.generated == sum(len(report.events) for report in reports) - 5
    assert ring.totals.read == sum(tokens for report in reports for _, tokens in report.prefilled)
    assert ring.totals.reused > 0 and ring.totals.evicted_pages > 0
    assert ring.totals.busy_us == sum(report.duration_us for report in reports)
