"""Embeddings beside running chats: a chunk of one text at a time, between two steps."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future

import numpy as np

from engine.errors import BadRequestValueError
from engine.hosting.runtime import Runtime


class EmbeddingJob:
    """Token lists to one array, float32[len(texts), width]."""

    def __init__(self, texts: tuple[tuple[int, ...], ...]) -> None:
        if not texts:
            raise BadRequestValueError("There is no text to embed: give at least one.", field="input")
        self.future: Future[np.ndarray] = Future()
        self._texts = texts
        self._vectors: list[np.ndarray] = []
        self._reading: Iterator[np.ndarray] | None = None
        self._so_far: np.ndarray | None = None

    def advance(self, runtime: Runtime) -> bool:
        """Read the next chunk; True when the job is done, well or not."""
        try:
            if self._reading is None:
                self._reading = iter(runtime.bundle.embed(self._texts[len(self._vectors)]))
            vector = next(self._reading, None)
        except Exception as error:
            return self.fail(error)
        if vector is not None:
            self._so_far = vector
            return False
        assert self._so_far is not None
        self._vectors.append(self._so_far)
        self._reading = self._so_far = None
        if len(self._vectors) < len(self._texts):
            return False
        self.future.set_result(np.stack(self._vectors))
        return True

    def fail(self, error: Exception) -> bool:
        """The job ends with an error; what it holds of the model is given back."""
        self._reading = None
        self.future.set_exception(error)
        return True
