"""The headless commands: info, tokenize, logits, score, generate, demo, bench, serve.

JSON goes to stdout alone, everything else to stderr. Exit codes: 0 fine, 2 usage, 1 with one plain sentence on stderr
for everything a person can fix.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from engine.cli import bench, demo_prefix, demo_serving, generate, look, serve
from engine.errors import EngineError


def build_parser() -> argparse.ArgumentParser:
    """The whole command line; each command's module adds its own options."""
    parser = argparse.ArgumentParser(prog="python -m engine", description="KVScope's engine without its window.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    look.add_commands(commands)
    generate.add_command(commands)
    demos = commands.add_parser("demo", help="what the engine does, with real numbers")
    demo_commands = demos.add_subparsers(dest="demo", required=True, metavar="DEMO")
    demo_serving.add_command(demo_commands)
    demo_prefix.add_command(demo_commands)
    bench.add_command(commands)
    serve.add_command(commands)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    arguments = build_parser().parse_args(argv)
    try:
        arguments.run(arguments)
    except EngineError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stderr.close()
        return 1
    except OSError as error:
        print(
            f"{error.filename or 'A file'}: {error.strerror or error}. Check the path and try again.", file=sys.stderr
        )
        return 1
    except MemoryError:
        print("There is not enough memory for this; ask for less or close other programs.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("Stopped.", file=sys.stderr)
        return 1
    return 0
