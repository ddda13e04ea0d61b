"""``python3 run.py`` in a small checkout of its own, with a stand-in for every package it would install."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
STAND_IN = "import os, sys\nprint({name!r}, *sys.argv[1:])\nsys.exit(int(os.environ.get('FAIL_{name}', '0')))\n"
PYTEST = "import os, sys\nprint('args', *sys.argv[1:])\nprint('1 passed in 0.01s')\nsys.exit(int(os.environ.get('FAIL_pytest', '0')))\n"  # fmt: skip # noqa: E501
CATALOG = """import os, pathlib, sys
if os.environ.get('FAIL_catalog'):
    sys.exit('The model could not be downloaded: check the network.')
file = pathlib.Path(os.environ['MODEL_FOLDER']) / 'model.gguf'
file.write_bytes(b'GGUF')
print('fetching', *sys.argv[1:], file=sys.stderr)
print(file)
"""


def make_wheel(folder: Path, name: str, files: Mapping[str, str]) -> None:
    """A wheel of pure Python that pip accepts."""
    folder.mkdir(exist_ok=True)
    info = f"{name}-1.0.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{file},,\n" for file in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
        for file, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(file, text)


def make_checkout(root: Path) -> Path:
    """A checkout with the real run.py, a lock of one package, and stand-ins for the window and the engine."""
    shutil.copytree(REPOSITORY / "requirements", root / "requirements", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "run.py", root)
    (root / "requirements/app.txt").write_text("standin==1.0\n", encoding="utf-8")
    (root / "requirements/dev.txt").write_text("-r app.txt\n", encoding="utf-8")
    for package, text in {
        "app": STAND_IN.format(name="app"),
        "engine": STAND_IN.format(name="engine"),
        "engine/catalog": CATALOG,
        "engine/kernels": "",
    }.items():
        folder = root / package
        folder.mkdir(parents=True)
        (folder / "__init__.py").touch()
        (folder / "__main__.py").write_text(text, encoding="utf-8")
    (root / "engine/kernels/warm.py").write_text(STAND_IN.format(name="warm"), encoding="utf-8")
    tools = {f"{name}/__main__.py": STAND_IN.format(name=name) for name in ("ruff", "mypy")}
    tools["importlinter/cli.py"] = "def lint_imports_command():\n    print('importlinter')\n"
    make_wheel(root / "wheels", "standin", {**tools, "pytest/__main__.py": PYTEST})
    return root


def environment(root: Path, **changes: str) -> dict[str, str]:
    """The environment of a run: only the local wheels, no display, a stand-in window unless ``changes`` say else."""
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("PIP_", "FAIL_", "PYTHON")) and k != "DISPLAY"}
    keep.pop("WAYLAND_DISPLAY", None)
    here = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": (root / "wheels").as_uri()}
    return {**keep, **here, "MODEL_FOLDER": str(root), "QT_QPA_PLATFORM": "offscreen", **changes}


def run(root: Path, *arguments: str, **changes: str) -> subprocess.CompletedProcess[str]:
    """Run the checkout's run.py to its end."""
    command = [sys.executable, "run.py", *arguments]
    env = environment(root, **changes)
    return subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture(scope="module")
def first_start(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A checkout whose first start found a half-made environment; and what that start printed."""
    root = make_checkout(tmp_path_factory.mktemp("run") / "my copy of KVScope ü")
    (root / ".venv/bin").mkdir(parents=True)
    (root / ".venv/kvscope-unfinished").touch()
    (root / ".venv/left-over").touch()
    return root, run(root)


@pytest.fixture
def checkout(first_start: tuple[Path, object], tmp_path: Path) -> Path:
    """A checkout of its own for one test, already started once."""
    root = tmp_path / "copy"
    shutil.copytree(first_start[0], root, symlinks=True)
    return root


def test_a_first_start_replaces_a_half_made_environment_fetches_and_opens(
    first_start: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    root, done = first_start
    assert done.returncode == 0, done.stderr
    assert not (root / ".venv/left-over").exists() and not (root / ".venv/kvscope-unfinished").exists()
    assert done.stdout.splitlines()[0] == "Making .venv, which happens once"
    assert done.stdout.splitlines()[-1] == "app"
    assert "fetching fetch smollm2-135m-instruct" in done.stderr


def test_a_second_start_goes_straight_to_the_window(first_start: tuple[Path, object]) -> None:
    done = run(first_start[0], PIP_FIND_LINKS="/nowhere", FAIL_catalog="1")
    assert (done.returncode, done.stdout, done.stderr) == (0, "app\n", "")


def test_files_are_opened_wherever_the_command_was_given(checkout: Path, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(b"GGUF")
    command = [sys.executable, str(checkout / "run.py"), "own.gguf"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(checkout, FAIL_catalog="1"), capture_output=True, text=True
    )
    assert done.stdout == f"app {tmp_path / 'own.gguf'}\n"


def test_a_catalogue_id_is_fetched_and_opened(checkout: Path) -> None:
    done = run(checkout, "gemma-3-270m")
    assert "fetching fetch gemma-3-270m" in done.stderr
    assert done.stdout == "app gemma-3-270m\n"


def test_a_model_that_cannot_be_fetched_ends_with_the_catalogues_sentence(checkout: Path) -> None:
    done = run(checkout, "gemma-3-270m", FAIL_catalog="1")
    assert (done.returncode, done.stderr) == (1, "The model could not be downloaded: check the network.\n")


def test_without_a_display_the_four_chats_run_in_the_terminal(checkout: Path) -> None:
    done = run(checkout, QT_QPA_PLATFORM="")
    line, demo = done.stdout.splitlines()
    assert done.returncode == 0
    assert line.startswith("There is no display here") and "xvfb-run" in line and "ssh -X" in line
    assert demo == "engine demo serving smollm2-135m-instruct"


def test_a_display_that_does_not_answer_is_named(checkout: Path) -> None:
    done = run(checkout, QT_QPA_PLATFORM="", DISPLAY=":8731")
    assert done.stdout.startswith("The display :8731 does not answer")


@pytest.mark.parametrize("argument", ["missing.gguf", "folder/model", "--fast"])
def test_a_missing_file_is_said_before_anything_is_made(tmp_path: Path, argument: str) -> None:
    root = make_checkout(tmp_path / "fresh")
    done = run(root, argument)
    assert done.returncode == 1
    assert done.stderr.startswith(f"There is no file {argument}: ") and done.stderr.count("\n") == 1
    assert not (root / ".venv").exists()


def test_one_model_at_a_time(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "fresh")
    done = run(root, "one", "two")
    assert (done.returncode, done.stderr.split(":")[0]) == (2, "usage")
    assert not (root / ".venv").exists()


def test_without_a_network_nothing_is_left(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "fresh")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = run(root, PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL=f"http://127.0.0.1:{port}/simple")
    assert done.returncode == 1
    assert "could not be downloaded: check the network" in done.stderr and done.stderr.count("\n") == 1
    assert not (root / ".venv").exists()


def test_a_damaged_package_is_said_and_the_environment_stays_as_it_was(checkout: Path) -> None:
    make_wheel(checkout / "wheels", "other", {"other.py": ""})
    (checkout / "wheels/other-1.0-py3-none-any.whl").write_bytes(b"PK not a zip")
    (checkout / "requirements/app.txt").write_text("standin==1.0\nother==1.0\n", encoding="utf-8")
    done = run(checkout)
    assert done.returncode == 1
    assert "arrived damaged" in done.stderr and done.stderr.count("\n") == 1
    make_wheel(checkout / "wheels", "other", {"other.py": ""})
    assert run(checkout).stdout.splitlines()[-1] == "app"
    assert list(checkout.glob(".venv/lib/*/site-packages/other.py"))


def test_an_environment_made_by_hand_is_completed_and_kept(checkout: Path) -> None:
    (checkout / ".venv/kvscope-stamp.json").unlink()
    (checkout / ".venv/mine").touch()
    done = run(checkout)
    assert done.stdout.splitlines()[0].startswith("Installing 1 packages")
    assert (checkout / ".venv/mine").exists()
    assert set(json.loads((checkout / ".venv/kvscope-stamp.json").read_text())) >= {"app", "python"}


def test_an_environment_whose_interpreter_changed_is_made_anew(checkout: Path) -> None:
    stamp = checkout / ".venv/kvscope-stamp.json"
    stamp.write_text(json.dumps({**json.loads(stamp.read_text()), "python": "/usr/bin/python3.10"}))
    (checkout / ".venv/mine").touch()
    assert run(checkout).stdout.splitlines()[0] == "Making .venv, which happens once"
    assert not (checkout / ".venv/mine").exists()


def test_interrupting_an_installation_is_clean(tmp_path: Path) -> None:
    root = make_checkout(tmp_path / "fresh")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/simple"
        env = environment(root, PIP_NO_INDEX="0", PIP_FIND_LINKS="", PIP_INDEX_URL=url)
        # Where the suite itself runs in the background, SIGINT may be ignored, and children inherit that.
        heeding = "signal.signal(signal.SIGINT, signal.SIG_DFL); os.execv(sys.executable, [sys.executable, 'run.py'])"
        process = subprocess.Popen(
            [sys.executable, "-c", f"import os, signal, sys; {heeding}"],
            cwd=root,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        silent.settimeout(60)
        connection, _ = silent.accept()
        with connection:
            process.send_signal(signal.SIGINT)
            _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr == "\nInterrupted; nothing half-made was kept.\n"
    assert not (root / ".venv").exists()


def test_the_test_command_runs_every_check_and_ends_with_the_closing_line(checkout: Path) -> None:
    done = run(checkout, "test", "--long", "-k", "pool")
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^--- (\w+)", done.stdout, re.MULTILINE) == [
        "format", "lint", "types", "import", "kernels", "tests",
    ]  # fmt: skip
    assert done.stdout.splitlines()[-2:] == ["args --long -k pool", "1 passed in 0.01s"]


@pytest.mark.parametrize(
    ("broken", "named"), [("FAIL_mypy", "types"), ("FAIL_warm", "kernels"), ("FAIL_ruff", "format, lint")]
)
def test_a_failed_check_fails_the_command_but_not_the_steps_after_it(checkout: Path, broken: str, named: str) -> None:
    done = run(checkout, "test", **{broken: "3"})
    lines = done.stdout.splitlines()
    assert done.returncode == 1
    assert lines[-2].startswith(f"failed before the tests: {named}") and lines[-1] == "1 passed in 0.01s"


def test_failing_tests_fail_the_command(checkout: Path) -> None:
    assert run(checkout, "test", FAIL_pytest="2").returncode == 2


def test_an_older_python_gets_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 9, 2, "final", 0))
    with pytest.raises(SystemExit, match=r"^KVScope needs Python 3\.11 or newer, and this is Python 3\.9: .*run\.py$"):
        runpy.run_path(str(REPOSITORY / "run.py"), run_name="__main__")
