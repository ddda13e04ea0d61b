"""Stop strings across the borders of pieces, and the text side of one stream.

``StopMatcher`` is one automaton per stop string (Knuth, Morris and Pratt), so the outcome does not depend on how the
text was cut into pieces: the stop string that is complete first ends the text, and of several the longest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from engine.text.detokenizer import BytesOfTokens, Detokenizer


class StopMatcher:
    """Holds back what may be the beginning of a stop string, and nothing else."""

    def __init__(self, strings: Iterable[str]) -> None:
        self._patterns = [(string, _fallbacks(string)) for string in dict.fromkeys(strings) if string]
        self._states = [0] * len(self._patterns)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> tuple[str, bool]:
        """Text that is certainly visible now, and whether a stop string has ended the reply."""
        if self.stopped or not self._patterns:
            return ("", True) if self.stopped else (text, False)
        text_now = self._held + text
        for index in range(len(self._held), len(text_now)):
            longest = self._advance(text_now[index])
            if longest:
                self.stopped, self._held = True, ""
                return text_now[: index + 1 - longest], True
        keep = max(self._states)
        cut = len(text_now) - keep
        self._held = text_now[cut:]
        return text_now[:cut], False

    def flush(self) -> str:
        """The text that was held back: no stop string came of it."""
        held, self._held = self._held, ""
        self._states = [0] * len(self._patterns)
        return held

    def _advance(self, char: str) -> int:
        """Feed one character; the length of the longest stop string that it completes, 0 for none."""
        complete = 0
        for number, (string, fallbacks) in enumerate(self._patterns):
            state = self._states[number]
            while state and string[state] != char:
                state = fallbacks[state - 1]
            state += string[state] == char
            if state == len(string):
                complete = max(complete, state)
            self._states[number] = state
        return complete


class TextStream:
    """The visible text of one reply: tokens in, text out, and how many tokens are wholly visible.

    ``prompt`` matters only where a reply goes on in the middle of a character (see ``Detokenizer``).
    """

    def __init__(self, tokenizer: BytesOfTokens, stop_strings: Iterable[str] = (), prompt: Sequence[int] = ()) -> None:
        self._detokenizer = Detokenizer(tokenizer, prompt)
        self._matcher = StopMatcher(stop_strings)
        self._decoded = 0
        self._visible = 0
        self._kept = 0
        self._ends: deque[int] = deque()

    @property
    def n_kept(self) -> int:
        """Tokens so far that are wholly visible; all of them unless a stop string ended the reply."""
        return self._kept if self._matcher.stopped else self._kept + len(self._ends)

    @property
    def stopped(self) -> bool:
        """Whether a stop string has ended the reply."""
        return self._matcher.stopped

    def push(self, token: int) -> tuple[str, bool]:
        """The text that became visible with ``token``, and whether a stop string ended the reply with it."""
        if self._matcher.stopped:
            return "", True
        decoded = self._detokenizer.push(token)
        self._decoded += len(decoded)
        # A token that ends within a character is visible once that whole character is.
        self._ends.append(self._decoded + bool(self._detokenizer.pending))
        text, stopped = self._matcher.push(decoded)
        self._show(text)
        return text, stopped

    def flush(self) -> str:
        """Text that was held back for a stop string that did not come."""
        if self._matcher.stopped:
            return ""
        text = self._matcher.flush() + self._detokenizer.flush()
        self._show(text)
        return text

    def _show(self, text: str) -> None:
        self._visible += len(text)
        while self._ends and self._ends[0] <= self._visible:
            self._ends.popleft()
            self._kept += 1


def _fallbacks(string: str) -> list[int]:
    """For each prefix of ``string``, the length of its longest proper prefix that is also its suffix."""
    table = [0] * len(string)
    length = 0
    for index in range(1, len(string)):
        while length and string[index] != string[length]:
            length = table[length - 1]
        length += string[index] == string[length]
        table[index] = length
    return table
