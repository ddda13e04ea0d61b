"""Keeps the settings in a file that is replaced as a whole, so that it is never half written."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from PySide6.QtCore import QObject, Signal

from app.settings.checks import sane
from app.settings.values import Settings
from app.state.plain import UnfitError, revive
from app.text import tr

log = logging.getLogger(__name__)

FILE_NAME = "settings.json"


class SettingsKeeper(QObject):
    """The settings of this run.

    Signals:
        changed: (before) after a change; ``value`` holds the new settings.
        failed: (sentence) they could not be saved; they hold until the program ends.
    """

    changed = Signal(Settings)
    failed = Signal(str)

    def __init__(self, folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self.path = folder / FILE_NAME
        self._value = _read(self.path)

    @property
    def value(self) -> Settings:
        """The settings now."""
        return self._value

    def change(self, **values: Any) -> None:
        """Replace some of the settings, save them and tell everyone."""
        self.put(replace(self._value, **values))

    def put(self, value: Settings) -> None:
        """Replace all settings, save them and tell everyone; nothing happens when they are the same."""
        before = self._value
        if value == before:
            return
        self._value = value
        try:
            _write(self.path, value)
        except OSError as error:
            log.warning("The settings could not be saved: %s", error)
            reason = error.strerror or str(error)
            self.failed.emit(tr("The settings hold until KVScope ends; saving failed: {reason}.", reason=reason))
        self.changed.emit(before)


def _read(path: Path) -> Settings:
    """The settings in the file; each value that is missing or wrong is the default."""
    try:
        found = revive(Settings, json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Settings()
    except (OSError, ValueError, UnfitError) as error:
        log.warning("The settings in %s cannot be read, defaults are used: %s", path, error)
        return Settings()
    assert isinstance(found, Settings)
    return replace(found, engine=sane(found.engine))


def _write(path: Path, value: Settings) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(f".{os.getpid()}.tmp")
    try:
        with scratch.open("w", encoding="utf-8") as out:
            json.dump(asdict(value), out, indent=2)  # ASCII: a file's name may hold what is no text
            out.flush()
            os.fsync(out.fileno())
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
