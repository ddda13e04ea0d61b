"""What the operating system must provide: Qt's libraries, Python's venv module, a display, programs for some tests.

All of it is looked for before Qt is started, because Qt itself ends the process when something is missing.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys

from requirements.problem import Problem, say

# What Qt's core, window and xcb plug-in load, with the Debian package of each; found with ldd in a bare system.
LIBRARIES = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libX11-xcb.so.1": "libx11-xcb1",
    "libX11.so.6": "libx11-6",
    "libbrotlidec.so.1": "libbrotli1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libfontconfig.so.1": "libfontconfig1",
    "libfreetype.so.6": "libfreetype6",
    "libglib-2.0.so.0": "libglib2.0-0",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-glx.so.0": "libxcb-glx0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-render.so.0": "libxcb-render0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-shm.so.0": "libxcb-shm0",
    "libxcb-sync.so.1": "libxcb-sync1",
    "libxcb-util.so.1": "libxcb-util1",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxcb.so.1": "libxcb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxkbcommon.so.0": "libxkbcommon0",
}
# Programs that the tests marked xvfb run.
TEST_PROGRAMS = {"Xvfb": "xvfb", "openbox": "openbox", "xauth": "xauth", "xdotool": "xdotool"}


def missing_libraries() -> dict[str, str]:
    """The libraries Qt needs that this system cannot load, with their Debian packages; empty off Linux."""
    missing: dict[str, str] = {}
    if not sys.platform.startswith("linux"):
        return missing
    for library, package in LIBRARIES.items():
        try:
            ctypes.CDLL(library)
        except OSError:
            missing[library] = package
    return missing


def apt_command(packages: list[str]) -> str:
    """The command with which a person installs ``packages``."""
    return f"sudo apt-get install -y {' '.join(packages)}"


def apt_install(packages: list[str], why: str) -> bool:
    """Install Debian packages, saying so, if this is root on a Debian-like system; False: it is not, nothing done.

    Raises Problem if apt-get fails.
    """
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return False
    say(f"Installing system packages with apt-get ({why}): {' '.join(packages)}")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *packages]
    for command in (["apt-get", "update", "-qq"], install):
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        # An update may fail for a source that has nothing to do with us; only the installation counts.
        if done.returncode != 0 and command is install:
            last = (done.stdout.strip().splitlines() or ["no reason given"])[-1]
            raise Problem(f"apt-get could not install the system packages ({last}): run {apt_command(packages)}")
    return True


def ensure_libraries() -> None:
    """Install the system libraries that Qt needs, or raise Problem with the exact command."""
    missing = missing_libraries()
    packages = sorted(set(missing.values()))
    if missing and apt_install(packages, "the window needs them"):
        missing = missing_libraries()
    if not missing:
        return
    if shutil.which("apt-get"):
        raise Problem(f"The window needs system libraries that are missing here: run {apt_command(packages)}")
    raise Problem(f"The window needs system libraries that are missing here: install {', '.join(sorted(missing))}.")


def ensure_test_programs() -> None:
    """Install the programs of the tests marked xvfb, or say how to; without them those tests skip."""
    if not sys.platform.startswith("linux"):
        return
    missing = sorted(package for name, package in TEST_PROGRAMS.items() if shutil.which(name) is None)
    if missing and not apt_install(missing, "some window tests use them"):
        say(f"Some window tests will be skipped; to run them too: {apt_command(missing)}")


def ensure_venv_module() -> None:
    """See to Python's own venv and ensurepip, which Debian packs apart; raises Problem naming the package."""

    def there() -> bool:
        importlib.invalidate_caches()
        return all(importlib.util.find_spec(name) is not None for name in ("venv", "ensurepip"))

    if there() or (sys.base_prefix == "/usr" and apt_install(["python3-venv"], "Python's venv module") and there()):
        return
    if shutil.which("apt-get"):
        raise Problem(f"Python's venv module is missing: run {apt_command(['python3-venv'])}, then start again.")
    raise Problem("Python's venv module is missing: install it (it may be a package of its own), then start again.")


def answers(display: str) -> bool:
    """Whether an X server listens at ``display`` (such as ``:0`` or ``localhost:10.0``)."""
    parts = re.fullmatch(r"(?:\w+/)?([^:/]*)(?:/unix)?:(\d+)(?:\.\d+)?", display)
    if parts is None:
        return os.path.exists(display)
    host, number = parts[1], int(parts[2])
    if host not in ("", "unix"):
        try:
            socket.create_connection((host, 6000 + number), timeout=5).close()
        except OSError:
            return False
        return True
    for address in (f"/tmp/.X11-unix/X{number}", f"\0/tmp/.X11-unix/X{number}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client, contextlib.suppress(OSError):
            client.connect(address)
            return True
    return False


def no_display() -> str:
    """Why no window can be shown here, or an empty text."""
    if not sys.platform.startswith("linux") or os.environ.get("QT_QPA_PLATFORM", "") not in ("", "xcb", "wayland"):
        return ""
    wayland = os.environ.get("WAYLAND_DISPLAY", "")
    if wayland and os.path.exists(os.path.join(os.environ.get("XDG_RUNTIME_DIR", ""), wayland)):
        return ""
    display = os.environ.get("DISPLAY", "")
    if not display:
        return "There is no display here"
    return "" if answers(display) else f"The display {display} does not answer"
