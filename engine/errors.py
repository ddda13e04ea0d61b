"""The engine's errors: a small typed tree with stable codes.

Every error that a person can cause or repair carries one plain sentence (``str(error)``) that says what is wrong and
what to do. ``code`` is stable: the window and the HTTP API map it to their own words and status numbers.
"""

from __future__ import annotations


class EngineError(Exception):
    """Base of all errors that the engine raises on purpose."""

    code = "engine"


class ModelFileError(EngineError):
    """A GGUF file is damaged, hostile or not a GGUF file; ``field`` names the part of the file that is wrong."""

    code = "model_file"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class UnsupportedModelError(EngineError):
    """The file is sound, but this engine has no architecture, tensor type or tokenizer for it."""

    code = "unsupported_model"


class ModelMemoryError(EngineError):
    """Loading would need more memory than the machine can give."""

    code = "model_memory"


class DownloadError(EngineError):
    """A model or package could not be fetched, or what arrived is not what was expected."""

    code = "download"


class TokenizerError(EngineError):
    """Text cannot be tokenized (for example, it holds lone surrogates)."""

    code = "tokenizer"


class TemplateError(EngineError):
    """A chat template failed, took too long, or refuses this conversation."""

    code = "template"


class PoolExhaustedError(EngineError):
    """The KV pool has fewer free pages than were asked for. An ordinary outcome: the caller sheds or waits.

    ``missing``: how many pages more must become free."""

    code = "pool_exhausted"

    def __init__(self, message: str, *, missing: int = 0) -> None:
        super().__init__(message)
        self.missing = missing


class PoolBorrowedError(EngineError):
    """The KV pool cannot be closed: sessions or the prefix cache still hold pages of it."""

    code = "pool_borrowed"


class IntegrityError(EngineError):
    """``check_integrity`` found pages whose state contradicts the books. A defect of the engine, never of its user."""

    code = "integrity"


class SessionError(EngineError):
    """A session was used in a way it cannot serve: closed, out of context, twice in one batch, foreign pool."""

    code = "session"


class RequestError(EngineError):
    """A request cannot be accepted as it is."""

    code = "request"


class EmptyPromptError(RequestError):
    """The prompt has no tokens."""

    code = "empty_prompt"


class PromptTooLongError(RequestError):
    """The prompt leaves no room in the context, or needs more pages than the pool has."""

    code = "prompt_too_long"


class BadRequestValueError(RequestError):
    """A value of the request is out of range; ``field`` names it."""

    code = "bad_value"

    def __init__(self, message: str, *, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class DuplicateRequestError(RequestError):
    """A request with this id is queued or running."""

    code = "duplicate_id"


class QueueFullError(EngineError):
    """The scheduler's queue is full; try again when a reply has ended."""

    code = "queue_full"


class UnknownChainError(EngineError):
    """The prefix cache has no chain with this id (it may have been released or evicted meanwhile)."""

    code = "unknown_chain"


class NotLoadedError(EngineError):
    """The engine has no model loaded."""

    code = "not_loaded"


class TraceFileError(EngineError):
    """A trace cannot be written, or what is to be replayed is no trace."""

    code = "trace_file"


class CancelledError(EngineError):
    """A long operation (load, compile, evaluation) was cancelled."""

    code = "cancelled"
