"""The routes of the HTTP API."""

from __future__ import annotations

import logging

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.requests import Request as HttpRequest
from starlette.responses import Response
from starlette.routing import Route

from engine.serving import extras
from engine.serving.completions import chat_completions, completions
from engine.serving.delivery import CLIENT_LEFT
from engine.serving.embeddings import embeddings
from engine.serving.metrics import metrics
from engine.serving.options import ServerOptions
from engine.serving.problems import ApiError
from engine.serving.security import Gate
from engine.serving.state import ServerState

_log = logging.getLogger(__name__)


def build_app(state: ServerState) -> Starlette:
    """The ASGI application over a server's state."""
    app = Starlette(
        routes=[
            Route("/health", extras.health, methods=["GET"]),
            Route("/v1/models", extras.models, methods=["GET"]),
            Route("/v1/models/{model_id:path}", extras.model, methods=["GET"]),
            Route("/v1/chat/completions", chat_completions, methods=["POST"]),
            Route("/v1/completions", completions, methods=["POST"]),
            Route("/v1/embeddings", embeddings, methods=["POST"]),
            Route("/tokenize", extras.tokenize, methods=["POST"]),
            Route("/v1/stats", extras.stats, methods=["GET"]),
            Route("/v1/streams", extras.streams, methods=["GET"]),
            Route("/metrics", metrics, methods=["GET"]),
        ],
        middleware=_middleware(state.options),
        exception_handlers={
            ApiError: _api_error,
            HTTPException: _http_error,
            ClientDisconnect: _client_left,
            Exception: _unexpected,
        },
    )
    app.state.server = state
    return app


def _middleware(options: ServerOptions) -> list[Middleware]:
    """Browsers ask for CORS before they show a key, so its answers come first. Without allowed pages there is none."""
    gate = Middleware(Gate, options=options)
    if not options.origins:
        return [gate]
    allowed = Middleware(
        CORSMiddleware, allow_origins=list(options.origins), allow_methods=["GET", "POST"], allow_headers=["*"]
    )
    return [allowed, gate]


async def _api_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return error.response()


async def _http_error(http: HttpRequest, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = ApiError(error.status_code, f"{http.method} {http.url.path}: {error.detail}.").response()
    answer.headers.update(error.headers or {})
    return answer


async def _client_left(http: HttpRequest, error: Exception) -> Response:
    """The connection closed before the request was complete: nobody reads this."""
    return Response(status_code=CLIENT_LEFT)


async def _unexpected(http: HttpRequest, error: Exception) -> Response:
    _log.error("A request failed unexpectedly.", exc_info=error)
    return ApiError(500, "The server failed on this request; its log says more.", code="internal").response()
