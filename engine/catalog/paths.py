"""Where KVScope keeps what it can fetch or compute again (cache) and what belongs to the person (data).

The environment variables ``KVSCOPE_CACHE_DIR`` and ``KVSCOPE_DATA_DIR`` replace the system's usual folders. These
functions name folders; they create none.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

_APP = "kvscope"


def cache_dir() -> Path:
    """Folder for models, compiled kernels and other things that can be made again."""
    return _folder("KVSCOPE_CACHE_DIR", platformdirs.user_cache_dir(_APP, appauthor=False))


def data_dir() -> Path:
    """Folder for chats and settings."""
    return _folder("KVSCOPE_DATA_DIR", platformdirs.user_data_dir(_APP, appauthor=False))


def models_dir() -> Path:
    """Folder of downloaded models, inside the cache folder."""
    return cache_dir() / "models"


def _folder(variable: str, usual: str) -> Path:
    chosen = os.environ.get(variable, "").strip()
    return Path(chosen).expanduser().absolute() if chosen else Path(usual)
