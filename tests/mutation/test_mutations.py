"""Apply each deliberate defect to a copy of the engine and show that the unit tests notice it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutation.mutations import MUTATIONS, Mutation

ROOT = Path(__file__).parents[2]
HELPERS = ("fakes.py", "desk.py", "shelf.py")
SUITE = (
    "test_pool.py",
    "test_pool_session.py",
    "test_prefix.py",
    "test_scheduler.py",
    "test_scheduler_pages.py",
    "test_scheduler_fairness.py",
    "test_prefix_random.py",
    "test_scheduler_random.py",
)
TIMEOUT_S = 300


def copy_of_the_engine(folder: Path) -> Path:
    """Engine and the tests of its memory and scheduling, apart from everything else."""
    ignore = shutil.ignore_patterns("__pycache__")
    for package in ("cache", "scheduling"):
        shutil.copytree(ROOT / "engine" / package, folder / "engine" / package, ignore=ignore)
    for module in ("__init__.py", "errors.py", "port.py"):
        shutil.copy(ROOT / "engine" / module, folder / "engine")
    (folder / "tests" / "unit").mkdir(parents=True)
    for helper in HELPERS:
        shutil.copy(ROOT / "tests" / helper, folder / "tests")
    for module in SUITE:
        shutil.copy(ROOT / "tests" / "unit" / module, folder / "tests" / "unit")
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def run_suite(folder: Path) -> subprocess.CompletedProcess[str]:
    """The tests in ``folder``, up to the first failure."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider"]
    tests = [str(Path("tests", "unit", module)) for module in SUITE]
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [*command, *tests], cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )


@pytest.mark.long
def test_the_suite_passes_without_a_defect(tmp_path: Path) -> None:
    done = run_suite(copy_of_the_engine(tmp_path))
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=[mutation.name for mutation in MUTATIONS])
def test_the_suite_notices(mutation: Mutation, tmp_path: Path) -> None:
    source = copy_of_the_engine(tmp_path) / mutation.file
    code = source.read_text(encoding="utf-8")
    assert code.count(mutation.old) == 1, "the mutation does not fit the code any more"
    source.write_text(code.replace(mutation.old, mutation.new), encoding="utf-8")
    try:
        done = run_suite(tmp_path)
    except subprocess.TimeoutExpired:
        return  # a step that never ends is noticed as well
    assert done.returncode == 1, f"survived: {mutation.name}\n{done.stdout[-2000:]}"


def test_every_mutation_fits_the_code() -> None:
    for mutation in MUTATIONS:
        code = (ROOT / mutation.file).read_text(encoding="utf-8")
        assert code.count(mutation.old) == 1, mutation.name
        compile(code.replace(mutation.old, mutation.new), mutation.file, "exec")
