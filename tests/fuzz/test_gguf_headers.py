"""A short, seeded run of the GGUF target, and proof that the target notices what it is there to notice."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any

import pytest

from engine.errors import ModelFileError
from tests.fuzz import gguf_headers, gguf_mutate

HERE = "tests.fuzz.test_gguf_headers"


def test_two_thousand_damaged_headers_open_or_are_refused_by_name() -> None:
    outcome = gguf_headers.run(2000, seed=1)
    assert outcome.failures == []
    assert sum(outcome.endings.values()) == 2000
    for mutation in gguf_mutate.MUTATIONS:
        assert sum(n for name, n in outcome.endings.items() if name.startswith(mutation.__name__)) >= 100
    assert len(outcome.fields) >= 100


def test_cases_are_the_same_every_time() -> None:
    specs = gguf_headers.sources()
    once = [gguf_headers.damaged_file(specs, 7, case) for case in range(50)]
    assert once == [gguf_headers.damaged_file(specs, 7, case) for case in range(50)]
    assert once != [gguf_headers.damaged_file(specs, 8, case) for case in range(50)]


def _sound(path: Path) -> bool:
    """True for the first file that a child loads, before its cases begin."""
    return path.read_bytes() == gguf_headers.sources()[-1].bytes()


def crash(path: Path) -> None:
    """A loader that fails with an untyped error."""
    if not _sound(path):
        raise IndexError(path.name)


def nameless(path: Path) -> None:
    """A loader whose error names no field."""
    if not _sound(path):
        raise ModelFileError(f"Something is wrong with {path.name}.")


def hungry(path: Path) -> None:
    """A loader that takes memory with each case and keeps it."""
    _KEPT.append(bytearray(b"x") * (32 << 20))


def hang(path: Path) -> None:
    """A loader that never comes back from a damaged file."""
    if not _sound(path):
        threading.Event().wait()


def die(path: Path) -> None:
    """A loader that takes the process down."""
    if not _sound(path):
        os._exit(3)


_KEPT: list[bytearray] = []


@pytest.mark.parametrize(
    ("loader", "options", "words"),
    [
        ("crash", {}, "IndexError: damaged.gguf"),
        ("nameless", {}, "no field or no sentence"),
        ("hungry", {"memory": 1 << 20}, "needed 3"),
        ("hang", {"seconds": 0.1}, "still running"),
        ("die", {}, "the process died"),
    ],
)
def test_the_target_notices_bad_endings(loader: str, options: dict[str, Any], words: str) -> None:
    outcome = gguf_headers.run(2, seed=1, load_name=f"{HERE}:{loader}", **options)
    assert len(outcome.failures) == 2
    for number, line in enumerate(outcome.failures):
        assert line.startswith(f"case {number}")
        assert words in line


def refuse(path: Path) -> None:
    """A loader that refuses everything, which would make any run look well."""
    raise ModelFileError("No.", field="everything")


def test_the_target_insists_that_a_sound_file_loads() -> None:
    with pytest.raises(RuntimeError, match="a sound file did not load: model_file everything"):
        gguf_headers.run(2, seed=1, load_name=f"{HERE}:refuse")
