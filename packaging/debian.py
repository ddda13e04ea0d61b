"""A Debian package from a one-folder build: /opt/kvscope, a command, a menu entry, icons and the GGUF file type."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
sys.path.insert(0, str(ROOT))

from requirements.system import LIBRARIES  # noqa: E402 - the path above makes it importable from here

# Which Debian package brings a library that a build may need from the system.
PACKAGES = {
    **LIBRARIES,
    "libdrm.so.2": "libdrm2",
    "libgbm.so.1": "libgbm1",
    "libgcc_s.so.1": "libgcc-s1",
    "libstdc++.so.6": "libstdc++6",
    "libwayland-client.so.0": "libwayland-client0",
    "libwayland-cursor.so.0": "libwayland-cursor0",
    "libwayland-egl.so.1": "libwayland-egl1",
    "libz.so.1": "zlib1g",
}
OF_LIBC = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "libresolv.so", "librt.so", "libutil.so", "ld-linux")
CONTROL = """Package: kvscope
Version: {version}
Architecture: {architecture}
Maintainer: The KVScope developers <developers@kvscope.invalid>
Installed-Size: {kilobytes}
Depends: {depends}
Section: utils
Priority: optional
Description: chat with local GGUF models and watch their KV cache
 Several chats stream at once from one engine on your own processor. Beside
 them a live instrument shows every page of KV memory: who holds it, what it
 saved, why a prompt missed, and what a release would free. The model
 SmolLM2-135M-Instruct is included.
"""
COPYRIGHT = """Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: KVScope

Files: *
Copyright: The KVScope developers
License: Apache-2.0
 The full text is in /usr/share/common-licenses/Apache-2.0 on Debian systems.
 The licences of the bundled components are in /opt/kvscope/licences.
"""


def needed_packages(folder: Path) -> list[str]:
    """The Debian packages that the build's files need beyond what it carries; raises ValueError for an unknown one."""
    carried = {file.name for file in folder.rglob("*") if file.is_file()}
    needed: set[str] = set()
    for file in folder.rglob("*"):
        if file.is_file() and not file.is_symlink() and file.open("rb").read(4) == b"\x7fELF":
            shown = subprocess.run(["readelf", "-d", str(file)], capture_output=True, text=True, check=True).stdout
            needed |= {line.split("[")[1].rstrip("]\n") for line in shown.splitlines() if "(NEEDED)" in line}
    packages = {f"libc6 (>= {os.confstr('CS_GNU_LIBC_VERSION').split()[1]})"}  # type: ignore[union-attr]
    for library in needed - carried:
        if library.startswith(OF_LIBC):
            continue
        if library not in PACKAGES:
            raise ValueError(f"the build needs {library}, whose Debian package packaging/debian.py does not know")
        packages.add(PACKAGES[library])
    # Qt opens these by name at run time where they are not linked.
    return sorted(packages | {"libgl1", "libegl1"})


def lay_out(folder: Path, tree: Path, version: str) -> None:
    """Lay the package's files out below ``tree``."""
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(folder, tree / "opt/kvscope", symlinks=True)
    share = tree / "usr/share"
    (tree / "usr/bin").mkdir(parents=True)
    (tree / "usr/bin/kvscope").symlink_to("/opt/kvscope/kvscope")
    copies = {
        HERE / "linux/kvscope.desktop": share / "applications/kvscope.desktop",
        HERE / "linux/kvscope.xml": share / "mime/packages/kvscope.xml",
        ROOT / "resources/icons/app/kvscope.svg": share / "icons/hicolor/scalable/apps/kvscope.svg",
    }
    for image in (ROOT / "resources/icons/app").glob("kvscope-*.png"):
        size = image.stem.split("-")[1]
        copies[image] = share / f"icons/hicolor/{size}x{size}/apps/kvscope.png"
    for source, target in copies.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    documents = share / "doc/kvscope"
    documents.mkdir(parents=True)
    (documents / "copyright").write_text(COPYRIGHT, encoding="utf-8")
    kilobytes = sum(file.stat().st_size for file in tree.rglob("*") if file.is_file() and not file.is_symlink()) // 1024
    architecture = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
    control = tree / "DEBIAN/control"
    control.parent.mkdir()
    control.write_text(
        CONTROL.format(
            version=version,
            architecture=architecture.strip(),
            kilobytes=kilobytes,
            depends=", ".join(needed_packages(folder)),
        ),
        encoding="utf-8",
    )
    for path in tree.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)


def build_deb(folder: Path, tree: Path, version: str, target: Path) -> Path:
    """Make the package from the one-folder build ``folder`` and return its file in ``target``."""
    lay_out(folder, tree, version)
    command = ["dpkg-deb", "--root-owner-group", "-Zxz", "-z3", "--build", str(tree), str(target)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return max(target.glob(f"kvscope_{version}_*.deb"), key=lambda file: file.stat().st_mtime)
