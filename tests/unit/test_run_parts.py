"""What run.py looks for on the system, and the sentences it says; and the lock against pyproject.toml."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shutil
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest

from requirements import environment, lock, system
from requirements.problem import Problem, explain

REPOSITORY = Path(__file__).resolve().parents[2]
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="it is about Linux packages")


@pytest.fixture
def apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for apt-get, first on PATH; returns the file in which it notes its arguments."""
    log = tmp_path / "apt.log"
    script = tmp_path / "bin/apt-get"
    script.parent.mkdir()
    script.write_text(
        f'#!/bin/sh\necho "$@" >> "{log}"\n[ ! -e "{tmp_path}/fail" ] || {{ echo "E: no luck"; exit 100; }}\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    return log


def as_user(monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: number)


def test_run_py_parses_on_old_pythons() -> None:
    assert ast.parse((REPOSITORY / "run.py").read_text(encoding="utf-8"), feature_version=(3, 6)).body


@linux
def test_missing_libraries_are_installed_by_root(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 0)
    answers = iter([{"libxcb.so.1": "libxcb1", "libGL.so.1": "libgl1"}, {}])
    monkeypatch.setattr(system, "missing_libraries", lambda: next(answers))
    system.ensure_libraries()
    assert apt.read_text().splitlines() == ["update -qq", "install -y -qq --no-install-recommends libgl1 libxcb1"]


@linux
def test_missing_libraries_give_others_the_exact_command(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 1000)
    monkeypatch.setattr(system, "LIBRARIES", {"libnothere.so.9": "libnothere9", "libnor.so.1": "libnor1"})
    with pytest.raises(Problem, match=r": run sudo apt-get install -y libnor1 libnothere9$"):
        system.ensure_libraries()
    assert not apt.exists()


@linux
def test_a_failing_apt_get_is_quoted_with_the_command(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 0)
    (apt.parent / "fail").touch()
    monkeypatch.setattr(system, "LIBRARIES", {"libnothere.so.9": "libnothere9"})
    with pytest.raises(Problem, match=r"\(E: no luck\): run sudo apt-get install -y libnothere9$"):
        system.ensure_libraries()


@linux
def test_systems_without_apt_are_told_the_library_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    monkeypatch.setattr(system, "LIBRARIES", {"libnothere.so.9": "libnothere9"})
    with pytest.raises(Problem, match=r"install libnothere\.so\.9\.$"):
        system.ensure_libraries()


@linux
def test_missing_test_programs_are_only_mentioned_to_others(
    apt: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    as_user(monkeypatch, 1000)
    monkeypatch.setattr(system, "TEST_PROGRAMS", {"no-such-server": "nosuch"})
    system.ensure_test_programs()
    assert capsys.readouterr().out.endswith("sudo apt-get install -y nosuch\n")
    as_user(monkeypatch, 0)
    system.ensure_test_programs()
    assert apt.read_text().splitlines()[-1].endswith("nosuch")


def test_a_python_without_venv_is_told_the_package(apt: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    as_user(monkeypatch, 1000)
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "ensurepip" else find(name))
    with pytest.raises(Problem, match=r"venv module is missing: run sudo apt-get install -y python3-venv"):
        system.ensure_venv_module()


def test_a_full_disk_is_seen_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 0))
    for name, path in {"VENV": ".venv", "PYTHON": ".venv/p", "STAMP": ".venv/s", "UNFINISHED": ".venv/u"}.items():
        monkeypatch.setattr(environment, name, tmp_path / path)
    with pytest.raises(Problem, match=r"^The disk is full: free about 1\.2 GB"):
        environment.ensure_environment("app")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", "The disk is full"),
        ("[Errno 30] Read-only file system: '/x/.venv'", "KVScope cannot write to"),
        ("[Errno 13] Permission denied: '/x/.venv'", "KVScope cannot write to"),
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError'\n"
            "ERROR: No matching distribution found for numpy==2.4.6",
            "The packages could not be downloaded",
        ),
        ("ERROR: No matching distribution found for numba==0.68.1", "A package has no build for Python"),
        ("ERROR: Wheel 'numpy' located at /tmp/numpy.whl is invalid.", "A downloaded package arrived damaged"),
        ("Traceback\nValueError: odd", "KVScope could not be set up (ValueError: odd): "),
        ("", "KVScope could not be set up (no reason given)"),
    ],
)
def test_failures_become_one_sentence(output: str, sentence: str) -> None:
    text = explain(output)
    assert text.startswith(sentence)
    assert "\n" not in text


def test_displays_that_nobody_serves_do_not_answer() -> None:
    assert not system.answers(":8731")
    assert not system.answers("localhost:8731.0")
    assert not system.answers("nonsense")


def test_the_lock_has_every_declared_package_at_its_declared_version() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pinned = {re.split("[ ;]", line)[0] for line in environment.lock_text("dev").splitlines()}
    wanted = {text.lower().replace("_", "-") for text in declared}
    assert wanted <= pinned


def test_the_lock_pins_what_the_declared_packages_need_and_marks_what_one_system_needs() -> None:
    lines, names = lock.pins(["jinja2==3.1.6", "tqdm"])
    assert names >= {"jinja2", "markupsafe", "tqdm", "colorama"}
    assert [line for line in lines if line.startswith("colorama")] == ['colorama==0.4.6 ; sys_platform == "win32"\n']
