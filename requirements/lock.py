"""Write the lock: app.txt and dev.txt, every package of the closure pinned to the version installed here.

Run it with the project's own environment after a version in pyproject.toml changed and was installed::

    .venv/bin/python requirements/lock.py

The packages named in pyproject.toml are the roots; what they need is read from the installed metadata, for every
system and Python that the project supports. A package that only some systems need carries a marker.
"""

from __future__ import annotations

import sys
import tomllib
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

HERE = Path(__file__).resolve().parent
SYSTEMS = {"linux": ("posix", "Linux"), "darwin": ("posix", "Darwin"), "win32": ("nt", "Windows")}
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
INSTALLERS = {"pip", "setuptools"}
"""Every environment has its own, and one that replaced itself while it installs the others would be in its own way."""


def environments(system: str) -> list[dict[str, str]]:
    """The marker environments of one ``sys.platform``, one for each supported Python."""
    os_name, platform_system = SYSTEMS[system]
    machine = "AMD64" if system == "win32" else "x86_64"
    common = {
        "sys_platform": system,
        "os_name": os_name,
        "platform_system": platform_system,
        "platform_machine": machine,
        "platform_python_implementation": "CPython",
        "implementation_name": "cpython",
    }
    return [{**common, "python_version": v, "python_full_version": f"{v}.0"} for v in PYTHONS]


def applies(requirement: Requirement, system: str, extras: frozenset[str]) -> bool:
    """Whether any supported Python on this system needs ``requirement``."""
    marker = requirement.marker
    if marker is None:
        return True
    return any(marker.evaluate({**env, "extra": e}) for env in environments(system) for e in (extras or {""}))


def closure(roots: list[str], system: str) -> set[str]:
    """The canonical names of ``roots`` and of everything they need on one system."""
    found: set[tuple[str, frozenset[str]]] = set()
    waiting = [Requirement(root) for root in roots]
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), frozenset(requirement.extras))
        if key in found:
            continue
        found.add(key)
        needs = [Requirement(text) for text in metadata.requires(requirement.name) or []]
        waiting += [need for need in needs if applies(need, system, key[1])]
    return {name for name, _ in found}


def pins(roots: list[str], without: set[str] | None = None) -> tuple[list[str], set[str]]:
    """The lock's lines for ``roots``, leaving out ``without``, and the names they pin."""
    by_system = {system: closure(roots, system) for system in SYSTEMS}
    lines = []
    names = set().union(*by_system.values()) - (without or set()) - INSTALLERS
    for name in sorted(names):
        systems = [system for system, needed in by_system.items() if name in needed]
        marker = "" if len(systems) == len(SYSTEMS) else " ; " + " or ".join(f'sys_platform == "{s}"' for s in systems)
        lines.append(f"{name}=={metadata.version(name)}{marker}\n")
    return lines, names


def main() -> int:
    """Write both files; 1 with one sentence if a needed package is not installed."""
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        app, app_names = pins(project["dependencies"])
        dev, _ = pins(project["optional-dependencies"]["dev"], without=app_names)
    except metadata.PackageNotFoundError as error:
        print(f"The package {error.name} is not installed here: install it, then lock again.", file=sys.stderr)
        return 1
    note = "# Made by requirements/lock.py from pyproject.toml; do not edit by hand.\n"
    (HERE / "app.txt").write_text(note + "".join(app), encoding="utf-8")
    (HERE / "dev.txt").write_text(note + "-r app.txt\n" + "".join(dev), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
