"""Compiled kernels on disk: a second start compiles nothing, an edit always does, and nobody else can write there."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from engine.kernels import cache_locator

KERNELS = Path(cache_locator.__file__).parent

Started = tuple[Path, Path, dict[str, object]]

HELPER = '''"""What the kernel calls."""
from engine.kernels.kernel import helper


@helper
def shifted(x):
    return x + 1
'''
KERNEL = '''"""The smallest kernel, which lives in another file than what it calls."""
from numba.core import types

from engine.kernels.kernel import function
from engine.kernels.probe_helper import shifted


@function(types.int64(types.int64))
def probe(x):
    return shifted(x)
'''
CHILD = """import json, logging
logging.basicConfig(level=logging.WARNING)
from engine.kernels.cache_locator import cache_folder
from engine.kernels.kernel import counts
from engine.kernels.probe import probe
cached = probe.is_cached
print(json.dumps({"result": probe.call(40), "compiled": counts.compiled, "loaded": counts.loaded,
                  "cached": cached, "folder": str(cache_folder())}))
"""


def install(folder: Path) -> Path:
    """A copy of the kernels with two small files more."""
    shutil.copytree(KERNELS, folder / "engine" / "kernels", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(KERNELS.parent / "errors.py", folder / "engine")
    (folder / "engine" / "__init__.py").touch()
    (folder / "engine" / "kernels" / "probe_helper.py").write_text(HELPER, encoding="utf-8")
    (folder / "engine" / "kernels" / "probe.py").write_text(KERNEL, encoding="utf-8")
    return folder


def start(tree: Path, cache: Path, cwd: Path) -> tuple[dict[str, object], str]:
    """What a process of its own says that runs the kernel once, and its log."""
    env = {**os.environ, "PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", CHILD], cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Started:
    """Installed kernels, their cache after a first start, and what that start said."""
    folder = tmp_path_factory.mktemp("started")
    tree = install(folder / "here")
    first, _ = start(tree, folder / "cache", folder)
    return tree, folder / "cache", first


@pytest.fixture
def cache(started: Started, tmp_path: Path) -> Path:
    """A test's own copy of the cache after the first start."""
    return Path(shutil.copytree(started[1], tmp_path / "cache"))


def only_folder(cache: Path) -> Path:
    (folder,) = (cache / "kvscope-kernels").iterdir()
    return folder


def test_only_the_first_start_and_an_edit_compile(started: Started, cache: Path, tmp_path: Path) -> None:
    here, _, first = started
    assert first == {**first, "result": 41, "compiled": 1, "loaded": 0, "cached": False}
    second, _ = start(here, cache, tmp_path)
    assert second == {"result": 41, "compiled": 0, "loaded": 1, "cached": True, "folder": str(only_folder(cache))}
    there = install(tmp_path / "some" / "where else")
    moved, _ = start(there, cache, there)
    assert moved == second, "neither the install path nor the current directory may matter"

    helper = there / "engine" / "kernels" / "probe_helper.py"
    before = helper.stat()
    helper.write_text(HELPER.replace("x + 1", "x + 2"), encoding="utf-8")
    os.utime(helper, ns=(before.st_atime_ns, before.st_mtime_ns))
    edited, _ = start(there, cache, tmp_path)
    assert edited == {**edited, "result": 42, "compiled": 1, "loaded": 0, "cached": False}
    assert edited["folder"] != second["folder"]


@pytest.mark.skipif(os.name != "posix", reason="folders have no permission bits there; the user's folders are private")
def test_a_folder_that_others_may_write_to_is_not_read(started: Started, cache: Path, tmp_path: Path) -> None:
    original, folder = only_folder(started[1]), only_folder(cache)
    assert stat.S_IMODE(original.stat().st_mode) == 0o700
    assert any(original.iterdir())
    folder.chmod(0o770)
    open_to_others, log = start(started[0], cache, tmp_path)
    assert open_to_others == {"result": 41, "compiled": 1, "loaded": 0, "cached": False, "folder": "None"}
    assert "others may write" in log and str(folder) in log


def test_damaged_files_cost_a_compilation_only(started: Started, cache: Path, tmp_path: Path) -> None:
    for file in only_folder(cache).iterdir():
        file.write_bytes(b"not what was written")
    again, log = start(started[0], cache, tmp_path)
    assert (again["result"], again["compiled"]) == (41, 1)
    assert "could not be read" in log
    repaired, log = start(started[0], cache, tmp_path)
    assert (repaired["result"], repaired["compiled"], log) == (41, 0, "")


def test_an_edit_in_any_file_gives_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    copy = tmp_path / "kernels"
    shutil.copytree(KERNELS, copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(cache_locator, "__file__", str(copy / "cache_locator.py"))
    key = cache_locator.cache_key.__wrapped__
    original = key()
    assert original == cache_locator.cache_key(), "a copy elsewhere has the same key"
    seen = {original}
    files = sorted(copy.glob("*.py"))
    for file in files:
        text = file.read_bytes()
        file.write_bytes(text + b"#")
        seen.add(key())
        file.write_bytes(text)
    assert len(seen) == len(files) + 1
    assert key() == original


def test_only_the_caches_used_last_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache_locator, "cache_root", lambda: tmp_path)
    for age in range(9):
        (tmp_path / f"age-{age}").mkdir()
        os.utime(tmp_path / f"age-{age}", (1e9 - age, 1e9 - age))
    cache_locator.prune()
    assert sorted(path.name for path in tmp_path.iterdir()) == [f"age-{age}" for age in range(6)]
