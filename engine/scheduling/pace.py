"""How many prompt tokens a step may read, so that running replies keep flowing while a long prompt is read."""

from __future__ import annotations

SMOOTHING = 0.25
"""Weight of the newest measurement in the running mean of seconds per prompt token."""


class Pace:
    """At most ``chunk`` tokens a step. While streams decode, reading saves up time: each step grants ``factor`` times
    the duration of its decode, up to a whole chunk's worth. So a short prompt is read at once, and a long one slows
    the others by that factor rather than by a chunk in every step. At least ``floor`` tokens are always granted.
    ``factor`` None: always a whole chunk.
    """

    def __init__(self, chunk: int, factor: float | None, floor: int) -> None:
        self._chunk = chunk
        self._factor = factor
        self._floor = min(floor, chunk)
        self._token_s = 0.0
        self._saved_s = 0.0

    def budget(self, decode_s: float) -> int:
        """Prompt tokens for a step whose decode took ``decode_s`` seconds (0: nothing decodes)."""
        if self._factor is None or decode_s == 0 or self._token_s == 0:
            self._saved_s = self._chunk * self._token_s
            return self._chunk
        self._saved_s = min(self._saved_s + self._factor * decode_s, self._chunk * self._token_s)
        tokens = int(self._saved_s / self._token_s) // self._floor * self._floor
        return max(self._floor, min(self._chunk, tokens))

    def spent(self, tokens: int, seconds: float) -> None:
        """The step has read so many tokens in so many seconds."""
        if not tokens:
            return
        self._saved_s = max(0.0, self._saved_s - seconds)
        measured = seconds / tokens
        self._token_s += (measured - self._token_s) * (SMOOTHING if self._token_s else 1.0)
