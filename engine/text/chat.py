"""Conversations to prompts, without a session: the model file's template, exact ids of past replies, who said what."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from time import perf_counter_ns
from typing import Any

from engine.errors import TemplateError
from engine.port import Span, Turn
from engine.text import template as in_process
from engine.text.marked import TEMPLATE
from engine.text.prompt import assemble, ids_fit
from engine.text.template import CHATML, Segment
from engine.text.template_process import TemplateProcess
from engine.text.thinking import MARKER_NAMES, markers_of, opens_reasoning
from engine.text.tokenizer import Tokenizer

_REMEMBERED = 32
_SIGNS = range(0xE000, 0xF900)
"""Private characters; one that nobody used stands in a message for a moment (see ``_segments``)."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A prompt: ``ids`` with ``spans`` that cover them, and the ``text`` they were made from.

    ``rewritten_at``: the first token that differs from what the last reply was given as its prompt, followed by that
    reply: the template has rewritten history there. None: the prompt only grew, or there is nothing to compare.
    ``used_fallback``: ChatML took the place of the file's template. ``reasoning_open``: the reply starts inside
    reasoning, because the prompt ends with an opening marker. ``stop_strings`` end the reply where the model has no
    token for that (ChatML for a model that does not know it). Times in microseconds.
    """

    ids: tuple[int, ...]
    spans: tuple[Span, ...]
    text: str
    rewritten_at: int | None
    used_fallback: bool
    template_us: int
    tokenize_us: int
    reasoning_open: bool = False
    stop_strings: tuple[str, ...] = ()


class ChatRenderer:
    """Renders turns to prompts for one model. Holds no KV and no conversation; safe to use from several threads.

    ``template`` is the file's own and runs in a child process; None: ChatML. ``close`` ends that process.
    """

    def __init__(self, tokenizer: Tokenizer, template: str | None = None) -> None:
        self.tokenizer = tokenizer
        self.template = template
        self.thinking_markers = markers_of(template)
        self._process = TemplateProcess()
        self._encode_run = lru_cache(maxsize=256)(tokenizer.encode_run)
        self._names = _names_for_templates(tokenizer)
        known = tokenizer.token_id("<|im_end|>") in tokenizer.stop_ids
        self._fallback_stops = () if known else ("<|im_end|>",)
        self._lock = threading.Lock()
        self._prompts: OrderedDict[tuple[Any, ...], Rendered] = OrderedDict()
        self._close_ids: dict[bool, tuple[int, ...]] = {}

    @classmethod
    def from_metadata(cls, tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> ChatRenderer:
        """The renderer for a model file with this metadata."""
        template = metadata.get("tokenizer.chat_template")
        return cls(tokenizer, template if isinstance(template, str) and template.strip() else None)

    def warm(self) -> None:
        """Start the template process now, without waiting for it."""
        if self.template is not None:
            self._process.start()

    def close(self) -> None:
        """End the template process. The renderer may still be used: it starts another."""
        self._process.close()

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end a reply: all end-of-turn tokens of the file, and the one its template closes a reply with."""
        close = self._try_close()
        return self.tokenizer.stop_ids | {token for token in close[:1] if self.tokenizer.is_control(token)}

    def render_prompt(
        self,
        turns: Sequence[Turn],
        *,
        resume: bool = False,
        add_generation_prompt: bool = True,
        fallback: bool = False,
    ) -> Rendered:
        """The prompt for the next reply to ``turns``, or, with ``resume``, to go on with the last (assistant's) turn.

        Ids of replies that do not fit their text (edited, or another model's) are not used. ``fallback``: ChatML
        instead of the file's template. Errors: ``TemplateError``, ``TokenizerError``.
        """
        fit = [not turn.ids or ids_fit(self.tokenizer, turn) for turn in turns]
        turns = tuple(turn if ok else replace(turn, ids=None) for turn, ok in zip(turns, fit, strict=True))
        if not turns or (resume and turns[-1].role != "assistant"):
            raise TemplateError("There is no message to answer." if not turns else "There is no reply to go on with.")
        fallback = fallback or self.template is None
        rendered = self._prompt(turns, resume, add_generation_prompt, fallback)
        last = max((i for i, turn in enumerate(turns) if turn.role == "assistant" and turn.ids), default=0)
        if not last or (resume and last == len(turns) - 1):
            return rendered
        before = self._prompt(turns[:last], False, True, fallback)
        return _with_rewrite(rendered, before.ids + (turns[last].ids or ()))

    def render_turn(self, text: str, history: Sequence[Turn] = ()) -> tuple[int, ...]:
        """Ids that a new user turn adds, generation prompt included.

        They follow the prompt of the last reply in ``history``, that reply and ``render_close``; with no reply yet they
        are the whole prompt.
        """
        rendered = self.render_prompt([*history, Turn("user", text)])
        replies = [i for i, turn in enumerate(history) if turn.role == "assistant"]
        ends = [span.end for span in rendered.spans if replies and span.turn == replies[-1]]
        if not ends:
            return rendered.ids
        close = self.render_close()
        rest = rendered.ids[ends[-1] :]
        return rest[len(close) :] if rest[: len(close)] == close else rest

    def render_close(self, *, fallback: bool = False) -> tuple[int, ...]:
        """Ids that close an assistant's turn, as far as they do not depend on what comes next."""
        fallback = fallback or self.template is None
        known = self._close_ids.get(fallback)
        if known is None:
            turns = (Turn("user", "a"), Turn("assistant", "b"), Turn("user", "c"))
            alone = self._tail(turns[:2], fallback)
            known = self._close_ids[fallback] = _common(alone, self._tail(turns, fallback))
        return known

    def _try_close(self) -> tuple[int, ...]:
        try:
            return self.render_close()
        except TemplateError:  # a template that cannot even do this fails loudly when a prompt is rendered
            return ()

    def _tail(self, turns: tuple[Turn, ...], fallback: bool) -> tuple[int, ...]:
        """Ids after the text of turn 1, tokenized apart from it as they are after a reply."""
        segments = self._segments(turns, False, fallback)
        last = max((i for i, (_, turn, _) in enumerate(segments) if turn == 1), default=len(segments))
        ids, _ = assemble(self.tokenizer, segments[last + 1 :], turns, self._encode_run, after_reply=True)
        return tuple(ids)

    def _prompt(self, turns: tuple[Turn, ...], resume: bool, generate: bool, fallback: bool) -> Rendered:
        key = (turns, resume, generate, fallback)
        with self._lock:
            if key in self._prompts:
                self._prompts.move_to_end(key)
                return self._prompts[key]
        started = perf_counter_ns()
        # A reply goes on from the very prompt it was given: the template has no say in it.
        segments = self._segments(turns[:-1], True, fallback) if resume else self._segments(turns, generate, fallback)
        opening = _after_messages(segments) if generate or resume else ""
        said = turns[-1] if resume else Turn("assistant", "")
        if said.text:
            segments.append((said.text, len(turns) - 1, 0))
        rendered_at = perf_counter_ns()
        ids, spans = assemble(self.tokenizer, segments, turns, self._encode_run)
        if said.ids and not said.text:  # a reply that was cut within its first character
            spans.append(Span(len(ids), len(ids) + len(said.ids), len(turns) - 1))
            ids += said.ids
        rendered = Rendered(
            ids=tuple(ids),
            spans=tuple(spans),
            text="".join(text for text, _, _ in segments),
            rewritten_at=None,
            used_fallback=fallback,
            template_us=(rendered_at - started) // 1000,
            tokenize_us=(perf_counter_ns() - rendered_at) // 1000,
            reasoning_open=opens_reasoning(opening + said.text, self.thinking_markers),
            stop_strings=self._fallback_stops if fallback else (),
        )
        with self._lock:
            self._prompts[key] = rendered
            while len(self._prompts) > _REMEMBERED:
                self._prompts.popitem(last=False)
        return rendered

    def _segments(self, turns: Sequence[Turn], generate: bool, fallback: bool) -> list[Segment]:
        """Render, and make sure that no control text in a message has become the template's.

        A template may do what ``Marked`` cannot follow. So where someone typed control text, render once more with that
        text broken up: if the template's own control tokens are the same, none of them came from a message.
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
        if fallback or self.template is None:
            return in_process.render(CHATML, messages, add_generation_prompt=generate, names=self._names)
        return self._process.render(self.template, messages, add_generation_prompt=generate, names=self._names)

    def _break_control_text(self, text: str, mark: str) -> str:
        names = self.tokenizer.vocabulary.tokens
        pieces = self.tokenizer.control_matcher.split(text)
        if len(pieces) <= 1 and not any(isinstance(piece, int) for piece in pieces):
            return text
        texts = [piece if isinstance(piece, str) else names[piece] for piece in pieces]
        return "".join(
            part[:1] + mark + part[1:] if isinstance(piece, int) and part not in MARKER_NAMES else part
            for piece, part in zip(pieces, texts, strict=True)
        )

    def _template_tokens(self, segments: Sequence[Segment]) -> list[int]:
        split = self.tokenizer.control_matcher.split
        return [p for text, turn, _ in segments if turn == TEMPLATE for p in split(text) if isinstance(p, int)]


def _names_for_templates(tokenizer: Tokenizer) -> dict[str, str]:
    """The special tokens' texts, which templates write themselves."""
    vocabulary = tokenizer.vocabulary
    texts = {name: vocabulary.tokens[token] for name, token in vocabulary.special.items()}
    return {f"{name}_token": texts.get(name, "") for name in ("bos", "eos", "unk")}


def _unused_character(turns: Sequence[Turn]) -> str:
    used = set().union(*(turn.text for turn in turns))
    return next((chr(sign) for sign in _SIGNS if chr(sign) not in used), "\uffff")


def _after_messages(segments: Sequence[Segment]) -> str:
    """What the template wrote after the last message: the generation prompt, and what closes that message."""
    last = max((i for i, (_, turn, _) in enumerate(segments) if turn != TEMPLATE), default=-1)
    return "".join(text for text, _, _ in segments[last + 1 :])


def _common(first: tuple[int, ...], second: tuple[int, ...]) -> tuple[int, ...]:
    count = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        count += 1
    return first[:count]


def _with_rewrite(rendered: Rendered, expected: tuple[int, ...]) -> Rendered:
    if rendered.ids[: len(expected)] == expected:
        return rendered
    same = len(_common(expected, rendered.ids))
    return replace(rendered, rewritten_at=same)
