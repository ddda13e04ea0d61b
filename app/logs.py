"""Where messages go: a log file in the data folder and standard error; Qt's own messages included."""

from __future__ import annotations

import logging
import sys
from logging.handlers import RotatingFileHandler
from pathlib import Path

from PySide6.QtCore import QMessageLogContext, QtMsgType, qInstallMessageHandler

from engine.catalog import data_dir

LOG_BYTES = 1_000_000
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_LEVELS = {
    QtMsgType.QtDebugMsg: logging.DEBUG,
    QtMsgType.QtInfoMsg: logging.INFO,
    QtMsgType.QtWarningMsg: logging.WARNING,
    QtMsgType.QtCriticalMsg: logging.ERROR,
    QtMsgType.QtFatalMsg: logging.CRITICAL,
}


def log_file() -> Path:
    """The log that a person can look at."""
    return data_dir() / "kvscope.log"


def set_up() -> None:
    """Send log messages, warnings and Qt's messages to the log file and to standard error."""
    root = logging.getLogger()
    root.setLevel(logging.INFO)
    handlers: list[logging.Handler] = []
    if sys.stderr is not None:
        handlers.append(logging.StreamHandler(sys.stderr))
        handlers[0].setLevel(logging.WARNING)
    problem = ""
    try:
        log_file().parent.mkdir(parents=True, exist_ok=True)
        handlers.append(RotatingFileHandler(log_file(), maxBytes=LOG_BYTES, backupCount=1, encoding="utf-8"))
    except OSError as error:
        problem = f"No log file can be written: {error}"
    for handler in handlers:
        handler.setFormatter(logging.Formatter(_FORMAT))
        root.addHandler(handler)
    logging.captureWarnings(True)
    qInstallMessageHandler(_on_qt_message)
    if problem:
        logging.getLogger(__name__).warning("%s", problem)


def _on_qt_message(kind: QtMsgType, context: QMessageLogContext, message: str) -> None:
    logging.getLogger(f"qt.{context.category or 'default'}").log(_LEVELS.get(kind, logging.WARNING), "%s", message)
