"""How well what a person typed fits a text, for lists that are searched while typing."""

from __future__ import annotations


def score(typed: str, text: str) -> int | None:
    """None: does not fit. Higher is better: whole words first, then starts of words, then letters in order.

    Every word of ``typed`` must fit; case does not matter.
    """
    folded = text.casefold()
    total = 0
    for word in typed.casefold().split():
        found = _word(word, folded)
        if found is None:
            return None
        total += found
    return total


def _word(word: str, text: str) -> int | None:
    at = text.find(word)
    if at >= 0:
        return 100 + 20 * (at == 0 or not text[at - 1].isalnum()) - min(at, 50) // 5
    place, gaps = -1, 0
    for letter in word:
        found = text.find(letter, place + 1)
        if found < 0:
            return None
        gaps += place >= 0 and found != place + 1
        place = found
    # Letters that are scattered all over a text are no match that a person meant.
    return 40 - 10 * gaps if gaps <= 2 else None
