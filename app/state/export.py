"""A chat as Markdown (the shown branch) or JSON (everything, with exact ids)."""

from __future__ import annotations

import json
from dataclasses import asdict

from app.state.document import Conversation
from app.text import tr


def to_markdown(conversation: Conversation) -> str:
    """The shown branch; each message as it was written."""
    parts = [f"# {conversation.title or tr('New chat')}"]
    if conversation.settings.system_prompt.strip():
        parts.append(f"**{tr('System')}**\n\n{conversation.settings.system_prompt}")
    for message in conversation.path():
        who = tr("You") if message.role == "user" else tr("Model")
        parts.append(f"**{who}**\n\n{message.text}")
    return "\n\n".join(parts) + "\n"


def to_json(conversation: Conversation) -> str:
    """All branches, with the ids, figures and settings."""
    return json.dumps(asdict(conversation), ensure_ascii=False, indent=2) + "\n"
