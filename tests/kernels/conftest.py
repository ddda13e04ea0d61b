"""Reports of kernels compiled for older CPUs, made beside the other tests.

Compiling for another CPU takes a minute of one core, and most tests leave one idle.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
_POLITE = 10
"""Niceness of what runs beside the tests."""


class OlderCpus:
    """Runs ``older_cpu`` in processes that compile for other CPUs, one after the other."""

    def __init__(self, targets: list[tuple[str, str]]) -> None:
        self._pool = ThreadPoolExecutor(1)
        self._running: subprocess.Popen[str] | None = None
        self._reports: dict[tuple[str, str], Future[dict[str, Any]]] = {
            target: self._pool.submit(self._report, *target) for target in targets
        }

    def report(self, name: str, features: str = "") -> dict[str, Any]:
        """What the kernels for a CPU computed."""
        return self._reports[name, features].result()

    def close(self) -> None:
        """End what nobody waits for any more."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._running is not None:
            self._running.kill()
        self._pool.shutdown()

    def _report(self, name: str, features: str) -> dict[str, Any]:
        self._running = subprocess.Popen(
            [sys.executable, "-m", "tests.kernels.older_cpu"],
            env=os.environ | {"NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, self._running.pid, _POLITE)
        printed, complaints = self._running.communicate()
        assert self._running.returncode == 0, complaints
        return json.loads(printed)


_OLDER = pytest.StashKey[OlderCpus]()
TARGETS = [("haswell", ""), ("nehalem", ""), ("nehalem", "+ssse3")]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start the reports, if a test of this run wants them."""
    if not session.config.option.collectonly and any(
        "older_cpu" in getattr(i, "fixturenames", ()) for i in session.items
    ):
        session.config.stash[_OLDER] = OlderCpus(TARGETS)


def pytest_unconfigure(config: pytest.Config) -> None:
    if _OLDER in config.stash:
        config.stash[_OLDER].close()


@pytest.fixture(scope="session")
def older_cpu(pytestconfig: pytest.Config) -> Callable[..., dict[str, Any]]:
    """``older_cpu(name, features)``: the report of a CPU of ``TARGETS``."""
    return pytestconfig.stash[_OLDER].report
