"""Start KVScope from a checkout, or test it: ``python3 run.py [MODEL|FILE]`` and ``python3 run.py test``.

Uses the standard library only. It makes ``.venv`` beside itself, installs the pinned packages of ``requirements/``,
fetches the default model and opens the window; a stamp in ``.venv`` lets every later start go straight there. What a
person can put right is one sentence and exit code 1, and nothing half-made is kept.
"""

import sys

if sys.version_info < (3, 11):  # noqa: UP036 - older Pythons come as far as this, so it must parse there
    sys.exit(
        "KVScope needs Python 3.11 or newer, and this is Python "
        + ".".join(str(part) for part in sys.version_info[:2])
        + ": install a newer one and start it with that, for example python3.12 run.py"
    )

import contextlib
import os
import subprocess

from requirements.environment import PYTHON, ensure_environment, read_stamp, write_stamp
from requirements.problem import ROOT, Problem, explain, say
from requirements.system import ensure_libraries, ensure_test_programs, no_display

DEFAULT_MODEL = "smollm2-135m-instruct"
USAGE = """usage: python3 run.py [MODEL|FILE]                   open the window
       python3 run.py test [--long] [pytest args]   format, lint, types, import contracts and tests

MODEL is a catalogue id such as smollm2-135m-instruct (the default), FILE is a GGUF file of your own."""
CHECKS = {
    "format": ["-m", "ruff", "format", "--check", "."],
    "lint": ["-m", "ruff", "check", "."],
    "types": ["-m", "mypy"],
    "import contracts": ["-c", "from importlinter.cli import lint_imports_command as run; run()"],
    "kernels": ["-m", "engine.kernels.warm"],
}


def is_missing_file(argument: str) -> bool:
    """Whether ``argument`` can only be meant as a file (or is an option), and there is no such file."""
    return not os.path.exists(argument) and (
        argument.startswith("-") or os.sep in argument or argument.endswith(".gguf")
    )


def ensure_model(identifier: str) -> None:
    """Fetch a catalogue model, unless an earlier start did and its file still has its size."""
    path, _, size = read_stamp().get(f"model {identifier}", "").rpartition(" ")
    if path and os.path.isfile(path) and str(os.path.getsize(path)) == size:
        return
    command = [str(PYTHON), "-m", "engine.catalog", "fetch", identifier]
    fetched = subprocess.run(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    if fetched.returncode != 0:
        raise SystemExit(1)
    where = (fetched.stdout.strip().splitlines() or [""])[-1]
    if os.path.isfile(where):
        with contextlib.suppress(OSError):  # in a folder that became read-only the next start just asks again
            write_stamp({f"model {identifier}": f"{where} {os.path.getsize(where)}"})


def start(arguments: list[str]) -> int:
    """Open the window on a model, or show the four chats in the terminal where there is no display."""
    if len(arguments) > 1:
        print(USAGE, file=sys.stderr)
        return 2
    model = arguments[0] if arguments else DEFAULT_MODEL
    if is_missing_file(model):
        raise Problem(f"There is no file {model}: give a GGUF file or a catalogue id such as {DEFAULT_MODEL}.")
    is_file = os.path.exists(model)
    model = os.path.abspath(model) if is_file else model
    ensure_environment("app")
    reason = no_display()
    if not reason:
        ensure_libraries()
    if not is_file:
        ensure_model(model)
    if not reason:
        return go_on_as(["-m", "app", *([model] if arguments else [])])
    say(
        f"{reason}, so the window cannot open: `xvfb-run python3 run.py` makes a virtual display and `ssh -X` brings"
        " yours along; here are four chats in the terminal instead."
    )
    return go_on_as(["-m", "engine", "demo", "serving", model])


def go_on_as(arguments: list[str]) -> int:
    """Become the environment's Python with ``arguments``; returns only where a process cannot be replaced."""
    os.chdir(ROOT)
    if os.name != "nt":
        sys.stdout.flush()
        os.execv(PYTHON, [str(PYTHON), *arguments])
    return subprocess.call([str(PYTHON), *arguments])


def run_pytest(arguments: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Run the suite, passing on what it prints as it comes; returns its exit code and its closing line."""
    colour = ["--color=yes"] if sys.stdout.isatty() else []
    command = [str(PYTHON), "-m", "pytest", *colour, *arguments]
    end = b""
    with subprocess.Popen(command, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as suite:
        out = suite.stdout
        assert out is not None
        for chunk in iter(lambda: os.read(out.fileno(), 65536), b""):
            sys.stdout.buffer.write(chunk)
            sys.stdout.buffer.flush()
            end = (end + chunk)[-4096:]
    lines = end.decode(errors="replace").strip().splitlines()
    return suite.returncode, lines[-1] if lines else ""


def test(arguments: list[str]) -> int:
    """Run every check, even after one failed; the last line printed is pytest's closing line."""
    ensure_environment("dev")
    ensure_libraries()
    ensure_test_programs()
    env = {"QT_QPA_PLATFORM": "offscreen", **os.environ, "PYTHONPATH": str(ROOT)}
    failed = []
    for name, command in CHECKS.items():
        say(f"--- {name}")
        # Compiling reports each kernel to programs, which is no reading for people.
        out = subprocess.DEVNULL if name == "kernels" else None
        if subprocess.call([str(PYTHON), *command], cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out) != 0:
            failed.append(name)
    say("--- tests")
    code, closing = run_pytest(arguments, env)
    if failed:
        say(f"failed before the tests: {', '.join(failed)}\n{closing}")
    return code or (1 if failed else 0)


def main(arguments: list[str]) -> int:
    """Carry out the command line; problems become one sentence on stderr and exit code 1."""
    try:
        if arguments[:1] in (["-h"], ["--help"]):
            say(USAGE)
            return 0
        return test(arguments[1:]) if arguments[:1] == ["test"] else start(arguments)
    except Problem as problem:
        print(problem, file=sys.stderr)
    except OSError as error:
        print(explain(str(error)), file=sys.stderr)
    except KeyboardInterrupt:
        print("\nInterrupted; nothing half-made was kept.", file=sys.stderr)
        return 130
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
