"""Sentences of the panels: numbers, ages, sizes, and what a release does, in words.

Pure functions without Qt, so that each sentence is tested as text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from engine.port import ReleaseReport


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 page``, ``1,204 pages``."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def listed(names: Sequence[str], limit: int = 3) -> str:
    """``A``, ``A and B``, ``A, B and 4 more``; empty names and repetitions are left out."""
    known = list(dict.fromkeys(n for n in names if n))
    if len(known) > limit:
        known = [*known[: limit - 1], f"{len(known) - limit + 1} more"]
    if len(known) < 2:
        return "".join(known)
    return f"{', '.join(known[:-1])} and {known[-1]}"


def size(n_bytes: float) -> str:
    """``93 MB``: decimal units, two or three significant digits."""
    for unit in ("bytes", "kB", "MB", "GB"):
        if n_bytes < 1000 or unit == "GB":
            break
        n_bytes /= 1000
    return f"{n_bytes:.1f} {unit}" if 0 < n_bytes < 10 and unit != "bytes" else f"{n_bytes:,.0f} {unit}"


def duration(seconds: float) -> str:
    """``40 s``, ``3 min``, ``2 h``, ``5 days``: one unit, rounded down."""
    seconds = max(0, int(seconds))
    if seconds < 60:
        return f"{seconds} s"
    if seconds < 3600:
        return f"{seconds // 60} min"
    return f"{seconds // 3600} h" if seconds < 2 * 86400 else f"{seconds // 86400} days"


def clock(at: float) -> str:
    """``14:03`` in local time for a Unix time in seconds."""
    return time.strftime("%H:%M", time.localtime(at))


def milliseconds(us: float) -> str:
    """``17.2 ms`` for a duration in microseconds."""
    return f"{us / 1000:.1f} ms" if us < 100_000 else f"{us / 1000:,.0f} ms"


def shorten(text: str, limit: int) -> str:
    """One line of at most ``limit`` characters, cut with an ellipsis."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: max(1, limit - 1)].rstrip() + "…"


def release_preview(report: ReleaseReport) -> str:
    """What a release would do: "Release frees 2 pages; 8 stay, shared with Invoice email and turn 2."."""
    if not (report.freed or report.kept or report.shared):
        return "Release frees no pages: none of this chain is left in memory."
    parts = ["frees no pages" if not report.freed else f"frees {count(report.freed, 'page')}"]
    parts += _staying(report, "stay" if report.kept != 1 else "stays", "leave", "leaves")
    return f"Release {'; '.join(parts)}."


def release_result(report: ReleaseReport) -> str:
    """What a release did: "Freed 2 pages; 8 stayed, shared with turn 2."."""
    parts = [f"Freed {count(report.freed, 'page')}" if report.freed else "Freed no pages"]
    parts += _staying(report, "stayed", "leave", "leaves")
    return f"{'; '.join(parts)}."


def _staying(report: ReleaseReport, stay: str, leave: str, leaves: str) -> list[str]:
    parts = []
    if report.kept:
        names = listed(report.shared_with)
        parts.append(f"{report.kept:,} {stay}, {'shared with ' + names if names else 'needed by other chains'}")
    if report.shared:
        goes = leave if report.shared != 1 else leaves
        parts.append(f"{report.shared:,} {goes} when the replies that use them end")
    return parts


def release_button(report: ReleaseReport) -> str:
    """The words on the button that carries it out: ``Release 2 pages``."""
    return f"Release {count(report.freed, 'page')}" if report.freed else "Release"
