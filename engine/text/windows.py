"""Very long runs of letters, signs or blanks, tokenized in time proportional to their length, with the same result.

Merging keeps a queue of all pairs of a word, so a word of 100,000 characters costs more than twice one of 50,000. But
whether two neighbouring tokens stay apart depends on these two alone: the best pair is always joined first, so the
first join across their border would also be made in a word that is only the two of them. Hence tokens are the right
ones for a word if each two neighbours are right for theirs. So a long text may be read in windows: each begins at a
border between two tokens of the one before, inside a run of one kind of character (where every rule that cuts words
goes on in the same way), and if both windows agree on the token after that border, all neighbours were seen together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

WINDOW = 8192
"""Characters of a window before the run in which it may end."""

_BLOCK = 2048
_MARGIN = 16
_SIGNS = re.compile(r"[^\w\s]+")


def encode_in_windows(
    text: str, encode: Callable[[str], Sequence[int]], n_bytes: Callable[[int], int], *, window: int = WINDOW
) -> list[int]:
    """``encode(text)``, in windows where the text has long runs. ``n_bytes`` is the length of a token in bytes."""
    found: list[int] = []
    start = 0
    expected: int | None = None
    while True:
        block = _next_run(text, start + window)
        end = len(text) if block is None else block + _BLOCK - _MARGIN
        ids = encode(text[start:end])
        if expected is not None and ids[0] != expected:
            return list(encode(text))
        if block is None:
            return [*found, *ids]
        index, border = _border(text[block:end].encode(), ids, n_bytes)
        if border is None:
            return list(encode(text))
        found += ids[:index]
        expected, start = ids[index], block + border


def _next_run(text: str, start: int) -> int | None:
    """Where the first block of one kind of character begins at or after ``start`` (a digit's word may be short)."""
    for block in range(start, len(text) - _BLOCK + 1, _BLOCK):
        sample = text[block : block + _BLOCK]
        if sample.isalpha() or sample.isspace() or _SIGNS.fullmatch(sample):
            return block
    return None


def _border(tail: bytes, ids: Sequence[int], n_bytes: Callable[[int], int]) -> tuple[int, int | None]:
    """The last token of ``ids`` that begins with a character in the first three quarters of ``tail``, and where."""
    index, position = len(ids), len(tail)
    while index and position > 0:
        index -= 1
        position -= n_bytes(ids[index])
        if _MARGIN * 4 <= position <= len(tail) * 3 // 4 and tail[position] & 0xC0 != 0x80:
            return index, len(tail[:position].decode())
    return 0, None
