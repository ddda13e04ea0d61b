"""What the packaged executable starts: the window, or by its first argument one of its hidden modes.

There is no ``python -m`` in a packaged build, so the children that the engine starts are modes of the one executable.
They are told apart here, before anything of Qt is imported.
"""

import importlib
import sys

MODES = {
    "--template-child": "engine.text.template_child",
    "--warm-kernels": "engine.kernels.warm",
    "--self-test": "app.self_test",
}


def main() -> int:
    """Run the mode that the first argument names (with the arguments after it), else the window."""
    module = MODES.get(sys.argv[1]) if len(sys.argv) > 1 else None
    if module is not None:
        del sys.argv[1]
    code: int = importlib.import_module(module or "app.__main__").main()
    return code


if __name__ == "__main__":
    sys.exit(main())
