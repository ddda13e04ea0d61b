"""Sentences of the panels: numbers, ages, sizes, and what a release does, in words.

Pure functions without Qt, so that each sentence is tested as text.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from app.text import tr, trn
from engine.port import ReleaseReport
from engine.scheduling.events import PoolCounts


def count(number: int, noun: str, plural: str = "") -> str:
    """``1 page``, ``1,204 pages``."""
    return trn(f"{{n:,}} {noun}", f"{{n:,}} {plural or noun + 's'}", number)


def listed(names: Sequence[str], limit: int = 3) -> str:
    """``A``, ``A and B``, ``A, B and 4 more``; empty names and repetitions are left out."""
    known = list(dict.fromkeys(n for n in names if n))
    if len(known) > limit:
        known = [*known[: limit - 1], tr("{n:,} more", n=len(known) - limit + 1)]
    if len(known) < 2:
        return "".join(known)
    return tr("{first} and {last}", first=", ".join(known[:-1]), last=known[-1])


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


def quoted(name: str, limit: int = 28) -> str:
    """A label inside a sentence: quoted and short."""
    return f"“{shorten(name, limit)}”" if name else ""


def chain_name(chat: str, label: str) -> str:
    """``Invoice email · turn 3``; only one of them where the chat is called after this very turn."""
    one, other = (" ".join(words.split()).rstrip("….").rstrip() for words in (chat, label))
    if one and other and (one.startswith(other) or other.startswith(one)):
        return shorten(max(chat, label, key=len), 60)
    return " · ".join(part for part in (chat, shorten(label, 60)) if part)


def books_sentence(step: int, pool: PoolCounts) -> str:
    """What a pool says whose pages do not add up to its capacity."""
    return tr(
        "At step {step:,} the pool's books did not balance: {free:,} free + {cached:,} cached + {referenced:,}"
        " referenced is not {capacity:,} pages.",
        step=step,
        free=pool.free,
        cached=pool.cached,
        referenced=pool.referenced,
        capacity=pool.capacity,
    )


def release_preview(report: ReleaseReport, pinned: int = 0) -> str:
    """What a release would do: "Release frees 2 pages; 8 stay, shared with “Invoice email” and “turn 2”.".

    ``pinned`` of the chains that would go are pinned; that is said first.
    """
    if pinned:
        one, many = (
            "This chain is pinned; a release ends that.",
            "{n:,} of these chains are pinned; a release ends that.",
        )
        if len(report.chains) > 1:
            one = "{n:,} of these chains is pinned; a release ends that."
        return trn(one, many, pinned) + " " + release_preview(report)
    if not (report.freed or report.kept or report.shared):
        return tr("Release frees no pages: none of this chain is left in memory.")
    frees = trn("Release frees {n:,} page", "Release frees {n:,} pages", report.freed)
    parts = [frees if report.freed else tr("Release frees no pages"), *_staying(report, done=False)]
    return "; ".join(parts) + "."


def release_result(report: ReleaseReport) -> str:
    """What a release did: "Freed 2 pages; 8 stayed, shared with “turn 2”."."""
    freed = trn("Freed {n:,} page", "Freed {n:,} pages", report.freed)
    return "; ".join([freed if report.freed else tr("Freed no pages"), *_staying(report, done=True)]) + "."


def release_brief(report: ReleaseReport) -> str:
    """The outcome in a few words: "2 pages freed, 8 kept"."""
    parts = [tr("{pages} freed", pages=count(report.freed, "page"))]
    parts += [tr("{n:,} kept", n=report.kept)] if report.kept else []
    parts += [tr("{n:,} in use", n=report.shared)] if report.shared else []
    return ", ".join(parts)


def _staying(report: ReleaseReport, *, done: bool) -> list[str]:
    parts = []
    if report.kept:
        stay = trn("{n:,} stays", "{n:,} stay", report.kept) if not done else tr("{n:,} stayed", n=report.kept)
        names = listed([quoted(name) for name in report.shared_with])
        parts.append(f"{stay}, " + (tr("shared with {names}", names=names) if names else tr("needed by other chains")))
    if report.shared:
        one = "{n:,} leaves when the reply that uses it ends"
        parts.append(trn(one, "{n:,} leave when the replies that use them end", report.shared))
    return parts


def release_button(report: ReleaseReport) -> str:
    """The words on the button that carries it out: ``Release 2 pages``."""
    return trn("Release {n:,} page", "Release {n:,} pages", report.freed) if report.freed else tr("Release")
