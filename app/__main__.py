"""The desktop application: ``python -m app [MODEL]``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtWidgets import QApplication, QMessageBox

from app.single_instance import Claim, SingleInstance
from app.text import tr
from engine.catalog import data_dir


def main(argv: Sequence[str] | None = None) -> int:
    """Run the window, or hand over to the one that runs already.

    Returns the exit code when there was no window; one that was closed ends the process.
    """
    arguments = _arguments(sys.argv[1:] if argv is None else list(argv))
    if arguments.self_test:
        from app.self_test import main as self_test

        return self_test()
    app = QApplication(sys.argv[:1])
    app.setApplicationName("kvscope")
    app.setApplicationDisplayName("KVScope")
    app.setDesktopFileName("kvscope")
    single = SingleInstance(data_dir())
    if (claim := single.claim(_absolute(arguments.model))) != "first":
        return _say_running(claim)
    from app.application import run  # the window takes a moment to import: a second start does without it

    return run(app, single, arguments.model)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="kvscope", description=tr("Chat with local models and watch their KV cache."))
    parser.add_argument("model", nargs="?", help=tr("a GGUF file or a known model; without it the default model"))
    parser.add_argument("--self-test", action="store_true", help=tr("check this installation and say how it went"))
    return parser.parse_args(argv)


def _absolute(model: str | None) -> str:
    """The model argument as another process understands it."""
    return str(Path(model).absolute()) if model and Path(model).exists() else model or ""


def _say_running(claim: Claim) -> int:
    """Another start has the chats of this person open."""
    if claim == "handed_over":
        return 0
    sentence = tr("KVScope is running already, but does not answer. End it first.")
    if sys.stderr is not None:
        sys.stderr.write(sentence + "\n")
    QMessageBox.critical(None, "KVScope", sentence)
    return 1


if __name__ == "__main__":
    sys.exit(main())
