"""What the loop tells its sink. A sink that raises is a defect of the sink: it is logged, and the engine goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.errors import EngineError
from engine.port import EngineSink, EngineStage, EngineState, Failed, ModelInfo, Prepared
from engine.scheduling.events import StepReport

log = logging.getLogger(__name__)


class Reporter:
    """Calls a sink, safely."""

    def __init__(self, sink: EngineSink) -> None:
        self._sink = sink

    def step(self, report: StepReport) -> None:
        """A step was made."""
        self._call(self._sink.on_step, report)

    def prepared(self, prepared: Prepared) -> None:
        """A chat job became a request."""
        self._call(self._sink.on_prepared, prepared)

    def failed(self, stream: int, error: Exception) -> None:
        """A chat job never became a stream."""
        code, sentence = in_words(error)
        if not isinstance(error, EngineError):
            log.error("A chat job failed unexpectedly.", exc_info=error)
        self._call(self._sink.on_failed, Failed(stream, code, sentence))

    def state(
        self,
        stage: EngineStage,
        model: ModelInfo | None,
        *,
        progress: float = 0.0,
        detail: str = "",
        error: Exception | None = None,
    ) -> None:
        """The engine's stage changed."""
        code, sentence = ("", "") if error is None else in_words(error)
        self._call(self._sink.on_state, EngineState(stage, progress, detail, model, sentence, code))

    def _call(self, method: Callable[..., None], *arguments: object) -> None:
        try:
            method(*arguments)
        except Exception:
            log.exception("The engine's sink failed.")


def in_words(error: Exception) -> tuple[str, str]:
    """(stable code, sentence) of an error."""
    code = error.code if isinstance(error, EngineError) else "internal"
    return code, str(error) or type(error).__name__
