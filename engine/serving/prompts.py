"""What a client asked for as a request to the engine; runs on worker threads, because templates and tokenizers wait."""

from __future__ import annotations

from dataclasses import replace

from engine.hosting.bundle import Bundle
from engine.hosting.prepare import label_of, prepare
from engine.port import ChatJob, Turn
from engine.scheduling.request import Constraint, Request
from engine.serving import API_CHAT
from engine.serving.messages import Wanted


def chat_request(bundle: Bundle, stream: int, turns: tuple[Turn, ...], wanted: Wanted) -> Request:
    """A reply to a conversation. Errors: ``TemplateError``, ``TokenizerError``."""
    job = ChatJob(
        id=stream,
        chat=API_CHAT,
        turns=turns,
        sampling=wanted.sampling,
        max_new=wanted.max_new or bundle.info.n_ctx,
        stop_strings=wanted.stop_strings,
    )
    return replace(prepare(bundle, job)[1], logprobs=wanted.logprobs)


def plain_request(bundle: Bundle, stream: int, prompt: str | tuple[int, ...], wanted: Wanted) -> Request:
    """Text that goes on from a prompt. Errors: ``TokenizerError``."""
    if isinstance(prompt, str):
        ids = tuple(bundle.encode_prompt(prompt))
        label = label_of(ChatJob(stream, API_CHAT, (Turn("user", prompt),)))
    else:
        ids, label = prompt, f"{len(prompt)} token ids"
    return Request(
        id=stream,
        prompt=ids,
        max_new=wanted.max_new or bundle.info.n_ctx,
        sampling=wanted.sampling,
        stop_ids=frozenset(bundle.renderer.stop_ids),
        stop_strings=wanted.stop_strings,
        label=label,
        chat=API_CHAT,
        logprobs=wanted.logprobs,
    )


def constrained(request: Request, constraint: Constraint) -> Request:
    """The same, within a grammar. Stop strings still count, so they may cut the JSON short."""
    return replace(request, constraint=constraint)
