"""From what a person typed to a model file on this computer."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import resources
from engine.catalog import download
from engine.catalog.known import KnownModel, known_model, known_models
from engine.catalog.paths import models_dir
from engine.errors import DownloadError, ModelFileError


def find(model: str | KnownModel) -> Path | None:
    """The file of a known model if it is here: in the models folder, or carried along by a packaged build.

    A file counts as the model if its size is right; its checksum was verified when it was fetched.
    """
    known = known_model(model) if isinstance(model, str) else model
    for folder in (models_dir(), resources.ROOT / "models"):
        candidate = folder / known.file
        if download.has_size(candidate, known.bytes):
            return candidate
    return None


def name_of(path: str | os.PathLike[str]) -> str | None:
    """What people call the model in this file if it is a known one: files often name themselves after a build step."""
    file = Path(path)
    for model in known_models():
        if file.name == model.file and download.has_size(file, model.bytes):
            return model.name
    return None


def resolve(
    model_or_path: str | os.PathLike[str],
    *,
    fetch: bool = True,
    progress: download.Progress | None = None,
    cancel: threading.Event | None = None,
) -> Path:
    """The file of a known model (by id) or the path itself.

    A known model that is not here is downloaded, or refused with ``DownloadError`` if ``fetch`` is False. An id wins
    over a file of the same name; write ``./name`` for the file. A path without a file is a ``ModelFileError``.
    """
    text = os.fspath(model_or_path)
    if text in {model.id for model in known_models()}:
        here = find(text)
        if here is not None:
            return here
        if fetch:
            return download.fetch(text, progress=progress, cancel=cancel)
        raise DownloadError(f"{text} is not on this computer; `python -m engine.catalog fetch {text}` downloads it.")
    path = Path(text).expanduser()
    if not path.exists():
        names = ", ".join(model.id for model in known_models())
        raise ModelFileError(f"There is no file {text} and no known model of that name ({names}).", field="path")
    return path
