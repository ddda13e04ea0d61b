"""A question and an answer between two processes of one person, each one line.

Where the system has them, a socket in the file system, which its folder protects. Elsewhere (Windows) a port of this
computer only; its number and a secret lie in a file that only the person can read. Qt's own classes for this are not
used: they need system libraries that the rest of the window does without.
"""

from __future__ import annotations

import contextlib
import hmac
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QObject, QSocketNotifier

log = logging.getLogger(__name__)

Answer = Callable[[bytes], bytes | None]
"""From a question to its answer; None when it is not understood."""

MAX_BYTES = 64 * 1024
_UNIX = hasattr(socket, "AF_UNIX")


class LocalServer(QObject):
    """Answers on the UI thread, without ever waiting for whoever asks."""

    def __init__(self, answer: Answer, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._answer = answer
        self._place = Path()
        self._secret = b""
        self._socket: socket.socket | None = None
        self._notifier: QSocketNotifier | None = None
        self._asking: dict[socket.socket, tuple[QSocketNotifier, bytearray]] = {}

    def listen(self, place: Path) -> None:
        """Be found at ``place``, a file name without its ending; what lies there is replaced. Raises ``OSError``."""
        self.close()
        self._place = place
        _path(place).unlink(missing_ok=True)
        listening = socket.socket(socket.AF_UNIX if _UNIX else socket.AF_INET, socket.SOCK_STREAM)
        try:
            listening.setblocking(False)
            self._bind(listening)
            listening.listen(8)
        except OSError:
            listening.close()
            raise
        self._socket = listening
        self._notifier = self._watch(listening, self._on_connection)

    def close(self) -> None:
        """Answer nobody any more."""
        for connection in list(self._asking):
            self._drop(connection)
        if self._notifier is not None:
            self._notifier.setEnabled(False)
            self._notifier.deleteLater()
            self._notifier = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            _path(self._place).unlink(missing_ok=True)

    def _bind(self, listening: socket.socket) -> None:
        path = _path(self._place)
        if _UNIX:
            listening.bind(str(path))
            path.chmod(0o600)
            return
        listening.bind(("127.0.0.1", 0))
        self._secret = secrets.token_hex(16).encode()
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as out:
            out.write(b"%d %s" % (listening.getsockname()[1], self._secret))

    def _watch(self, watched: socket.socket, act: Callable[[], None]) -> QSocketNotifier:
        notifier = QSocketNotifier(watched.fileno(), QSocketNotifier.Type.Read, self)
        notifier.activated.connect(lambda *_: act())
        return notifier

    def _on_connection(self) -> None:
        if self._socket is None:
            return
        with contextlib.suppress(BlockingIOError):
            connection, _ = self._socket.accept()
            connection.setblocking(False)
            self._asking[connection] = (self._watch(connection, lambda: self._on_bytes(connection)), bytearray())

    def _on_bytes(self, connection: socket.socket) -> None:
        if connection not in self._asking:
            return
        heard = self._asking[connection][1]
        try:
            more = connection.recv(MAX_BYTES)
        except BlockingIOError:
            return
        except OSError:
            more = b""
        heard += more
        if heard.endswith(b"\n"):
            self._reply(connection, bytes(heard[:-1]))
        elif not more or len(heard) > MAX_BYTES:
            self._drop(connection)

    def _reply(self, connection: socket.socket, question: bytes) -> None:
        secret, _, question = question.partition(b" ") if self._secret else (b"", b"", question)
        answer = self._answer(question) if hmac.compare_digest(secret, self._secret) else None
        if answer is not None:
            with contextlib.suppress(OSError):  # it went away meanwhile
                connection.send(answer + b"\n")
        self._drop(connection)

    def _drop(self, connection: socket.socket) -> None:
        notifier, _ = self._asking.pop(connection)
        notifier.setEnabled(False)
        notifier.deleteLater()
        connection.close()


def ask(place: Path, question: bytes, deadline: float) -> bytes:
    """Put a question (one line) to whoever listens at ``place``; what was answered until ``deadline`` (of
    ``time.monotonic``), empty without an answer."""
    try:
        with _connect(place) as connection:
            secret = _path(place).read_bytes().partition(b" ")[2] + b" " if not _UNIX else b""
            connection.sendall(secret + question + b"\n")
            answer = b""
            while not answer.endswith(b"\n") and (left := deadline - time.monotonic()) > 0:
                connection.settimeout(left)
                more = connection.recv(MAX_BYTES)
                if not more:
                    break
                answer += more
            return answer.rstrip(b"\n")
    except (OSError, ValueError):
        return b""


def _connect(place: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX if _UNIX else socket.AF_INET, socket.SOCK_STREAM)
    try:
        connection.settimeout(1.0)
        path = _path(place)
        connection.connect(str(path) if _UNIX else ("127.0.0.1", int(path.read_bytes().partition(b" ")[0])))
    except (OSError, ValueError):
        connection.close()
        raise
    return connection


def _path(place: Path) -> Path:
    return place.with_name(f"{place.name}.sock" if _UNIX else f"{place.name}.port")
