"""One run of ``pip download`` as a child process: watched, cancellable, its failures put into words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Self

from engine.catalog.known import Wheel
from engine.errors import DownloadError

_OFFLINE_SIGNS = (
    "newconnectionerror",
    "nameresolutionerror",
    "failed to establish a new connection",
    "name or service not known",
    "temporary failure in name resolution",
    "connection refused",
    "connection aborted",
    "connection broken",
    "network is unreachable",
    "timed out",
    "proxyerror",
    "sslerror",
    "max retries exceeded",
)


class PipRun:
    """Downloads one wheel into a folder of its own below ``work``; a context manager that never leaves pip running."""

    def __init__(self, wheel: Wheel, work: Path) -> None:
        self._wheel = wheel
        self._folder = work / "wheel"
        self._scratch = work / "scratch"
        self._log = work / "pip.log"

    def __enter__(self) -> Self:
        self._folder.mkdir(exist_ok=True)
        self._scratch.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
        command += ["--disable-pip-version-check", "--no-input", "--progress-bar=off", "--retries=2"]
        command += ["-d", str(self._folder), f"{self._wheel.package}=={self._wheel.version}"]
        # pip's temporary files go to the scratch folder, where they can be counted and are cleaned up with the rest.
        scratch = {name: str(self._scratch) for name in ("TMPDIR", "TEMP", "TMP")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._scratch,
                env=os.environ | scratch,
                creationflags=getattr(subprocess, "CREATE_NO_WINDOW", 0),
            )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(1.0)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds``; True once pip has ended."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def received(self) -> int:
        """Bytes that have arrived so far."""
        total = 0
        for folder, _, names in os.walk(self._scratch):
            for name in names:
                try:
                    total += os.stat(os.path.join(folder, name)).st_size
                except FileNotFoundError:
                    # pip moved or removed it between the listing and the question.
                    continue
        return total

    def result(self, name: str) -> Path:
        """The wheel that was brought; ``DownloadError`` if pip failed. ``name`` is the model's, for the message."""
        found = list(self._folder.glob("*.whl"))
        if self._process.returncode == 0 and len(found) == 1:
            return found[0]
        raise DownloadError(self._reason(name, self._log.read_text(encoding="utf-8", errors="replace")))

    def _reason(self, name: str, log: str) -> str:
        lower = log.lower()
        if "no module named pip" in lower:
            return (
                f"{name} could not be downloaded because this Python has no pip; run `{sys.executable} -m ensurepip`."
            )
        if "no space left on device" in lower or "disk quota exceeded" in lower:
            return f"The disk became full while {name} was fetched; free some space and try again."
        if any(sign in lower for sign in _OFFLINE_SIGNS):
            return (
                f"{name} could not be downloaded because the package index cannot be reached; check the network and "
                "pip's index and proxy settings, then try again."
            )
        if "no matching distribution" in lower:
            return (
                f"{name} could not be downloaded because this machine's package index does not offer "
                f"{self._wheel.package} {self._wheel.version}; check pip's index settings."
            )
        errors = [line for line in log.splitlines() if line.startswith("ERROR:")]
        last = errors[-1][6:].strip() if errors else f"it ended with code {self._process.returncode}"
        return f"{name} could not be downloaded because pip failed: {last[:300]}."
