"""One window per person and data folder: a second start hands its file to the first and ends.

A lock file decides who is first, so that two starts at the same moment cannot both be; a local socket carries what the
second one wants. The lock of a process that ended in whatever way counts for nothing.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import stat
import tempfile
import time
from pathlib import Path
from typing import Any, Literal

from PySide6.QtCore import QLockFile, QObject, QTimer, Signal

from app.local_socket import LocalServer, ask

log = logging.getLogger(__name__)

Claim = Literal["first", "handed_over", "no_answer"]

ANSWER_S = 5.0
"""How long the first start may take to answer (it may be starting itself)."""
_TRY_MS = 100


class SingleInstance(QObject):
    """Claims to be the only one for a data folder.

    Signals:
        asked: (file, token) another start wants this window to come forward and to open ``file`` ("": none); ``token``
            lets the window take the focus where the desktop asks for one.
    """

    asked = Signal(str, str)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._place = _runtime_folder() / _name_for(folder)
        self._lock = QLockFile(f"{self._place}.lock")
        self._lock.setStaleLockTime(0)
        self._server = LocalServer(self._answer, self)

    def claim(self, file: str = "", answer_s: float = ANSWER_S) -> Claim:
        """Become the first, or give ``file`` to the one that is. Waits for its answer."""
        deadline = time.monotonic() + answer_s
        wish = json.dumps({"open": file, "token": _activation_token()}).encode()
        while True:
            if self._lock.tryLock(_TRY_MS):
                self._listen()
                return "first"
            if self._lock.error() != QLockFile.LockError.LockFailedError:
                log.warning("No lock can be made (%s); a second start is not noticed.", self._lock.error())
                return "first"
            if ask(self._place, wish, deadline) == b"ok":
                return "handed_over"
            if time.monotonic() > deadline:
                return "no_answer"

    def stop_listening(self) -> None:
        """Answer nobody any more; a start that asks now waits until ``release``."""
        self._server.close()

    def release(self) -> None:
        """The folder is free for another start."""
        self._server.close()
        self._lock.unlock()

    def _listen(self) -> None:
        try:
            self._server.listen(self._place)
        except OSError as error:
            log.warning("A second start cannot reach this one: %s", error)

    def _answer(self, heard: bytes) -> bytes | None:
        wish = _wish(heard)
        if wish is None:
            return None
        QTimer.singleShot(0, self, lambda: self.asked.emit(*wish))  # whoever asks need not wait for what follows
        return b"ok"


def _wish(heard: bytes) -> tuple[str, str] | None:
    """What another start wants: (file, token); None when it makes no sense."""
    try:
        given: Any = json.loads(heard)
        file, token = given["open"], given["token"]
    except (ValueError, TypeError, KeyError):
        log.warning("Something unintelligible came through the socket of a second start.")
        return None
    return (file, token) if isinstance(file, str) and isinstance(token, str) else None


def _name_for(folder: Path) -> str:
    return "kvscope-" + hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:16]


def _activation_token() -> str:
    """What the desktop gave this start, so that a window may take the focus."""
    return os.environ.get("XDG_ACTIVATION_TOKEN") or os.environ.get("DESKTOP_STARTUP_ID") or ""


def _runtime_folder() -> Path:
    """A folder that only this person can write to, with a short name (a socket's is limited)."""
    given = os.environ.get("XDG_RUNTIME_DIR", "")
    if given and os.path.isdir(given):
        return Path(given)
    if os.name == "nt":
        return Path(tempfile.gettempdir())
    own = Path(tempfile.gettempdir()) / f"kvscope-{os.getuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    found = own.lstat()
    if found.st_uid != os.getuid() or not stat.S_ISDIR(found.st_mode) or found.st_mode & 0o077:
        # Somebody else's trap: a folder that nobody could have foreseen. Then a second start is not noticed.
        return Path(tempfile.mkdtemp(prefix="kvscope-"))
    return own
