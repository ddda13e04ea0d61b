"""A chat job becomes a request: rendering and tokenizing, away from the engine's thread."""

from __future__ import annotations

from engine.hosting.bundle import Bundle, RenderedPrompt
from engine.port import ChatJob, Prepared
from engine.scheduling.request import Request

LABEL_LENGTH = 80


def render(bundle: Bundle, job: ChatJob) -> RenderedPrompt:
    """The prompt of a conversation. Errors: ``TemplateError``, ``TokenizerError``."""
    return bundle.renderer.render_prompt(job.turns, resume=job.resume, fallback=job.fallback)


def prepare(bundle: Bundle, job: ChatJob) -> tuple[Prepared, Request]:
    """What the sink is told of a job, and the request that it becomes. Errors as in ``render``."""
    renderer, rendered = bundle.renderer, render(bundle, job)
    prepared = Prepared(
        stream=job.id,
        prompt=rendered.ids,
        spans=rendered.spans,
        rewritten_at=rendered.rewritten_at,
        template_us=rendered.template_us,
        tokenize_us=rendered.tokenize_us,
        used_fallback=rendered.used_fallback,
        reasoning_open=rendered.reasoning_open,
    )
    request = Request(
        id=job.id,
        prompt=rendered.ids,
        max_new=job.max_new,
        sampling=job.sampling,
        stop_ids=frozenset(renderer.stop_ids),
        stop_strings=(*job.stop_strings, *rendered.stop_strings),
        close_tokens=renderer.render_close(fallback=rendered.used_fallback),
        label=job.label or label_of(job),
        chat=job.chat,
    )
    return prepared, request


def label_of(job: ChatJob) -> str:
    """What a person would recognise the conversation by: the start of its last user turn, on one line."""
    text = next((turn.text for turn in reversed(job.turns) if turn.role == "user"), "")
    line = " ".join(text[: 4 * LABEL_LENGTH].split())
    return line if len(line) <= LABEL_LENGTH else line[: LABEL_LENGTH - 1] + "…"
