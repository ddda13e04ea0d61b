"""Known models, folders, and from a typed name to a file; the module's own command line."""

from __future__ import annotations

import hashlib
import io
import signal
import sys
from pathlib import Path

import platformdirs
import pytest

import resources
from engine.catalog import (
    cache_dir,
    data_dir,
    default_model,
    fetch,
    find,
    known_model,
    known_models,
    models_dir,
    name_of,
    resolve,
)
from engine.catalog.__main__ import ProgressLine, main
from engine.errors import DownloadError, ModelFileError

DEFAULT = "smollm2-135m-instruct"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder with a models folder in it; no pip can run."""
    monkeypatch.setenv("KVSCOPE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(sys, "executable", "/bin/false")
    (tmp_path / "models").mkdir()
    return tmp_path


def put(cache: Path, identifier: str, size: int | None = None) -> Path:
    """A stand-in of the right size (a sparse file) for a known model."""
    model = known_model(identifier)
    path = cache / "models" / model.file
    with path.open("wb") as file:
        file.truncate(model.bytes if size is None else size)
    return path


def test_the_catalogue() -> None:
    models = {model.id: model for model in known_models()}
    assert list(models) == [DEFAULT, "qwen2.5-coder-0.5b-instruct", "gemma-3-270m"]
    assert default_model() is models[DEFAULT] is known_model(DEFAULT)
    smol, qwen, gemma = models.values()
    assert (smol.bytes, smol.licence, smol.architecture, smol.chat) == (98_362_432, "Apache-2.0", "llama", True)
    assert (qwen.bytes, qwen.architecture, len(qwen.wheels)) == (491_400_064, "qwen2", 6)
    assert (gemma.bytes, gemma.architecture, gemma.chat, len(gemma.wheels)) == (253_113_024, "gemma3", False, 4)
    assert smol.download_bytes == smol.wheels[0].download_bytes > 90_000_000
    assert all(len(model.sha256) == 64 and model.origin_page.startswith("https://") for model in models.values())
    with pytest.raises(DownloadError, match="no known model “nonesuch”; known are smollm2"):
        known_model("nonesuch")


def test_the_default_model_is_the_file_that_the_catalogue_means(smollm2_path: Path) -> None:
    with smollm2_path.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == default_model().sha256


def test_folders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("KVSCOPE_CACHE_DIR", "KVSCOPE_DATA_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert cache_dir() == Path(platformdirs.user_cache_dir("kvscope", appauthor=False))
    assert data_dir() == Path(platformdirs.user_data_dir("kvscope", appauthor=False))
    assert models_dir() == cache_dir() / "models"
    monkeypatch.setenv("KVSCOPE_CACHE_DIR", str(tmp_path / "c"))
    monkeypatch.setenv("KVSCOPE_DATA_DIR", "~/d")
    assert models_dir() == tmp_path / "c" / "models"
    assert data_dir() == Path.home() / "d"
    assert not (tmp_path / "c").exists()
    monkeypatch.setenv("KVSCOPE_DATA_DIR", " ")
    assert data_dir() == Path(platformdirs.user_data_dir("kvscope", appauthor=False))


def test_find_and_resolve_an_id(cache: Path) -> None:
    assert find(DEFAULT) is None
    with pytest.raises(DownloadError, match=f"fetch {DEFAULT}` downloads it"):
        resolve(DEFAULT, fetch=False)
    put(cache, DEFAULT, size=1000)
    assert find(DEFAULT) is None
    path = put(cache, DEFAULT)
    assert find(DEFAULT) == find(default_model()) == resolve(DEFAULT) == resolve(DEFAULT, fetch=False) == path
    assert fetch(DEFAULT) == path


def test_resolve_fetches_what_is_not_here(cache: Path) -> None:
    with pytest.raises(DownloadError, match="could not be downloaded"):
        resolve(DEFAULT)
    assert list((cache / "models").iterdir()) == []


def test_a_packaged_build_carries_its_model(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resources, "ROOT", tmp_path / "bundle")
    carried = tmp_path / "bundle" / "models" / default_model().file
    carried.parent.mkdir(parents=True)
    put(cache, DEFAULT).rename(carried)
    assert resolve(DEFAULT) == carried


def test_resolve_a_path(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = tmp_path / "own.gguf"
    own.write_bytes(b"GGUF")
    assert resolve(own) == resolve(str(own)) == own
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve("~/own.gguf") == own
    with pytest.raises(ModelFileError, match="no file other.gguf and no known model") as caught:
        resolve("other.gguf")
    assert caught.value.field == "path"


def test_command_line(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert main(["list"]) == 0
    assert f"{DEFAULT}  SmolLM2 135M Instruct, Apache-2.0, 93 MB to fetch" in capsys.readouterr().out
    assert main(["path"]) == 1
    assert main(["fetch", DEFAULT]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "could not be downloaded" in captured.err.splitlines()[-1]
    path = put(cache, DEFAULT)
    for command in (["path"], ["fetch"], ["fetch", DEFAULT]):
        assert main(command) == 0
        assert capsys.readouterr().out == f"{path}\n"
    assert main(["fetch", "nonesuch"]) == 1
    assert "no known model" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(SystemExit) as usage:
        main(["dance"])
    assert usage.value.code == 2


class Terminal(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_progress_lines() -> None:
    plain, screen = io.StringIO(), Terminal()
    for stream in (plain, screen):
        line = ProgressLine("Tiny", stream)
        for done in range(101):
            line(done * 1_000_000, 100_000_000)
        line.close()
    assert len(plain.getvalue().splitlines()) == 11
    assert plain.getvalue().splitlines()[-1] == "Tiny: 100 of 100 MB (100 %)"
    assert screen.getvalue().startswith("\rTiny: 0 of 100 MB (0 %)")
    assert screen.getvalue().endswith("\n")


def test_a_known_model_has_the_name_that_people_call_it(cache: Path, tmp_path: Path) -> None:
    path = put(cache, DEFAULT)
    assert name_of(path) == known_model(DEFAULT).name
    assert name_of(put(cache, DEFAULT, size=10)) is None
    other = tmp_path / "other.gguf"
    other.write_bytes(b"GGUF")
    assert name_of(other) is None
    assert name_of(tmp_path / "nothing.gguf") is None
