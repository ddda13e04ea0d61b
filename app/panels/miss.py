"""Why a prompt was not reused to its end, in words. Pure functions without Qt.

The engine reports a ``Miss`` in tokens; the prompt's spans say which turn a token belongs to, and the cache's chains
say whose text was stored. From these comes one cause and one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.panels.words import clock, count, shorten
from engine.port import ChainInfo, Prepared, Turn
from engine.scheduling.events import Finished, Miss


@dataclass(frozen=True, slots=True)
class Explanation:
    """A cause and its sentence; the tokens of both texts split where they part.

    ``common`` precedes the first difference; ``stored`` and ``prompt`` begin with it. Empty where there is no text
    to compare.
    """

    cause: str
    sentence: str
    note: str = ""
    common: tuple[int, ...] = ()
    stored: tuple[int, ...] = ()
    prompt: tuple[int, ...] = ()


def turn_at(prepared: Prepared | None, position: int) -> int | None:
    """The turn that a token of the prompt belongs to; -1 the template's own; None unknown."""
    if prepared is None:
        return None
    return next((s.turn for s in prepared.spans if s.start <= position < s.end), None)


def part_note(n_prompt: int, page_rows: int) -> str:
    """What the rule of whole pages leaves over at the end of a prompt."""
    rest = n_prompt - (n_prompt - 1) // page_rows * page_rows if n_prompt else 0
    if not rest or rest == page_rows:
        return ""
    verb = "fills" if rest == 1 else "fill"
    words = "The last token" if rest == 1 else f"The last {rest} tokens"
    return f"{words} {verb} only part of a page."


def explain(
    finished: Finished,
    prepared: Prepared | None,
    turns: Sequence[Turn],
    *,
    chat: str = "",
    chain: ChainInfo | None = None,
    page_rows: int = 16,
    chat_title: Callable[[str], str] = str,
) -> Explanation:
    """One cause for what ``finished`` did not reuse.

    ``chain`` is the stored chain that the miss names, where it still exists; ``chat`` the chat of this reply.
    """
    miss, n_cached, n_prompt = finished.miss, finished.n_cached, finished.n_prompt
    note = part_note(n_prompt, page_rows)
    if miss is None or miss.cause == "partial_page":
        return _partial(n_cached, n_prompt, note, page_rows)
    if miss.cause == "evicted":
        return Explanation(_evicted_cause(miss, chat_title), _from_on(miss.position, n_prompt), note)
    if miss.cause == "other_model":
        sentence = "This text was stored by another model or with other settings; pages cannot be shared between them."
        return Explanation("Another model", sentence, note)
    if miss.cause == "never_stored":
        return Explanation("Never stored", _never_stored(miss.position), note)
    return _diverged(miss, prepared, turns, chat, chain, note, chat_title)


def _partial(n_cached: int, n_prompt: int, note: str, page_rows: int) -> Explanation:
    sentence = (
        f"Everything that could be reused was: {n_cached:,} of {count(n_prompt, 'token')}. Only whole pages of"
        f" {count(page_rows, 'token')} are shared, and the last token is always computed."
    )
    return Explanation("Part of a page", sentence, note)


def _evicted_cause(miss: Miss, chat_title: Callable[[str], str]) -> str:
    when = f" at {clock(miss.evicted_at)}" if miss.evicted_at else ""
    whom = f" to make room for {chat_title(miss.evicted_for)}" if miss.evicted_for else ""
    return f"Evicted{when}{whom}"


def _from_on(position: int, n_prompt: int) -> str:
    if position <= 0:
        return f"All {count(n_prompt, 'token')} had to be computed again."
    return (
        f"The first {count(position, 'token')} were still there; from token {position + 1:,} on all was computed again."
    )


def _never_stored(position: int) -> str:
    if position <= 0:
        return "Nothing in the cache begins like this prompt."
    return f"The first {count(position, 'token')} match; nothing in the cache goes on like this prompt."


def _diverged(
    miss: Miss,
    prepared: Prepared | None,
    turns: Sequence[Turn],
    chat: str,
    chain: ChainInfo | None,
    note: str,
    chat_title: Callable[[str], str],
) -> Explanation:
    at = miss.token_position if miss.token_position >= 0 else miss.position
    cause = _diverged_cause(at, prepared, turns, chat, chain)
    origin = "the chain"
    if chain is not None and chat and chain.chat != chat:
        origin = f"the chain of {chat_title(chain.chat)}"
    elif miss.chain_label or chain is not None:
        origin = f"the chain “{shorten(chain.label if chain else miss.chain_label, 40)}”"
    when = f" stored at {clock(chain.born)}" if chain is not None else " that was stored"
    first = f"The first {count(at, 'token')} match; token" if at else "Token"
    sentence = f"{first} {at + 1:,} differs from {origin}{when}."
    common, stored, prompt = split(miss.stored_tokens, miss.prompt_tokens)
    return Explanation(cause, sentence, note, common, stored, prompt)


def _diverged_cause(
    at: int, prepared: Prepared | None, turns: Sequence[Turn], chat: str, chain: ChainInfo | None
) -> str:
    turn = turn_at(prepared, at)
    if prepared is not None and prepared.rewritten_at is not None and at >= prepared.rewritten_at:
        return "Reasoning rewritten by the template"
    if turn is None or turn >= len(turns):
        return "The text differs"
    if turn < 0:
        first = prepared.spans[0].end if prepared is not None and prepared.spans else 0
        return "System prompt changed" if at < first else "The template's own text changed"
    role = turns[turn].role
    if role == "system":
        return "System prompt changed"
    if chain is not None and chat and chain.chat != chat:
        return "A new text in this chat"
    return "Reply changed" if role == "assistant" else "Message edited"


def split(stored: Sequence[int], prompt: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The common beginning of two token lists and what follows it in each."""
    n = next((i for i, (a, b) in enumerate(zip(stored, prompt, strict=False)) if a != b), min(len(stored), len(prompt)))
    return tuple(stored[:n]), tuple(stored[n:]), tuple(prompt[n:])
