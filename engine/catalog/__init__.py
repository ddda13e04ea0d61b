"""Known models: what they are, where they lie on this computer, and how to get them.

``resolve(model_or_path)`` turns what a person typed into a file; ``fetch(id)`` downloads a model and checks it;
``python -m engine.catalog fetch`` does so from a terminal.
"""

from __future__ import annotations

from engine.catalog.download import fetch
from engine.catalog.known import KnownModel, Wheel, default_model, known_model, known_models
from engine.catalog.lookup import find, name_of, resolve
from engine.catalog.paths import cache_dir, data_dir, models_dir

__all__ = [
    "KnownModel",
    "Wheel",
    "cache_dir",
    "data_dir",
    "default_model",
    "fetch",
    "find",
    "known_model",
    "known_models",
    "models_dir",
    "name_of",
    "resolve",
]
