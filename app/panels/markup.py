"""Chat templates' control tokens, which people need not see."""

from __future__ import annotations

import re

MARKUP = re.compile(
    r"<\|[^|>]*\|>(?:system|user|assistant)?|</?(?:start|end)_of_turn>(?:user|model)?|</?s>|<bos>|<eos>|\[/?INST\]"
)
"""A control token of the common templates, with the role that follows it."""


def plain(text: str) -> str:
    """A text without control tokens, on one line."""
    return " ".join(MARKUP.sub(" ", text).split())
