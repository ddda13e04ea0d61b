"""From a conversation to what the engine is asked: which turns are sent, with which exact ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from unicodedata import category

from app.state.document import Conversation, Message
from engine.port import ChatJob, Forecast, ModelInfo, Turn

LABEL_CHARS = 48
_TURNS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def vocabulary_of(model: ModelInfo | None) -> str:
    """A name for the vocabulary of a model: exact ids are passed back only to a model with the same one."""
    return f"{model.architecture}/{model.name}/{model.n_vocab}" if model else ""


def one_line(text: str, limit: int = LABEL_CHARS) -> str:
    """The text on one line, cut with an ellipsis at ``limit`` characters.

    Characters that show nothing but steer a terminal or turn the direction of what follows are left out.
    """
    shown = (" " if category(char) == "Cc" else char for char in text[: 4 * limit] if char not in _TURNS)
    line = " ".join("".join(shown).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def turns_of(conversation: Conversation, messages: Sequence[Message], vocabulary: str) -> tuple[Turn, ...]:
    """The turns of a branch, the chat's system prompt first, without those that were dropped."""
    prompt = conversation.settings.system_prompt
    turns = [Turn("system", prompt)] if prompt.strip() else []
    for message in messages[n_dropped(conversation, messages) :]:
        exact = message.role == "assistant" and message.model == vocabulary and bool(message.ids)
        turns.append(Turn(message.role, message.text, tuple(message.ids) if exact else None))
    return tuple(turns)


def job_for_reply(
    conversation: Conversation,
    reply: Message,
    *,
    stream: int,
    vocabulary: str,
    fresh_seed: bool,
    resume: bool,
) -> ChatJob:
    """The job that writes ``reply``, or with ``resume`` goes on with what it holds."""
    path = conversation.path_to(reply.id)
    settings = conversation.settings
    question = path[-2].text if len(path) > 1 else ""
    sampling = replace(settings.sampling, seed=None) if fresh_seed or resume else settings.sampling
    return ChatJob(
        id=stream,
        chat=conversation.id,
        turns=turns_of(conversation, path if resume else path[:-1], vocabulary),
        sampling=sampling,
        max_new=settings.max_new,
        label=one_line(question),
        resume=resume,
        fallback=settings.plain_template,
    )


def job_for_draft(conversation: Conversation, before: Sequence[Message], draft: str, *, vocabulary: str) -> ChatJob:
    """What would be sent if the draft were sent now after these messages (for a forecast)."""
    turns = turns_of(conversation, before, vocabulary)
    return ChatJob(
        id=0,
        chat=conversation.id,
        turns=(*turns, Turn("user", draft)),
        sampling=conversation.settings.sampling,
        max_new=conversation.settings.max_new,
        label=one_line(draft),
        fallback=conversation.settings.plain_template,
    )


def n_dropped(conversation: Conversation, messages: Sequence[Message]) -> int:
    """How many of the first messages are not sent any more."""
    kept = conversation.first_kept
    return next((n for n, message in enumerate(messages) if message.id == kept), 0) if kept else 0


def first_kept(conversation: Conversation, path: Sequence[Message], forecast: Forecast, room: int) -> str:
    """The message from which on the turns of ``path`` fit into ``room`` tokens, by the engine's count per turn.

    The last message is always kept, and the first kept one is a user's.
    """
    skipped = n_dropped(conversation, path)
    system = 1 if conversation.settings.system_prompt.strip() else 0
    counts: dict[int, int] = {}
    for span in forecast.spans:
        counts[span.turn] = counts.get(span.turn, 0) + span.end - span.start
    left = forecast.n_prompt
    for number in range(skipped, len(path) - 1):
        if left <= room and path[number].role == "user":
            return path[number].id
        left -= counts.get(number - skipped + system, 0)
    return path[-1].id
