"""Damaged GGUF files: every one opens or is refused with a typed error that names the field, fast and in little memory.

By hand: ``python -m tests.fuzz.gguf_headers --cases 100000 --seed 1``; one case again: ``--first N --cases 1``; through
the whole loader: ``--load module:function``, a function that takes the path of a file.
The cases run in a child process (on Linux only: it asks /proc for its memory), which is killed and replaced when one of
them takes too long.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import random
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path

from engine.errors import EngineError, ModelFileError
from engine.gguf import open_gguf
from engine.gguf.reader import READER_BYTES
from tests.fuzz import gguf_build, gguf_mutate

Load = Callable[[Path], None]

TINY = Path(__file__).parents[1] / "data" / "tiny"
SECONDS = 2.0
START_SECONDS = 120.0
"""For the child to start and import; also the wall against a child that cannot."""


@dataclass
class Outcome:
    """What a run found: how many cases ended how, and a line for each that ended badly."""

    endings: Counter[str] = field(default_factory=Counter)
    fields: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0
    memory: int = 0


def read_everything(path: Path) -> None:
    """The reader stage: open the file, decode all metadata, touch both ends of each tensor."""
    with open_gguf(path) as file:
        for key in file.metadata:
            assert file.metadata[key] is not None
        for tensor in file.tensors.values():
            assert tensor.data.size > 0
            assert 0 <= int(tensor.data[0]) + int(tensor.data[-1]) <= 510


def sources() -> list[gguf_build.Spec]:
    """The sound files that are damaged: small ones made here, then the tiny models of the test data.

    The last one is a model that every loader can load.
    """
    made = [gguf_build.small(), gguf_build.small(n_tokens=300)]
    older = gguf_build.small()
    older.version = 2
    return [*made, older, *(gguf_build.parse(path.read_bytes()) for path in sorted(TINY.glob("*.gguf")))]


def damaged_file(specs: list[gguf_build.Spec], seed: int, case: int) -> tuple[str, bytes]:
    """The name of the mutation and the bytes of case number ``case``."""
    rng = random.Random(f"{seed}:{case}")
    mutation = rng.choice(gguf_mutate.MUTATIONS)
    return mutation.__name__, mutation(rng.choice(specs).copy(), rng)


def run_case(path: Path, load: Load) -> tuple[str, str]:
    """Load a damaged file; returns how it ended ("opened", an error's code, or "bad") and the field or the trouble."""
    try:
        load(path)
    except ModelFileError as error:
        sound = bool(error.field) and str(error).endswith(".") and "\n" not in str(error)
        return (error.code, error.field) if sound else ("bad", f"no field or no sentence: {error!r}")
    except EngineError as error:
        return error.code, ""
    except Exception:
        return "bad", traceback.format_exc(limit=-3)
    return "opened", ""


def _child(connection: Connection, seed: int, first: int, stop: int, load_name: str) -> None:
    """Run cases and report each: (case, mutation, size of the file, and what ``measured`` gives)."""
    load = find_load(load_name)
    specs = sources()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "damaged.gguf"
        path.write_bytes(specs[-1].bytes())
        # The first load imports and compiles what it needs; only then does measuring begin.
        connection.send(run_case(path, load))
        for case in range(first, stop):
            mutation, blob = damaged_file(specs, seed, case)
            path.write_bytes(blob)
            connection.send((case, mutation, len(blob), *measured(path, load)))
    connection.send(None)


def measured(path: Path, load: Load) -> tuple[str, str, float, int]:
    """Run a case; returns its ending, the detail, seconds, and by how many bytes the process grew at its largest."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # forgets the largest size so far
    before = _largest_size()
    began = time.perf_counter()
    ending, detail = run_case(path, load)
    seconds = time.perf_counter() - began
    return ending, detail, seconds, _largest_size() - before


def _largest_size() -> int:
    """The largest resident size, in bytes, since it was last forgotten."""
    status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def find_load(name: str) -> Load:
    """The function that ``module:function`` names."""
    module, _, function = name.partition(":")
    found: Load = getattr(importlib.import_module(module), function)
    return found


def run(
    cases: int,
    seed: int,
    *,
    first: int = 0,
    load_name: str = "tests.fuzz.gguf_headers:read_everything",
    seconds: float = SECONDS,
    memory: int = READER_BYTES,
) -> Outcome:
    """Run ``cases`` cases from number ``first`` on; a case may take ``seconds`` and ``memory`` bytes plus its size."""
    outcome = Outcome()
    context = multiprocessing.get_context("spawn")
    case, stop = first, first + cases
    while case < stop:
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_child, args=(theirs, seed, case, stop, load_name), daemon=True)
        child.start()
        theirs.close()
        try:
            case = _collect(ours, case, stop, outcome, seconds, memory)
        finally:
            child.kill()
            child.join()
            ours.close()
    return outcome


def _collect(ours: Connection, case: int, stop: int, outcome: Outcome, seconds: float, memory: int) -> int:
    """Take a child's reports until it is done, dies or hangs; returns the case to go on with."""
    if not ours.poll(START_SECONDS):
        raise RuntimeError("the child process did not start")
    ending, detail = ours.recv()
    if ending != "opened":
        raise RuntimeError(f"a sound file did not load: {ending} {detail}")
    while True:
        try:
            # The margin is for writing the file and for a machine that does something else meanwhile.
            if not ours.poll(seconds * 5):
                outcome.failures.append(f"case {case}: still running after {seconds * 5:.0f} s")
                return case + 1
            report = ours.recv()
        except EOFError:
            outcome.failures.append(f"case {case}: the process died")
            return case + 1
        if report is None:
            return stop
        case = _note(report, outcome, seconds, memory) + 1


def _note(report: tuple[int, str, int, str, str, float, int], outcome: Outcome, seconds: float, memory: int) -> int:
    case, mutation, size, ending, detail, took, growth = report
    outcome.endings[f"{mutation}: {ending}"] += 1
    outcome.slowest = max(outcome.slowest, took)
    outcome.memory = max(outcome.memory, growth)
    if ending == "model_file":
        outcome.fields[detail] += 1
    if ending == "bad":
        outcome.failures.append(f"case {case} ({mutation}): {detail}")
    if took > seconds:
        outcome.failures.append(f"case {case} ({mutation}): took {took:.1f} s")
    if growth > memory + size:
        outcome.failures.append(f"case {case} ({mutation}): needed {growth / 1e6:.0f} MB for a file of {size} bytes")
    return case


def main() -> int:
    """Run from the command line; exit code 1 if a case ended badly."""
    parser = argparse.ArgumentParser(description="damage GGUF headers and open them")
    parser.add_argument("--cases", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--load", default="tests.fuzz.gguf_headers:read_everything", metavar="MODULE:FUNCTION")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="what a case may take")
    parser.add_argument("--memory", type=int, default=READER_BYTES, help="bytes a case may take beyond its file")
    options = parser.parse_args()
    outcome = run(
        options.cases,
        options.seed,
        first=options.first,
        load_name=options.load,
        seconds=options.seconds,
        memory=options.memory,
    )
    for name, count in sorted(outcome.endings.items()):
        print(f"{count:8} {name}")
    print(
        f"{len(outcome.fields)} fields named; slowest {outcome.slowest:.3f} s; "
        f"most memory for a case {outcome.memory / 1e6:.1f} MB"
    )
    for line in outcome.failures[:20]:
        print(line)
    print(f"{len(outcome.failures)} of {options.cases} cases ended badly")
    return 1 if outcome.failures else 0


if __name__ == "__main__":
    sys.exit(main())
