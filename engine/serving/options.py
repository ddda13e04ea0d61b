"""How a server is started, and the limits it keeps."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from engine.errors import BadRequestValueError


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """Where to listen and what to allow; sizes in bytes, times in seconds.

    ``max_waiting`` requests may be queued or running before others get 429. ``timeout_s`` bounds a reply, ``body_s``
    how long a client may take to send its request. ``flush_s`` is the longest time between two chunks of a stream that
    is writing, and is only taken while many more than ``calm_streams`` of them run: fewer, fuller chunks leave more of
    the processor to the model. ``origins`` are web pages that may ask from a browser.
    """

    host: str = "127.0.0.1"
    port: int = 8080
    api_key: str = ""
    max_body: int = 4 << 20
    max_waiting: int = 72
    timeout_s: float = 600.0
    body_s: float = 30.0
    drain_s: float = 30.0
    flush_s: float = 0.1
    calm_streams: int = 2
    origins: tuple[str, ...] = ()

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach the address."""
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    def check(self) -> None:
        """Raise ``BadRequestValueError`` where the options would open the machine to others without a key."""
        if not self.is_loopback and not self.api_key:
            raise BadRequestValueError(
                f"Serving on {self.host} lets other machines in: set an API key, or serve on 127.0.0.1.",
                field="api_key",
            )
        if not self.api_key.isascii() or self.api_key != self.api_key.strip():
            raise BadRequestValueError("An API key is made of ASCII characters without blanks around.", field="api_key")
        if not 0 <= self.port <= 65535:
            raise BadRequestValueError(f"Port {self.port} does not exist; choose 1 to 65535.", field="port")
