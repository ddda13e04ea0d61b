"""Embeddings beside running chats: one text at a time, between two steps."""

from __future__ import annotations

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

    def advance(self, runtime: Runtime) -> bool:
        """Embed the next text; True when the job is done, well or not."""
        try:
            self._vectors.append(runtime.bundle.embed(self._texts[len(self._vectors)]))
        except Exception as error:
            return self.fail(error)
        if len(self._vectors) < len(self._texts):
            return False
        self.future.set_result(np.stack(self._vectors))
        return True

    def fail(self, error: Exception) -> bool:
        """The job ends with an error."""
        self.future.set_exception(error)
        return True
