"""A reply's thinking, told apart from its answer while the text streams in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OPEN, CLOSE = "<think>", "</think>"


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of text that belongs to the thinking or to the answer."""

    kind: Literal["thinking", "answer"]
    text: str


class ReasoningSplitter:
    """Feeds on a reply's text. Thinking stands between the markers at the very beginning of a reply, nowhere else.

    What may be the beginning of a marker is held back until more is known. ``thinking`` is True inside the markers.
    """

    def __init__(self) -> None:
        self._state: Literal["start", "thinking", "after", "answer"] = "start"
        self._held = ""
        self._begun = False

    @property
    def thinking(self) -> bool:
        """Whether the thinking has begun and not ended."""
        return self._state == "thinking"

    def feed(self, text: str) -> list[Part]:
        """More text; returns what is certain now."""
        self._held += text
        parts: list[Part] = []
        if self._state == "start":
            start = self._held.lstrip()
            if start.startswith(OPEN):
                self._state, self._held = "thinking", start[len(OPEN) :]
            elif not OPEN.startswith(start[: len(OPEN)]):
                self._state = "answer"
        if self._state == "thinking":
            parts += self._take_thinking()
        if self._state == "after" and self._held.lstrip("\n"):
            self._state, self._held = "answer", self._held.lstrip("\n")
        if self._state == "answer" and self._held:
            parts.append(Part("answer", self._held))
            self._held = ""
        return parts

    def finish(self) -> list[Part]:
        """Nothing follows: what was held back is text after all."""
        held, self._held = self._held, ""
        if not held or self._state == "after":
            return []
        return [Part("thinking" if self._state == "thinking" else "answer", held)]

    def _take_thinking(self) -> list[Part]:
        if not self._begun:
            self._held = self._held.lstrip("\n")
            self._begun = bool(self._held)
        place = self._held.find(CLOSE)
        if place >= 0:
            text, self._held = self._held[:place], self._held[place + len(CLOSE) :]
            self._state = "after"
        else:
            keep = max((n for n in range(1, len(CLOSE)) if self._held.endswith(CLOSE[:n])), default=0)
            cut = len(self._held) - keep
            text, self._held = self._held[:cut], self._held[cut:]
        return [Part("thinking", text)] if text else []
