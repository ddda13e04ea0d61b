"""Reasoning inside a reply: find its markers while the text arrives, so that a window can fold it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal["reasoning", "answer"]

MARKERS: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("[THINK]", "[/THINK]"),
    ("<|think|>", "<|/think|>"),
    ("<seed:think>", "</seed:think>"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Pairs that open and close reasoning in the families known here."""

MARKER_NAMES = frozenset(marker for pair in MARKERS for marker in pair)


@dataclass(frozen=True, slots=True)
class Part:
    """A stretch of a reply, without its markers."""

    kind: Kind
    text: str


def markers_of(template: str | None) -> tuple[tuple[str, str], ...]:
    """The pairs that a chat template speaks of; the most usual one where it speaks of none."""
    found = tuple(pair for pair in MARKERS if template and pair[1] in template)
    return found or MARKERS[:1]


def opens_reasoning(text: str, markers: Iterable[tuple[str, str]] = MARKERS) -> bool:
    """Whether ``text`` ends inside reasoning, as after a generation prompt that ends with ``<think>``."""
    return any(text.rfind(start) > text.rfind(end) for start, end in markers)


class ThinkingSplitter:
    """Splits a reply into reasoning and answer while it arrives; the outcome does not depend on how it was cut.

    Reasoning counts only at the start of a reply (after blanks): a later ``<think>`` is text. ``inside``: the prompt
    has opened the reasoning already.
    """

    def __init__(self, markers: Iterable[tuple[str, str]] = MARKERS[:1], *, inside: bool = False) -> None:
        self._markers = tuple(markers)
        self._ends = tuple(end for _, end in self._markers)
        self._state: Literal["start", "reasoning", "gap", "answer"] = "reasoning" if inside else "start"
        self._held = ""

    @property
    def in_reasoning(self) -> bool:
        """Whether what comes next is reasoning, as far as is known."""
        return self._state == "reasoning"

    def push(self, text: str) -> list[Part]:
        """The parts that became certain with ``text``."""
        self._held += text
        parts: list[Part] = []
        while self._step(parts):
            continue
        return parts

    def flush(self) -> list[Part]:
        """The reply has ended: what was held back for a marker is text."""
        held, self._held = self._held, ""
        return [Part("reasoning" if self._state == "reasoning" else "answer", held)] if held else []

    def _step(self, parts: list[Part]) -> bool:
        """Take what is certain from the held text; whether there may be more."""
        if self._state == "start":
            return self._open()
        if self._state == "reasoning":
            return self._close(parts)
        if self._state == "gap":
            self._held = self._held.lstrip()
            if not self._held:
                return False
            self._state = "answer"
        if self._held:
            parts.append(Part("answer", self._held))
            self._held = ""
        return False

    def _open(self) -> bool:
        body = self._held.lstrip()
        for start, end in self._markers:
            if body.startswith(start):
                self._ends = (end,)
                self._held = body[len(start) :]
                self._state = "reasoning"
                return True
        if any(start.startswith(body) for start, _ in self._markers):
            return False
        self._state = "answer"
        return True

    def _close(self, parts: list[Part]) -> bool:
        found = [(at, end) for end in self._ends if (at := self._held.find(end)) >= 0]
        if found:
            at, end = min(found)
            if at:
                parts.append(Part("reasoning", self._held[:at]))
            self._held = self._held[at + len(end) :]
            self._state = "gap"
            return True
        keep = max((_overlap(self._held, end) for end in self._ends), default=0)
        cut = len(self._held) - keep
        if cut:
            parts.append(Part("reasoning", self._held[:cut]))
            self._held = self._held[cut:]
        return False


def split_reasoning(
    text: str, markers: Iterable[tuple[str, str]] = MARKERS[:1], *, inside: bool = False
) -> tuple[str, str]:
    """A whole reply as (reasoning, answer)."""
    splitter = ThinkingSplitter(markers, inside=inside)
    parts = [*splitter.push(text), *splitter.flush()]
    reasoning = "".join(part.text for part in parts if part.kind == "reasoning")
    return reasoning, "".join(part.text for part in parts if part.kind == "answer")


def _overlap(text: str, marker: str) -> int:
    """How many characters at the end of ``text`` may begin ``marker``."""
    for length in range(min(len(text), len(marker) - 1), 0, -1):
        if marker.startswith(text[-length:]):
            return length
    return 0
