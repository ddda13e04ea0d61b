"""Turns through a model's chat template, with certainty about which text is the template's and which is a message's."""

from __future__ import annotations

from collections.abc import Sequence

from engine.port import Turn
from engine.text import template as in_process
from engine.text.marked import TEMPLATE
from engine.text.template import CHATML, Segment
from engine.text.template_process import TemplateProcess
from engine.text.thinking import MARKER_NAMES
from engine.text.tokenizer import Tokenizer

_SIGNS = range(0xE000, 0xF900)
"""Private characters; one that nobody used stands in a message for a moment."""


class TemplateRunner:
    """Runs the file's template in its process, and ChatML, which is known to be harmless, in this one."""

    def __init__(self, tokenizer: Tokenizer, template: str | None) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._process = TemplateProcess()
        vocabulary = tokenizer.vocabulary
        texts = {name: vocabulary.tokens[token] for name, token in vocabulary.special.items()}
        self._names = {f"{name}_token": texts.get(name, "") for name in ("bos", "eos", "unk")}

    def warm(self) -> None:
        """Start the process, if one will be needed, without waiting for it."""
        if self._template is not None:
            self._process.start()

    def close(self) -> None:
        """End the process."""
        self._process.close()

    def segments(self, turns: Sequence[Turn], generate: bool, fallback: bool) -> list[Segment]:
        """Render, and make sure that no control text in a message has become the template's.

        A template may do what ``Marked`` cannot follow. So where someone typed control text, render once more with that
        text broken up: if the template's own control tokens are the same, none of them came from a message.
        ``generate``: with a generation prompt; ``fallback``: ChatML. Errors: ``TemplateError``.
        """
        segments = self._located(self._render(turns, generate, fallback), turns, generate, fallback)
        mark = _unused_character(turns)
        broken = [Turn(turn.role, self._break_control_text(turn.text, mark)) for turn in turns]
        if all(turn.text == other.text for turn, other in zip(turns, broken, strict=True)):
            return segments
        safe = self._render(broken, generate, fallback)
        if self._template_tokens(segments) == self._template_tokens(safe):
            return segments
        return [(part, turn, -1) for text, turn, _ in safe for part in text.split(mark)]

    def _located(self, segments: list[Segment], turns: Sequence[Turn], generate: bool, fallback: bool) -> list[Segment]:
        """Find messages whose marks were lost: render with a sign in their place, and see if that explains the text."""
        seen = {turn for _, turn, _ in segments}
        lost = [number for number, turn in enumerate(turns) if number not in seen and turn.text.strip()]
        if not lost:
            return segments
        mark = _unused_character(turns)
        probes = [Turn(t.role, f"{mark}{n}{mark}") if n in lost else t for n, t in enumerate(turns)]
        found: list[Segment] = []
        for text, turn, offset in self._render(probes, generate, fallback):
            for index, part in enumerate(text.split(mark)):
                known = index % 2 and part.isdecimal() and int(part) in lost
                found.append((turns[int(part)].text, int(part), 0) if known else (part, turn, offset))
        same = "".join(text for text, _, _ in found) == "".join(text for text, _, _ in segments)
        return found if same else segments

    def _render(self, turns: Sequence[Turn], generate: bool, fallback: bool) -> list[Segment]:
        messages = [(turn.role, turn.text) for turn in turns]
        if fallback or self._template is None:
            return in_process.render(CHATML, messages, add_generation_prompt=generate, names=self._names)
        return self._process.render(self._template, messages, add_generation_prompt=generate, names=self._names)

    def _break_control_text(self, text: str, mark: str) -> str:
        """``text`` with ``mark`` inside each control token's text, but for the markers that templates look for."""
        parts = []
        for piece in self._tokenizer.control_matcher.split(text):
            name = piece if isinstance(piece, str) else self._tokenizer.vocabulary.tokens[piece]
            known = isinstance(piece, str) or name in MARKER_NAMES
            parts.append(name if known else name[:1] + mark + name[1:])
        return "".join(parts)

    def _template_tokens(self, segments: Sequence[Segment]) -> list[int]:
        split = self._tokenizer.control_matcher.split
        return [p for text, turn, _ in segments if turn == TEMPLATE for p in split(text) if isinstance(p, int)]


def _unused_character(turns: Sequence[Turn]) -> str:
    used = set().union(*(turn.text for turn in turns))
    return next((chr(sign) for sign in _SIGNS if chr(sign) not in used), "\uffff")
