"""How many prompt tokens a step may read, so that running replies keep flowing while a long prompt is read."""

from __future__ import annotations

SMOOTHING = 0.25
"""Weight of the newest measurement in the running means."""
FRESH = 32
"""So many steps the time of a decode is believed without being measured again."""
_LEAST_SHARE = 8
"""A prompt row in a shared pass counts as at least this part of a generated one, whatever the clock said."""


class Pace:
    """At most ``chunk`` tokens a step. While streams decode, reading saves up time: each step grants ``factor`` times
    the duration of its decode, up to a whole chunk's worth. So a short prompt is read at once, and a long one slows
    the others by that factor rather than by a chunk in every step. At least ``floor`` tokens are always granted.
    ``factor`` None: always a whole chunk.

    Where a step decodes and reads in one pass, only the whole can be measured: ``expected`` is what the decode alone
    would take, and the rest is what reading took. Such a pass is for what fits into it whole: larger grants are read
    apart, as they are while the time of the decode is not known.
    """

    def __init__(self, chunk: int, factor: float | None, floor: int) -> None:
        self._chunk = chunk
        self._factor = factor
        self._floor = min(floor, chunk)
        self._token_s = 0.0
        self._saved_s = 0.0
        self._decodes: dict[int, tuple[float, int]] = {}

    def decoded(self, width: int, seconds: float) -> None:
        """``width`` streams have decoded, and nothing was read in that pass."""
        before, _ = self._decodes.get(width, (seconds, 0))
        self._decodes[width] = before + (seconds - before) * SMOOTHING, FRESH

    def knows(self, width: int) -> bool:
        """Whether the decode of ``width`` streams was measured lately."""
        return self._decodes.get(width, (0.0, 0))[1] > 0

    def expected(self, width: int) -> float:
        """Seconds in which ``width`` streams decode."""
        seconds, fresh = self._decodes[width]
        self._decodes[width] = seconds, fresh - 1
        return seconds

    def shared(self, tokens: int, width: int, whole_s: float) -> float:
        """``tokens`` were read in one pass of ``whole_s`` with ``width`` streams; returns the seconds that reading
        took: what is over the expected time of their decode."""
        decode_s, _ = self._decodes[width]
        seconds = min(whole_s, max(whole_s - decode_s, tokens * decode_s / (_LEAST_SHARE * width)))
        self.spent(tokens, seconds)
        return seconds

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
