"""Errors of the API: one shape, the status that fits each of the engine's codes."""

from __future__ import annotations

from starlette.responses import JSONResponse

from engine.errors import BadRequestValueError, EngineError

_STATUS = {
    "queue_full": 429,
    "not_loaded": 503,
    "pool_exhausted": 503,
    "empty_prompt": 400,
    "prompt_too_long": 400,
    "bad_value": 400,
    "template": 400,
    "tokenizer": 400,
    "request": 400,
}
RETRY_AFTER_S = 2


class ApiError(Exception):
    """An answer with an error status; ``param`` names the field that is wrong."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def response(self) -> JSONResponse:
        """The OpenAI error body."""
        kind = "invalid_request_error" if self.status < 500 and self.status != 429 else "server_error"
        if self.status == 429:
            kind = "rate_limit_error"
        body = {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}
        headers = {"Retry-After": str(RETRY_AFTER_S)} if self.status in (429, 503) else None
        return JSONResponse(body, status_code=self.status, headers=headers)


def from_engine(error: EngineError) -> ApiError:
    """The API's words for an engine error."""
    param = error.field if isinstance(error, BadRequestValueError) else None
    if error.code in ("empty_prompt", "prompt_too_long"):
        param = "prompt"
    return ApiError(_STATUS.get(error.code, 500), str(error), param=param or None, code=error.code)


def bad(param: str, message: str) -> ApiError:
    """400 with the field named."""
    return ApiError(400, f"{param}: {message}", param=param, code="bad_value")
