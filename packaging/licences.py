"""The licences of everything a build carries: Python packages, Python itself, system libraries, fonts, the model."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_LICENCE_FILE = re.compile(r"(^|/)(licen[cs]e|copying|notice|authors)", re.IGNORECASE)

# Wheels that come without their licence's text, and where that text lies in this repository.
_TEXTS = {
    "pyside6-essentials": [
        "packaging/licences/LGPL-3.0.txt",
        "packaging/licences/GPL-3.0.txt",
        "packaging/licences/ICU.txt",
    ],
    "shiboken6": ["packaging/licences/LGPL-3.0.txt", "packaging/licences/GPL-3.0.txt"],
    "tokenizers": ["LICENSE"],
}


def package_licences(name: str) -> dict[str, bytes]:
    """The licence texts of an installed package by file name; raises ValueError if there are none."""
    texts = {}
    for file in metadata.files(name) or []:
        path = Path(str(file.locate()))
        if ".dist-info" in str(file) and _LICENCE_FILE.search(str(file)) and path.is_file():
            texts[path.name] = path.read_bytes()
    for text in _TEXTS.get(name, []):
        texts[Path(text).name] = (ROOT / text).read_bytes()
    if not texts:
        raise ValueError(f"the package {name} comes without a licence text; add one to packaging/licences.py")
    return texts


def is_carried(name: str, modules: set[str]) -> bool:
    """Whether an installed package has a part in a build that carries these top-level ``modules``."""
    files = [Path(str(file)) for file in metadata.files(name) or [] if str(file).endswith(".py")]
    return any(file.parts[0].removesuffix(".py") in modules for file in files)


def python_licence() -> bytes:
    """The licence of the Python that the build carries."""
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for file in (
        Path(sysconfig.get_path("stdlib")) / "LICENSE.txt",
        Path(sys.base_prefix) / "LICENSE.txt",
        Path("/usr/share/doc") / version / "copyright",
    ):
        if file.is_file():
            return file.read_bytes()
    raise ValueError("the licence of this Python was not found; add its place to packaging/licences.py")


def system_licences(libraries: list[Path]) -> dict[str, bytes]:
    """The copyright files of the Debian packages that ``libraries`` belong to, by package; empty on other systems.

    Raises ValueError for a library whose package or copyright file is not found.
    """
    if shutil.which("dpkg-query") is None:
        return {}
    texts: dict[str, bytes] = {}
    for library in libraries:
        command = ["dpkg-query", "--search", f"*/{library.name}"]
        answer = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        packages = {line.split(":")[0] for line in answer.splitlines()}
        files = {name: Path("/usr/share/doc") / name / "copyright" for name in packages}
        found = {name: file.read_bytes() for name, file in files.items() if file.is_file()}
        if not found:
            raise ValueError(f"no licence was found for the library {library.name}; see packaging/licences.py")
        texts |= found
    return texts


def collect(packages: list[str], libraries: list[Path], target: Path) -> int:
    """Write all licences below ``target``, one folder a component, and an overview; returns how many components."""
    components = {f"{name}-{metadata.version(name)}": package_licences(name) for name in packages}
    components[f"Python-{sys.version.split()[0]}"] = {"LICENSE.txt": python_licence()}
    components |= {f"system-{name}": {"copyright": text} for name, text in system_licences(libraries).items()}
    for family in ("Inter", "JetBrainsMono"):
        licence = ROOT / "resources" / "fonts" / f"LICENSE-{family}.txt"
        components[f"font-{family}"] = {licence.name: licence.read_bytes()}
    components["model-SmolLM2-135M-Instruct"] = {"LICENSE": (ROOT / "LICENSE").read_bytes()}
    shutil.rmtree(target, ignore_errors=True)
    for component, texts in components.items():
        folder = target / component
        folder.mkdir(parents=True)
        for name, text in texts.items():
            (folder / name).write_bytes(text)
    overview = "KVScope is licensed under the Apache License 2.0. It carries these components, each under the licence\n"
    overview += "in its folder here:\n\n" + "".join(f"  {name}\n" for name in sorted(components))
    (target / "README.txt").write_text(overview, encoding="utf-8")
    shutil.copy(ROOT / "LICENSE", target / "LICENSE")
    return len(components)
