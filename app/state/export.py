"""A chat as Markdown (the shown branch) or JSON (everything, with exact ids)."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path

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


def write_export(path: Path, content: str) -> None:
    """Write the whole file or nothing. Raises ``OSError``."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        scratch.write_text(content, encoding="utf-8", newline="\n")
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise
