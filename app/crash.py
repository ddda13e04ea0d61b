"""A crash leaves a report on this computer: an exception nobody caught, or a fault inside compiled code."""

from __future__ import annotations

import faulthandler
import logging
import platform
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import IO

from engine.catalog import data_dir

log = logging.getLogger(__name__)
KEPT = 20
_fault_file: IO[str] | None = None
_told: Callable[[str], object] | None = None
_written = 0


def reports_dir() -> Path:
    """Where reports lie."""
    return data_dir() / "crashes"


def reports() -> list[Path]:
    """The reports, newest first."""
    folder = reports_dir()
    found = [path for path in folder.glob("*.txt") if path.stat().st_size] if folder.is_dir() else []
    return sorted(found, key=lambda path: path.stat().st_mtime, reverse=True)


def install(told: Callable[[str], object] | None = None) -> None:
    """Write a report for every exception that nobody caught, on any thread, and for faults of the process.

    ``told`` gets the path of each report that is written, on the thread of the exception.
    """
    global _fault_file, _told
    _told = told
    sys.excepthook = _on_exception
    threading.excepthook = lambda given: _on_exception(
        given.exc_type, given.exc_value or given.exc_type(), given.exc_traceback
    )
    try:
        reports_dir().mkdir(parents=True, exist_ok=True)
        empty = [path for path in reports_dir().glob("*.txt") if not path.stat().st_size]  # of runs that were killed
        for old in (*reports()[KEPT:], *empty):
            old.unlink(missing_ok=True)
        _fault_file = (reports_dir() / _name("fault")).open("w", encoding="utf-8")
        faulthandler.enable(_fault_file)
    except OSError as error:
        log.warning("No crash reports can be written: %s", error)


def uninstall() -> None:
    """The program ends well: leave no empty report behind."""
    global _fault_file, _told
    _told = None
    faulthandler.disable()
    sys.excepthook, threading.excepthook = sys.__excepthook__, threading.__excepthook__
    if _fault_file is not None:
        path = Path(_fault_file.name)
        _fault_file.close()
        _fault_file = None
        if path.exists() and not path.stat().st_size:
            path.unlink()


def write_report(error: BaseException, trace: TracebackType | None) -> Path | None:
    """Write one report; None where the disk does not let us."""
    lines = [
        f"KVScope on Python {platform.python_version()}, {platform.platform()}",
        time.strftime("%Y-%m-%d %H:%M:%S"),
        "",
        *traceback.format_exception(type(error), error, trace),
    ]
    path = reports_dir() / _name("error")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines), encoding="utf-8", errors="backslashreplace")
    except OSError as problem:
        log.warning("A crash report could not be written: %s", problem)
        return None
    return path


def _name(kind: str) -> str:
    return f"{time.strftime('%Y%m%d-%H%M%S')}-{time.time_ns() // 1000 % 1_000_000:06d}-{kind}.txt"


def _on_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.__excepthook__(kind, error, trace)
        return
    global _written
    log.critical("an error that nobody handled", exc_info=(kind, error, trace))
    if _written >= KEPT:  # an error in every frame must not fill the disk
        return
    _written += 1
    path = write_report(error, trace)
    if path is not None and _told is not None:
        _told(str(path))
