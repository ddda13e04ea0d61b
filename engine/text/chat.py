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
from engine.text.marked import TEMPLATE
from engine.text.prompt import assemble, ids_fit
from engine.text.template import Segment
from engine.text.template_runner import TemplateRunner
from engine.text.thinking import markers_of, opens_reasoning
from engine.text.tokenizer import Tokenizer

_REMEMBERED = 32
"""Prompts kept, so that a forecast, the prompt itself and the next turn's comparison render once."""


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
        self._templates = TemplateRunner(tokenizer, template)
        self._encode_run = lru_cache(maxsize=256)(tokenizer.encode_run)
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
        self._templates.warm()

    def close(self) -> None:
        """End the template process. The renderer may still be used: it starts another."""
        self._templates.close()

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
        if not last or turns[last - 1].role != "user" or (resume and last == len(turns) - 1):
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
        segments = self._templates.segments(turns, False, fallback)
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
        history, generate = (turns[:-1], True) if resume else (turns, generate)
        segments = self._templates.segments(history, generate, fallback)
        opening = _after_messages(segments) if generate else ""
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
