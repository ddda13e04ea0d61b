"""Where compiled kernels are kept on disk.

Numba alone would miss an edit in a file that a kernel calls into, and would follow the install path or the current
directory. Here the folder's name is a hash of all kernel sources, the versions that matter and the target CPU, so a
second start never compiles and any edit always does. Cache files are pickles: the folder belongs to the user alone and
is not read if anyone else could write to it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import platform
import shutil
import stat
import sys
from functools import lru_cache
from pathlib import Path

import llvmlite
import numba
import numpy as np
import platformdirs
from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from engine.kernels.cpu import target_features, target_name

log = logging.getLogger(__name__)
_KEPT_FOLDERS = 6
_DAMAGE = (OSError, EOFError, ValueError, TypeError, KeyError, AttributeError, pickle.UnpicklingError)
"""What reading a damaged cache file may raise."""


def cache_root() -> Path:
    """The folder for all kernel caches: ``NUMBA_CACHE_DIR``, else ``kernels`` in the application's cache folder."""
    chosen = getattr(numba.config, "CACHE_DIR", "")
    if chosen:
        return Path(chosen) / "kvscope-kernels"
    home = os.environ.get("KVSCOPE_CACHE_DIR") or platformdirs.user_cache_dir("kvscope")
    return Path(home) / "kernels"


@lru_cache(maxsize=1)
def cache_key() -> str:
    """A hash of everything that decides what machine code the kernels become."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    parts = (
        numba.__version__,
        llvmlite.__version__,
        np.__version__,
        sys.version,
        platform.machine(),
        sys.platform,
        target_name(),
        target_features(),
    )
    digest.update("\0".join(parts).encode())
    return digest.hexdigest()[:24]


@lru_cache(maxsize=1)
def cache_folder() -> Path | None:
    """This process's kernel cache, made on first use; None (with a warning in the log) if it cannot be trusted."""
    folder = cache_root() / cache_key()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(folder):
            log.warning("kernels are compiled anew: others may write to their cache folder %s", folder)
            return None
        os.utime(folder)
    except OSError as error:
        log.warning("kernels are compiled anew: their cache folder cannot be used (%s)", error)
        return None
    return folder


def _is_ours(folder: Path) -> bool:
    """Whether the folder belongs to this user and only this user can write to it."""
    if os.name != "posix":
        return True
    info = folder.stat()
    return info.st_uid == os.getuid() and not info.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def prune() -> None:
    """Remove all but the most recently used kernel caches (other versions, other CPUs)."""
    root = cache_root()
    folders = [(path.stat().st_mtime, path) for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    for _, path in sorted(folders, reverse=True)[_KEPT_FOLDERS:]:
        shutil.rmtree(path, ignore_errors=True)


class _Locator(_CacheLocator):
    """Sends every kernel to the one folder; the folder's name already says whether the cache is fresh."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._py_file = str(folder)

    @classmethod
    def from_function(cls, py_func, py_file):
        folder = cache_folder()
        return None if folder is None else cls(folder)

    def get_cache_path(self):
        return str(self._folder)

    def get_source_stamp(self):
        return cache_key()

    def get_disambiguator(self):
        return "k"


class _Impl(CompileResultCacheImpl):
    _locator_classes = [_Locator]  # type: ignore[list-item]


class KernelCache(FunctionCache):
    """Numba's on-disk function cache, kept in ``cache_folder()``. Trouble with the disk costs time, never a start."""

    _impl_class = _Impl

    def exists(self) -> bool:
        """Whether the function is in the cache."""
        return os.path.exists(self._cache_file._index_path)

    def load_overload(self, sig, target_context):
        """The function as cached, or None if it is not there or its file is damaged."""
        try:
            return super().load_overload(sig, target_context)
        except _DAMAGE as error:
            log.warning("a cached kernel could not be read and is compiled anew (%s)", error)
            self._forget()
            return None

    def _forget(self):
        """Remove a damaged index: Numba reads it again before it writes."""
        try:
            os.unlink(self._cache_file._index_path)
        except OSError as error:
            log.warning("a damaged cache file could not be removed (%s)", error)

    def save_overload(self, sig, data):
        """Keep a compiled function for the next start."""
        try:
            super().save_overload(sig, data)
        except _DAMAGE as error:
            log.warning("a compiled kernel could not be kept for the next start (%s)", error)

    def _index_key(self, sig, codegen):
        # Numba's key hashes what a function closes over, which is not the same in every process for other kernels'
        # helpers. The folder's name already covers all sources, and every variant has a file of its own.
        return (sig, codegen.magic_tuple())
