"""The one catalogue of words: every text a person sees passes through ``tr`` or ``trn``.

English is the key. A translation is a mapping from the English text to the other language's, installed with ``use``.
Values are filled in by name (``str.format``), so that a translation may order them differently.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_catalogue: dict[str, str] = {}


def use(catalogue: Mapping[str, str]) -> None:
    """Install a translation; an empty mapping goes back to English."""
    _catalogue.clear()
    _catalogue.update(catalogue)


def tr(text: str, **values: Any) -> str:
    """The text in the person's language with ``values`` filled in: ``tr("{n:,} tokens", n=1200)``."""
    text = _catalogue.get(text, text)
    return text.format(**values) if values else text


def trn(one: str, many: str, n: int, **values: Any) -> str:
    """The singular text when ``n`` is 1, else the plural; ``n`` is filled in like the other values."""
    return tr(one if n == 1 else many, n=n, **values)
