"""Build the desktop application: ``python3 packaging/build.py``.

Makes ``build/venv`` with the locked packages and PyInstaller, fetches the default model, collects the licences, and
leaves in ``dist/`` the folder ``kvscope`` and its archive, on Linux also a Debian package. The build then tests itself.
Standard library only; ``--no-archives`` stops after the folder, ``--no-self-test`` leaves the test out.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BUILD = ROOT / "build"
DIST = ROOT / "dist"
VENV = BUILD / "venv"
PYTHON = VENV / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
FOLDER = DIST / "kvscope"
# Stripping every file would break numpy's OpenBLAS; these have symbols to spare.
STRIPPED = ("libpython*", "lib-dynload/*.so", "libllvmlite*", "tokenizers*.so", "_yaml*.so")


def say(text: str) -> None:
    """Print one line at once."""
    print(text, flush=True)


def run(*command: object, **env: str) -> str:
    """Run a command of the build and return what it printed; its failure is the build's."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=ROOT, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{done.stdout}\nThe build failed in: {' '.join(words)}")
    return done.stdout


def make_environment() -> None:
    """``build/venv`` with the packages of requirements/build.txt, made anew when the lock changed."""
    lock = b"".join((ROOT / "requirements" / name).read_bytes() for name in ("app.txt", "build.txt"))
    stamp = VENV / "kvscope-stamp"
    digest = hashlib.sha256(lock).hexdigest()
    if stamp.exists() and stamp.read_text(encoding="utf-8") == digest:
        return
    say("Making build/venv")
    shutil.rmtree(VENV, ignore_errors=True)
    run(sys.executable, "-m", "venv", VENV)
    run(PYTHON, "-m", "pip", "install", "-q", "--no-deps", "-r", ROOT / "requirements" / "build.txt")
    stamp.write_text(digest, encoding="utf-8")


def make_icon() -> str:
    """The icon file for this system, made in ``build``; empty on Linux, where the menu entry names the icons."""
    from icons import icns, ico, png_files

    maker = {"win32": ico, "darwin": icns}.get(sys.platform)
    if maker is None:
        return ""
    target = BUILD / f"kvscope.{maker.__name__}"
    target.write_bytes(maker(png_files(ROOT / "resources" / "icons" / "app")))
    return str(target)


def freeze(version: str) -> None:
    """Run PyInstaller, then strip what may be stripped."""
    model = run(PYTHON, "-m", "engine.catalog", "fetch", "smollm2-135m-instruct").strip().splitlines()[-1]
    settings = {"KVSCOPE_BUILD_MODEL": model, "KVSCOPE_BUILD_ICON": make_icon(), "KVSCOPE_BUILD_VERSION": version}
    say("Freezing")
    run(
        PYTHON, "-m", "PyInstaller", "--noconfirm", "--log-level", "WARN", "--distpath", DIST,
        "--workpath", BUILD / "pyinstaller", HERE / "kvscope.spec", **settings,
    )  # fmt: skip
    if sys.platform.startswith("linux") and shutil.which("strip"):
        for pattern in STRIPPED:
            for file in FOLDER.rglob(pattern):
                if not file.is_symlink():
                    run("strip", "--strip-unneeded", file)


def add_documents() -> None:
    """The licences of everything carried, collected in the environment that has the packages."""
    found = (FOLDER / "_internal").glob("lib*.so*")
    libraries = [str(file) for file in found if not file.is_symlink() and not file.name.startswith("libpython")]
    say(run(PYTHON, __file__, "--collect-licences", *libraries).strip())
    shutil.copy(ROOT / "LICENSE", FOLDER)


def collect_licences(libraries: list[str]) -> None:
    """Inside ``build/venv``: write the licences of all packages in the build and of ``libraries`` into the folder."""
    from licences import collect, is_carried

    _, frozen = ast.literal_eval((BUILD / "pyinstaller/kvscope/PYZ-00.toc").read_text(encoding="utf-8"))
    modules = {name.split(".")[0] for name, _, _ in frozen}
    lines = (ROOT / "requirements" / "app.txt").read_text(encoding="utf-8").splitlines()
    packages = [line.split("==")[0] for line in lines if "==" in line and (";" not in line or sys.platform in line)]
    carried = [name for name in packages if is_carried(name, modules)]
    count = collect([*carried, "pyinstaller"], [Path(name) for name in libraries], FOLDER / "licences")
    say(f"Licences of {count} components")


def self_test() -> None:
    """Start the built executable as a new user would have it, with nothing cached."""
    with tempfile.TemporaryDirectory() as home:
        executable = FOLDER / ("kvscope.exe" if os.name == "nt" else "kvscope")
        settings = {"KVSCOPE_CACHE_DIR": f"{home}/cache", "KVSCOPE_DATA_DIR": f"{home}/data"}
        say(run(executable, "--self-test", **settings).strip())


def megabytes(path: Path) -> str:
    """The size of a file or folder for people."""
    files = [path] if path.is_file() else [file for file in path.rglob("*") if not file.is_symlink()]
    return f"{sum(file.stat().st_size for file in files if file.is_file()) / 1e6:,.0f} MB"


def make_archives(version: str) -> list[Path]:
    """The archive people download, and on Linux the Debian package."""
    say("Packing")
    machine = os.uname().machine if os.name == "posix" else "x86_64"
    name = f"kvscope-{version}-{sys.platform}-{machine}"
    if sys.platform == "darwin":
        return [zip_bundle(DIST / name)]
    if not sys.platform.startswith("linux"):
        return [Path(shutil.make_archive(str(DIST / name), "zip", DIST, FOLDER.name))]
    from debian import build_deb

    archive = DIST / f"{name}.tar.xz"
    run("tar", "-C", DIST, "--owner=0", "--group=0", "-cJf", archive, FOLDER.name, XZ_OPT="-T0 -3")
    made = [archive]
    if shutil.which("dpkg-deb"):
        made.append(build_deb(FOLDER, BUILD / "deb", version, DIST))
    return made


def zip_bundle(folder: Path) -> Path:
    """On macOS: the application with the licences beside it, zipped by the tool that keeps links and signatures."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DIST / "KVScope.app", folder / "KVScope.app", symlinks=True)
    shutil.copytree(FOLDER / "licences", folder / "licences")
    archive = folder.with_name(f"{folder.name}.zip")
    run("ditto", "-c", "-k", "--keepParent", folder, archive)
    return archive


def main() -> int:
    """Carry out the command line."""
    parser = argparse.ArgumentParser(description="Build the desktop application.")
    parser.add_argument("--no-archives", action="store_true", help="stop after the folder dist/kvscope")
    parser.add_argument("--no-self-test", action="store_true", help="do not start what was built")
    parser.add_argument("--collect-licences", nargs="*", metavar="LIBRARY", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.collect_licences is not None:
        collect_licences(arguments.collect_licences)
        return 0
    version = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    make_environment()
    freeze(version)
    add_documents()
    say(f"{FOLDER.relative_to(ROOT)}: {megabytes(FOLDER)}")
    if not arguments.no_self_test:
        self_test()
    for archive in [] if arguments.no_archives else make_archives(version):
        say(f"{archive.relative_to(ROOT)}: {megabytes(archive)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
