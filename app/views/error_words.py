"""The one place that turns the engine's error codes into what a person reads and can do next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from app.state.document import UNANSWERED
from app.text import tr

NextStep = Literal[
    "retry", "ask_again", "plain_template", "new_chat", "show_cache", "choose_model", "drop_oldest", "edit", "settings"
]


@dataclass(frozen=True, slots=True)
class ErrorWords:
    """What happened, and what can be done about it, the likeliest first; ``body`` where the engine has no sentence."""

    title: str
    steps: tuple[NextStep, ...]
    body: str = ""


def words_for(code: str) -> ErrorWords:
    """The title and the next steps for an error code; the engine's own sentence says the details."""
    if code == UNANSWERED:
        return ErrorWords(
            tr("This question was not answered"), ("ask_again",), tr("KVScope was closed before the model came to it.")
        )
    known: dict[str, tuple[str, tuple[NextStep, ...]]] = {
        "not_loaded": (tr("No model is loaded"), ("choose_model", "retry")),
        "model_file": (tr("The model file cannot be read"), ("choose_model", "retry")),
        "unsupported_model": (tr("This model is not supported"), ("choose_model",)),
        "model_memory": (tr("Not enough memory for this model"), ("choose_model", "retry")),
        "prompt_too_long": (tr("The chat has outgrown the context"), ("drop_oldest", "edit", "new_chat")),
        "pool_exhausted": (tr("The KV memory is full"), ("retry", "show_cache")),
        "queue_full": (tr("Too many chats are waiting"), ("retry",)),
        "template": (tr("The chat template refused this conversation"), ("plain_template", "retry", "settings")),
        "tokenizer": (tr("The text cannot be tokenized"), ("edit", "retry")),
        "integrity": (tr("The engine found an error in its own books"), ("retry", "show_cache")),
    }
    title, steps = known.get(code, (tr("This reply failed"), ("retry",)))
    return ErrorWords(title, steps)


def step_words(step: NextStep) -> str:
    """What the button for a step says."""
    return {
        "retry": tr("Try again"),
        "ask_again": tr("Ask again"),
        "plain_template": tr("Use the plain template"),
        "new_chat": tr("New chat"),
        "show_cache": tr("Show the cache"),
        "choose_model": tr("Choose a model…"),
        "drop_oldest": tr("Leave out the oldest turns"),
        "edit": tr("Edit the message"),
        "settings": tr("Chat settings…"),
    }[step]
