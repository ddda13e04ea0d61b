"""What a packaged build is made of, without building it: icons, licences, the Debian package's files."""

from __future__ import annotations

import configparser
import shutil
import struct
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtGui import QImage

REPOSITORY = Path(__file__).resolve().parents[2]
PACKAGING = REPOSITORY / "packaging"


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The build's scripts, importable as they are when build.py runs."""
    monkeypatch.syspath_prepend(str(PACKAGING))
    before = set(sys.modules)
    yield
    for name in {"icons", "licences", "debian"} - before:
        sys.modules.pop(name, None)


def test_packaging_does_not_shadow_the_library_of_that_name() -> None:
    assert not (PACKAGING / "__init__.py").exists()


def test_the_windows_icon_holds_every_size_up_to_256() -> None:
    from icons import ico, png_files

    data = ico(png_files(REPOSITORY / "resources/icons/app"))
    reserved, kind, count = struct.unpack_from("<HHH", data)
    assert (reserved, kind) == (0, 1)
    sizes = []
    for number in range(count):
        width, _, _, _, _, bits, length, offset = struct.unpack_from("<BBBBHHII", data, 6 + 16 * number)
        image = QImage.fromData(data[offset : offset + length])
        assert (image.width() % 256, bits) == (width, 32)
        sizes.append(image.width())
    assert sizes == [16, 24, 32, 48, 64, 128, 256]


def test_the_macos_icon_is_a_chain_of_chunks() -> None:
    from icons import icns, png_files

    data = icns(png_files(REPOSITORY / "resources/icons/app"))
    assert (data[:4], struct.unpack(">I", data[4:8])[0]) == (b"icns", len(data))
    kinds, at = [], 8
    while at < len(data):
        kinds.append(data[at : at + 4])
        length = struct.unpack(">I", data[at + 4 : at + 8])[0]
        assert data[at + 8 : at + 12] == b"\x89PNG"
        at += length
    assert kinds == [b"icp4", b"icp5", b"icp6", b"ic07", b"ic08", b"ic09"]


def test_every_locked_package_has_a_licence_text() -> None:
    from licences import package_licences

    lines = (REPOSITORY / "requirements/app.txt").read_text(encoding="utf-8").splitlines()
    names = [line.split("==")[0] for line in lines if "==" in line and ";" not in line]
    assert len(names) > 20
    assert all(package_licences(name) for name in names)


def test_collected_licences_cover_python_fonts_and_the_model(tmp_path: Path) -> None:
    from licences import collect

    assert collect(["jinja2"], [], tmp_path / "licences") == 5
    overview = (tmp_path / "licences/README.txt").read_text(encoding="utf-8")
    for component in ("jinja2-3.1.6", "Python-3", "font-Inter", "font-JetBrainsMono", "model-SmolLM2-135M-Instruct"):
        assert component in overview


def test_only_what_is_in_the_build_counts_as_carried() -> None:
    from licences import is_carried

    assert is_carried("markdown-it-py", {"markdown_it", "numpy"})
    assert not is_carried("markdown-it-py", {"markdown", "numpy"})


@pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="system libraries are looked up in Debian's packages")
def test_a_library_of_unknown_licence_ends_the_build() -> None:
    from licences import system_licences

    with pytest.raises(ValueError, match=r"libnobody\.so\.7"):
        system_licences([Path("libnobody.so.7")])


def test_the_menu_entry_opens_gguf_files() -> None:
    entry = configparser.ConfigParser(interpolation=None)
    entry.read(PACKAGING / "linux/kvscope.desktop", encoding="utf-8")
    desktop = entry["Desktop Entry"]
    assert (desktop["Exec"], desktop["MimeType"], desktop["Icon"]) == ("kvscope %f", "application/x-gguf;", "kvscope")
    space = "{http://www.freedesktop.org/standards/shared-mime-info}"
    kind = ElementTree.parse(PACKAGING / "linux/kvscope.xml").getroot().find(f"{space}mime-type")
    assert kind is not None and kind.get("type") == "application/x-gguf"
    assert [glob.get("pattern") for glob in kind.iter(f"{space}glob")] == ["*.gguf"]
    assert [match.get("value") for match in kind.iter(f"{space}match")] == ["GGUF"]
