"""The loader that an engine loop uses: a model file becomes a ``Bundle`` (see ``engine.hosting.bundle``)."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

import numpy as np

from engine.catalog import name_of
from engine.hosting.bundle import LoadProgress
from engine.model.checks import check_page_rows
from engine.model.describe import count_parameters, tensor_types
from engine.model.language_model import LanguageModel, load_model
from engine.model.memory import weights_bytes
from engine.port import LoadOptions, ModelInfo
from engine.scheduling.request import Request
from engine.text.chat import ChatRenderer
from engine.text.stop import TextStream
from engine.text.tokenizer import Tokenizer

COMPILING_SHARE = 0.95
"""How much of a load's progress is compiling, where kernels have to be compiled first."""


class ModelBundle:
    """A loaded model with its tokenizer and renderer; ``close`` gives weights, threads and processes back."""

    def __init__(self, model: LanguageModel, options: LoadOptions) -> None:
        self.evaluator = model
        self.tokenizer: Tokenizer = model.tokenizer
        self.renderer: ChatRenderer = model.renderer()
        self.info = _model_info(model, options)
        self._chunk = options.chunk

    def text_stream(self, request: Request) -> TextStream:
        """The text side of one reply."""
        return TextStream(self.tokenizer, request.stop_strings, request.prompt)

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of plain text to go on from."""
        return self.evaluator.encode_prompt(text)

    def embed(self, tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """The mean of the final states so far, float32[width], after each chunk."""
        return (states.mean(axis=0) for states in self.evaluator.hidden_steps(tokens, self._chunk))

    def set_threads(self, threads: int) -> None:
        """Compute with this many threads from now on."""
        self.evaluator.set_threads(threads)

    def close(self) -> None:
        """Give everything back."""
        self.evaluator.close()


class _OneProgress:
    """Compiling and packing as one progress from 0 to 1 that never goes back."""

    def __init__(self, progress: LoadProgress) -> None:
        self._progress = progress
        self._start = 0.0

    def compiling(self, fraction: float, detail: str) -> None:
        """Kernels have to be compiled first: that takes most of the time."""
        self._start = COMPILING_SHARE
        self._progress.report("compiling", COMPILING_SHARE * fraction, detail)

    def loading(self, fraction: float) -> None:
        """The weights are packed."""
        self._progress.report("loading", self._start + (1 - self._start) * fraction)


def load_bundle(options: LoadOptions, progress: LoadProgress) -> ModelBundle:
    """Load a model, telling how far compiling and packing are.

    Errors: BadRequestValueError, ModelFileError, UnsupportedModelError, ModelMemoryError, CancelledError.
    """
    check_page_rows(options.page_rows)
    told = _OneProgress(progress)
    model = load_model(
        options.path,
        n_ctx=options.n_ctx,
        threads=options.threads,
        kv_dtype=options.kv_dtype,
        progress=told.loading,
        compiling=told.compiling,
        cancel=lambda: progress.cancelled,
        exact=options.exact,
    )
    try:
        progress.check()
        bundle = ModelBundle(model, options)
        bundle.renderer.warm()
        progress.check()
        return bundle
    except BaseException:
        model.close()
        raise


def _model_info(model: LanguageModel, options: LoadOptions) -> ModelInfo:
    """Facts for people, and how many pages the pool gets: what ``pool_bytes`` holds, or the default budget."""
    spec, config = model.kv_spec, model.config
    return ModelInfo(
        path=os.fspath(options.path),
        name=name_of(options.path) or config.name,
        architecture=config.architecture,
        parameters=count_parameters(model.file),
        n_ctx=model.n_ctx,
        n_ctx_train=config.n_ctx_train,
        n_vocab=model.n_vocab,
        page_rows=options.page_rows,
        page_bytes=spec.page_bytes(options.page_rows),
        capacity_pages=spec.default_capacity(options.page_rows, budget_bytes=options.pool_bytes),
        weights_bytes=weights_bytes(model.program),
        kv_bytes_per_token=spec.row_bytes,
        max_streams=options.max_streams,
        threads=model.threads,
        tensor_types=tuple(sorted(tensor_types(model.file).items())),
        has_chat_template=model.renderer().template is not None,
    )
