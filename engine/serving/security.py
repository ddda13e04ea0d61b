"""Who may ask: the Host and Origin headers are checked, and the key where one is set."""

from __future__ import annotations

import hmac

from starlette.types import ASGIApp, Receive, Scope, Send

from engine.serving.options import ServerOptions
from engine.serving.problems import ApiError

_OPEN_PATHS = frozenset({"/health"})
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})


class Gate:
    """ASGI middleware, in front of everything.

    403 for a Host that is not this machine (a web page that rebinds its own name to it) and for an Origin that was
    not allowed (a page that sends requests blindly); 401 without the key.
    """

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
        headers = {name.lower(): value.decode("latin-1") for name, value in scope["headers"]}
        host, origin = headers.get(b"host", ""), headers.get(b"origin", "")
        if self._options.is_loopback and not self._known_host(host):
            return ApiError(403, "This server answers to localhost only.", code="bad_host")
        if origin and origin not in (f"http://{host}", *self._options.origins):
            return ApiError(
                403, "Web pages may not use this server; allow yours with --allow-origin.", code="bad_origin"
            )
        if self._options.api_key and scope["path"] not in _OPEN_PATHS and not self._has_key(headers):
            return ApiError(401, "Give the server's key as 'Authorization: Bearer …'.", code="invalid_api_key")
        return None

    def _has_key(self, headers: dict[bytes, str]) -> bool:
        scheme, _, key = headers.get(b"authorization", "").partition(" ")
        good = hmac.compare_digest(key.strip().encode("latin-1"), self._options.api_key.encode())
        return good and scheme.lower() == "bearer"

    def _known_host(self, host: str) -> bool:
        name = host if host.endswith("]") else host.rsplit(":", 1)[0] if ":" in host else host
        return name.lower() in _LOOPBACK_NAMES or name == self._options.host
