"""Errors of the API: one shape, and the status that fits each of the engine's codes."""

from __future__ import annotations

from typing import Any

from starlette.responses import JSONResponse

from engine.errors import BadRequestValueError, EngineError

_STATUS = {
    "queue_full": 429,
    "not_loaded": 503,
    "pool_exhausted": 503,
    "cancelled": 503,
    "empty_prompt": 400,
    "prompt_too_long": 400,
    "bad_value": 400,
    "template": 400,
    "tokenizer": 400,
    "request": 400,
}
_KINDS = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
RETRY_AFTER_S = 2


class ApiError(Exception):
    """An answer with an error status; ``param`` names the field that is wrong."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code

    def body(self) -> dict[str, Any]:
        """The OpenAI error object."""
        kind = _KINDS.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": str(self), "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        """The error as an answer of its own."""
        headers = {"Retry-After": str(RETRY_AFTER_S)} if self.status in (429, 503) else {}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        return JSONResponse(self.body(), status_code=self.status, headers=headers)


def from_engine(error: EngineError, prompt_field: str = "prompt") -> ApiError:
    """The API's words for an engine error; ``prompt_field`` is what the route calls its prompt."""
    param = error.field if isinstance(error, BadRequestValueError) else None
    if error.code in ("empty_prompt", "prompt_too_long", "template", "tokenizer") or param == "prompt":
        param = prompt_field
    return ApiError(_STATUS.get(error.code, 500), str(error), param=param or None, code=error.code)


def bad(param: str, message: str) -> ApiError:
    """400 with the field named."""
    return ApiError(400, f"{param}: {message}", param=param, code="bad_value")
