"""Who may ask: the Host header is checked, and the key where one is set. No CORS headers are ever sent."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from engine.serving.options import ServerOptions
from engine.serving.problems import ApiError

_OPEN_PATHS = frozenset({"/health"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class Gate:
    """ASGI middleware: 403 for a Host that is not ours (a web page elsewhere rebinding its name), 401 without a key."""

    def __init__(self, app: ASGIApp, options: ServerOptions) -> None:
        self._app = app
        self._options = options

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through or answer it here."""
        problem = self._problem(scope) if scope["type"] == "http" else None
        if problem is None:
            await self._app(scope, receive, send)
        else:
            await problem.response()(scope, receive, send)

    def _problem(self, scope: Scope) -> ApiError | None:
        headers = {k.lower(): v.decode("latin-1") for k, v in scope["headers"]}
        if self._options.is_loopback and not self._known_host(headers.get(b"host", "")):
            return ApiError(403, "This server answers to localhost only.", code="bad_host")
        if self._options.api_key and scope["path"] not in _OPEN_PATHS:
            scheme, _, key = headers.get(b"authorization", "").partition(" ")
            expected = self._options.api_key.encode()
            if scheme.lower() != "bearer" or not hmac.compare_digest(key.strip().encode("latin-1"), expected):
                return ApiError(401, "Give the server's key as 'Authorization: Bearer …'.", code="invalid_api_key")
        return None

    def _known_host(self, host: str) -> bool:
        name = host if host.endswith("]") else host.rsplit(":", 1)[0] if ":" in host else host
        return name.lower() in _LOOPBACK_NAMES or name == self._options.host
