"""Why a prompt was not reused to its end, in words. Pure functions without Qt.

The engine reports a ``Miss`` in tokens; the prompt's spans say which turn a token belongs to, and the cache's chains
say whose text was stored. From these comes one cause and one sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from app.panels.words import clock, count, shorten
from app.text import tr, trn
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
    one = "The last token fills only part of a page."
    return trn(one, "The last {n} tokens fill only part of a page.", rest)


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
        return _partial(miss, n_cached, n_prompt, note, page_rows)
    if miss.cause == "evicted":
        return Explanation(_evicted_cause(miss, chat_title), _from_on(miss.position, n_prompt), note)
    if miss.cause == "other_model":
        sentence = tr(
            "This text was stored by another model or with other settings; pages cannot be shared between them."
        )
        return Explanation(tr("Another model"), sentence, note)
    if miss.cause == "never_stored":
        return Explanation(tr("Never stored"), _never_stored(miss.position), note)
    cause, other = _diverged_cause(miss, prepared, turns, chat, chain)
    common, stored, prompt = split(miss.stored_tokens, miss.prompt_tokens)
    sentence = _diverged_sentence(_at(miss), miss, chain, chat_title if other else None)
    return Explanation(cause, sentence, note, common, stored, prompt)


def _partial(miss: Miss | None, n_cached: int, n_prompt: int, note: str, page_rows: int) -> Explanation:
    if miss is not None and miss.chain_label:
        sentence = tr(
            "The chain “{label}” ends inside the page that begins at token {next:,}; only whole pages of {page} are"
            " shared.",
            label=shorten(miss.chain_label, 40),
            next=miss.position + 1,
            page=count(page_rows, "token"),
        )
        return Explanation(tr("Part of a page"), sentence, note)
    sentence = tr(
        "Everything that could be reused was: {cached:,} of {prompt}. Only whole pages of {page} are shared, and the"
        " last token is always computed.",
        cached=n_cached,
        prompt=count(n_prompt, "token"),
        page=count(page_rows, "token"),
    )
    return Explanation(tr("Part of a page"), sentence, note)


def _evicted_cause(miss: Miss, chat_title: Callable[[str], str]) -> str:
    """The brief cause. What went for nobody's sake was released by hand."""
    chat = chat_title(miss.evicted_for) if miss.evicted_for else ""
    if miss.evicted_at and chat:
        return tr("Evicted at {time} to make room for {chat}", time=clock(miss.evicted_at), chat=chat)
    if miss.evicted_at:
        return tr("Released at {time}", time=clock(miss.evicted_at))
    return tr("Evicted to make room for {chat}", chat=chat) if chat else tr("Evicted")


def _from_on(position: int, n_prompt: int) -> str:
    if position <= 0:
        return tr("All {prompt} had to be computed again.", prompt=count(n_prompt, "token"))
    return tr(
        "The first {kept} were still there; from token {next:,} on all was computed again.",
        kept=count(position, "token"),
        next=position + 1,
    )


def _never_stored(position: int) -> str:
    if position <= 0:
        return tr("Nothing in the cache begins like this prompt.")
    return tr("The first {n} match; nothing in the cache goes on like this prompt.", n=count(position, "token"))


def _at(miss: Miss) -> int:
    return miss.token_position if miss.token_position >= 0 else miss.position


def _diverged_sentence(at: int, miss: Miss, chain: ChainInfo | None, chat_title: Callable[[str], str] | None) -> str:
    """Where the texts part, and from whose chain; ``chat_title`` is given when it is another chat's."""
    if chain is not None and chat_title is not None:
        origin = tr("the chain of {chat}", chat=chat_title(chain.chat))
    elif label := chain.label if chain is not None else miss.chain_label:
        origin = tr("the chain “{label}”", label=shorten(label, 40))
    else:
        origin = tr("the chain")
    when = tr("stored at {time}", time=clock(chain.born)) if chain is not None else tr("that was stored")
    if not at:
        return tr("The first token differs from {origin} {when}.", origin=origin, when=when)
    first = "The first {n} match; token {next:,} differs from {origin} {when}."
    return tr(first, n=count(at, "token"), next=at + 1, origin=origin, when=when)


def _diverged_cause(
    miss: Miss, prepared: Prepared | None, turns: Sequence[Turn], chat: str, chain: ChainInfo | None
) -> tuple[str, bool]:
    """What happened to the text, and whether the stored chain is another chat's."""
    at = _at(miss)
    turn = turn_at(prepared, at)
    other = chain is not None and bool(chat) and chain.chat != chat
    if prepared is not None and prepared.rewritten_at is not None and at >= prepared.rewritten_at:
        return tr("Reasoning rewritten by the template"), other
    if turn is None or turn >= len(turns):
        return tr("The text differs"), other
    if turn < 0:
        first = prepared.spans[0].end if prepared is not None and prepared.spans else 0
        return (tr("System prompt changed") if at < first else tr("The template's own text changed")), other
    if other:
        return tr("Another text in this chat"), True
    causes = {"system": "System prompt changed", "assistant": "Reply changed", "user": "Message edited"}
    return tr(causes[turns[turn].role]), False


def split(stored: Sequence[int], prompt: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """The common beginning of two token lists and what follows it in each."""
    n = next((i for i, (a, b) in enumerate(zip(stored, prompt, strict=False)) if a != b), min(len(stored), len(prompt)))
    return tuple(stored[:n]), tuple(stored[n:]), tuple(prompt[n:])
