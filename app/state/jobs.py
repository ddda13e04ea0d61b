"""From a conversation to what the engine is asked: which turns are sent, with which exact ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from app.state.document import Conversation, Message
from app.state.sampling import ChatSettings
from engine.port import ChatJob, ModelInfo, Turn

LABEL_CHARS = 48


def vocabulary_of(model: ModelInfo | None) -> str:
    """A name for the vocabulary of a model: exact ids are passed back only to a model with the same one."""
    return f"{model.architecture}/{model.name}/{model.n_vocab}" if model else ""


def one_line(text: str, limit: int = LABEL_CHARS) -> str:
    """The text on one line, cut with an ellipsis at ``limit`` characters."""
    line = " ".join(text[: 4 * limit].split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


def turns_of(messages: Sequence[Message], settings: ChatSettings, vocabulary: str) -> tuple[Turn, ...]:
    """The turns of a branch, the chat's system prompt first."""
    turns = [Turn("system", settings.system_prompt)] if settings.system_prompt.strip() else []
    for message in messages:
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
        turns=turns_of(path if resume else path[:-1], settings, vocabulary),
        sampling=sampling,
        max_new=settings.max_new,
        label=one_line(question),
        resume=resume,
    )


def job_for_draft(conversation: Conversation, before: Sequence[Message], draft: str, *, vocabulary: str) -> ChatJob:
    """What would be sent if the draft were sent now after these messages (for a forecast)."""
    turns = turns_of(before, conversation.settings, vocabulary)
    return ChatJob(
        id=0,
        chat=conversation.id,
        turns=(*turns, Turn("user", draft)),
        sampling=conversation.settings.sampling,
        max_new=conversation.settings.max_new,
        label=one_line(draft),
    )
