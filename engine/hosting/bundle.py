"""What the engine loop needs from a loaded model, and how it is loaded: protocols that tests can fill with fakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, Protocol

import numpy as np

from engine.errors import CancelledError
from engine.port import LoadOptions, ModelInfo, Span, Turn
from engine.scheduling.evaluator import Evaluator, TextStream
from engine.scheduling.request import Request


class RenderedPrompt(Protocol):
    """A conversation as prompt ids (see ``engine.text.chat.Rendered``)."""

    @property
    def ids(self) -> tuple[int, ...]: ...
    @property
    def spans(self) -> tuple[Span, ...]: ...
    @property
    def rewritten_at(self) -> int | None: ...
    @property
    def used_fallback(self) -> bool: ...
    @property
    def template_us(self) -> int: ...
    @property
    def tokenize_us(self) -> int: ...
    @property
    def reasoning_open(self) -> bool: ...
    @property
    def stop_strings(self) -> tuple[str, ...]: ...


class Renderer(Protocol):
    """Turns to prompts, without a session."""

    @property
    def stop_ids(self) -> frozenset[int]: ...
    def render_prompt(
        self, turns: Sequence[Turn], *, resume: bool = False, fallback: bool = False
    ) -> RenderedPrompt: ...
    def render_close(self, *, fallback: bool = False) -> tuple[int, ...]: ...


class TextCodec(Protocol):
    """Text to ids and back."""

    def encode(self, text: str) -> list[int]: ...
    def decode(self, ids: Iterable[int], *, special: bool = False) -> str: ...


class Bundle(Protocol):
    """A loaded model with everything around it. ``evaluator``, ``embed`` and ``set_threads`` are used on the engine's
    thread, the rest on its text thread as well."""

    @property
    def info(self) -> ModelInfo: ...
    @property
    def evaluator(self) -> Evaluator: ...
    @property
    def tokenizer(self) -> TextCodec: ...
    @property
    def renderer(self) -> Renderer: ...

    def text_stream(self, request: Request) -> TextStream:
        """The text side of one reply."""
        ...

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of plain text to go on from."""
        ...

    def embed(self, tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """The embedding of a text so far, float32[width], after each chunk of it; the last one is the text's.
        Other work may be done between two of them; an iterator that is closed early gives its memory back."""
        ...

    def set_threads(self, threads: int) -> None:
        """Compute with this many threads from now on."""
        ...

    def close(self) -> None:
        """Give weights and threads back."""
        ...


class LoadProgress:
    """A loader's line to the loop: it reports how far it is and learns whether it is still wanted."""

    def __init__(self, report: Callable[[str, float, str], None]) -> None:
        self._report = report
        self._cancelled = False

    def report(self, stage: Literal["compiling", "loading"], progress: float, detail: str = "") -> None:
        """Tell how far the load is (0..1). Raises ``CancelledError`` when it is no longer wanted."""
        self.check()
        self._report(stage, progress, detail)

    @property
    def cancelled(self) -> bool:
        """Whether the load should end."""
        return self._cancelled

    def cancel(self) -> None:
        """The load is no longer wanted (any thread)."""
        self._cancelled = True

    def check(self) -> None:
        """Raise ``CancelledError`` when the load is no longer wanted."""
        if self._cancelled:
            raise CancelledError("Loading was cancelled.")


Loader = Callable[[LoadOptions, LoadProgress], Bundle]
"""Loads a model. Runs on a thread of its own, may take long, should look at the progress object's ``cancelled``."""
