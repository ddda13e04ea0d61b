"""What the commands share: model options, JSON in and out."""

from __future__ import annotations

import argparse
import json
import math
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from engine.errors import BadRequestValueError, ModelFileError, PromptTooLongError

if TYPE_CHECKING:
    from engine.model.language_model import LanguageModel


def positive(text: str) -> int:
    """An argparse type: an integer of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def add_model_options(parser: argparse.ArgumentParser) -> None:
    """MODEL and the options of every command that loads one."""
    parser.add_argument("model", metavar="MODEL", help="a GGUF file or a catalogue id such as smollm2-135m-instruct")
    parser.add_argument("--threads", type=positive, metavar="N", help="threads to compute with (default: all cores)")
    parser.add_argument(
        "--context", type=positive, metavar="N", help="tokens of context (default: the model's, at most 8192)"
    )
    parser.add_argument("--kv-dtype", choices=("float16", "float32"), default="float16", help="how K and V are stored")
    parser.add_argument("--json", action="store_true", help="print JSON on stdout and nothing else there")


def load(arguments: argparse.Namespace, *, exact: bool = False) -> LanguageModel:
    """The model that the arguments name, ready to compute. What must be compiled first is told on stderr."""
    from engine.catalog import resolve
    from engine.gguf import open_gguf
    from engine.model.describe import tensor_types
    from engine.model.language_model import load_model
    from engine.model.warming import warm_kernels

    path = resolve(arguments.model)
    with open_gguf(path) as file:
        types = tensor_types(file)
    warm_kernels(types, arguments.kv_dtype, report=_CompileLine())
    return load_model(
        path,
        n_ctx=arguments.context,
        threads=arguments.threads,
        kv_dtype=arguments.kv_dtype,
        exact=exact,
    )


class _CompileLine:
    """Tells how far compiling is: one line redrawn on a terminal, a line every quarter elsewhere."""

    def __init__(self) -> None:
        self._last = -1

    def __call__(self, fraction: float, detail: str) -> None:
        """Take a report of ``warm_kernels``."""
        redraw = sys.stderr.isatty()
        step = int(fraction * (100 if redraw else 4))
        if step == self._last:
            return
        self._last = step
        start, end = ("\r", "\n" if fraction == 1 else "") if redraw else ("", "\n")
        note(f"{start}Compiling for this processor, once: {fraction:.0%}", end=end)


def note(text: str = "", *, end: str = "\n") -> None:
    """Say something to the person, on stderr."""
    print(text, file=sys.stderr, end=end, flush=True)


def emit(value: Any) -> None:
    """Write a result as JSON on stdout."""
    json.dump(_strict(value), sys.stdout, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")


def _strict(value: Any) -> Any:
    """``value`` without what JSON cannot say: infinities and NaN (a file's metadata may hold them) become null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _strict(item) for key, item in value.items()}
    return [_strict(item) for item in value] if isinstance(value, list | tuple) else value


def check_finite(values: np.ndarray) -> None:
    """Raise ``ModelFileError`` if the model has computed something that is no number."""
    if not np.isfinite(values).all():
        raise ModelFileError("The model computes values that are no numbers: its file is damaged; download it again.")


def check_length(n: int, model: LanguageModel, what: str) -> None:
    """Raise ``PromptTooLongError`` if ``n`` tokens of ``what`` do not fit into the model's context."""
    if n > model.n_ctx:
        raise PromptTooLongError(
            f"{what} needs {n} tokens and the context holds {model.n_ctx}: make it shorter or --context larger."
        )


def read_json_list(path: str) -> list[Any]:
    """A JSON list from a file, or from stdin for ``-``."""
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text(encoding="utf-8")
        value = json.loads(text)
    except (ValueError, RecursionError) as error:  # malformed, not UTF-8, numbers of thousands of digits, nested deeply
        raise BadRequestValueError(f"{path} is not valid JSON ({error}); give a JSON list.", field="file") from error
    if not isinstance(value, list):
        raise BadRequestValueError(f"{path} holds no JSON list; give a list with one entry per prompt.", field="file")
    return value


def read_texts(path: str) -> list[str]:
    """A JSON list of strings."""
    texts = read_json_list(path)
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise BadRequestValueError(f"Entry {i} of {path} is no string; give a list of strings.", field="file")
    return texts


def read_id_lists(path: str, model: LanguageModel) -> list[list[int]]:
    """A JSON list of token-id lists, each id inside the vocabulary and each list inside the context."""
    n_vocab = model.n_vocab
    lists = read_json_list(path)
    for i, ids in enumerate(lists):
        good = isinstance(ids, list) and all(type(t) is int and 0 <= t < n_vocab for t in ids)
        if not good or not ids:
            raise BadRequestValueError(
                f"Entry {i} of {path} is no list of token ids from 0 to {n_vocab - 1}; give at least one id per list.",
                field="file",
            )
        check_length(len(ids), model, f"Entry {i} of {path}")
    return lists
