"""Why a prompt was not reused to its last whole page: one cause, with the tokens around the first difference."""

from __future__ import annotations

from collections.abc import Sequence

from engine.cache.chains import Chain, ChainBook
from engine.cache.ledger import EvictionLedger
from engine.cache.nodes import Node, PageTree
from engine.scheduling.events import Miss

WINDOW = 8
"""Tokens shown before and after the first difference."""


def explain(tree: PageTree, chains: ChainBook, ledger: EvictionLedger, prompt: Sequence[int], chat: str) -> Miss | None:
    """The cause of the first page of ``prompt`` that must be computed though it is whole; None if there is none.

    evicted       exactly this page was cached once, and went
    diverged      a stored history goes on differently inside this page. One of the same chat counts from its first
                  token on, one of another chat if it shares whole pages or half of the first
    partial_page  a stored history ends inside this page, or the prompt itself is not longer than a page
    never_stored  nothing like it was ever here
    """
    rows = tree.page_rows
    cap = (len(prompt) - 1) // rows * rows
    if cap <= 0:
        return Miss("partial_page", 0)
    path = tree.walk(prompt, cap)
    position = len(path) * rows
    if position == cap:
        return None
    node = path[-1] if path else tree.root
    page = tuple(prompt[position : position + rows])
    gone = ledger.find(node, tree.hash_page(node.hash, page), page)
    if gone is not None:
        ledger.regrets += 1
        return Miss(
            "evicted",
            position,
            chain=gone.chain,
            chain_label=gone.label,
            evicted_at=gone.at,
            evicted_for=gone.evicted_for,
        )
    nearest = _nearest(chains, node, page, chat)
    if nearest is None:
        return Miss("never_stored", position)
    chain, stored, common = nearest
    same_chat = bool(chat) and chain.chat == chat
    if not (path or same_chat or common >= rows // 2):
        return Miss("never_stored", position)
    if common == len(stored):
        return Miss("partial_page", position, position + common, chain.id, chain.label)
    return _diverged(chain, prompt, position + common)


def _nearest(
    chains: ChainBook, node: Node, page: tuple[int, ...], chat: str
) -> tuple[Chain, tuple[int, ...], int] | None:
    """(chain, what it stores after ``node``, length of what that has in common with ``page``), the best of all:
    the same chat first, then the longest common start, then the newest."""
    found = []
    for child in node.children.values():
        common = _common(child.tokens, page)
        found += [(chain, child.tokens, common) for chain in chains.of(child)]
    ending = chains.of(node) if node.parent is not None else ()
    found += [(chain, chain.tail, _common(chain.tail, page)) for chain in ending if chain.leaf is node and chain.tail]
    found = [f for f in found if f[2] or (chat and f[0].chat == chat)]
    if not found:
        return None
    return max(found, key=lambda f: (bool(chat) and f[0].chat == chat, f[2], f[0].id))


def _common(a: Sequence[int], b: Sequence[int]) -> int:
    for i, (x, y) in enumerate(zip(a, b, strict=False)):
        if x != y:
            return i
    return min(len(a), len(b))


def _diverged(chain: Chain, prompt: Sequence[int], at: int) -> Miss:
    history = [token for node in chain.leaf.path() for token in node.tokens]
    history.extend(chain.tail)
    start, end = max(0, at - WINDOW), at + WINDOW
    return Miss(
        "diverged",
        at // len(chain.leaf.tokens) * len(chain.leaf.tokens),
        at,
        chain.id,
        chain.label,
        tuple(history[start:end]),
        tuple(prompt[start:end]),
    )
