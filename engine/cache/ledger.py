"""The eviction ledger: which pages the cache gave up, when and for whom, and whether they were asked for again."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, replace

from engine.cache.chains import Chain
from engine.cache.nodes import Node, Tokens
from engine.scheduling.events import Eviction


@dataclass(frozen=True, slots=True)
class Gone:
    """A page that was cached once. ``evicted_for`` is empty when it was released by hand."""

    parent_hash: int
    tokens: Tokens
    depth: int
    at: float
    chain: int
    label: str
    evicted_for: str


class EvictionLedger:
    """Remembers the last ``size`` pages that went, and what went since ``take`` was called, summed up by chain.

    ``Miss.evicted_at`` of a prompt that asks for such a page equals ``Eviction.at`` of the eviction that it regrets.
    """

    def __init__(self, size: int = 8192) -> None:
        self._size = size
        self._gone: OrderedDict[int, Gone] = OrderedDict()
        self._pending: dict[tuple[int, float], Eviction] = {}
        self.regrets = 0

    def __len__(self) -> int:
        return len(self._gone)

    def remember(self, node: Node, chain: Chain, at: float, evicted_for: str) -> None:
        """A page leaves the cache."""
        assert node.parent is not None, "the root is no page"
        gone = Gone(node.parent.hash, node.tokens, node.depth, at, chain.id, chain.label, evicted_for)
        self._gone[node.hash] = gone
        self._gone.move_to_end(node.hash)
        if len(self._gone) > self._size:
            self._gone.popitem(last=False)

    def evicted(self, node: Node, chain: Chain, at: float, evicted_for: str) -> None:
        """``remember``, and report it as an eviction under pressure."""
        self.remember(node, chain, at, evicted_for)
        key = (chain.id, at)
        before = self._pending.get(key)
        if before is not None:
            self._pending[key] = replace(before, pages=before.pages + 1)
            return
        idle = at - node.used_at
        self._pending[key] = Eviction(
            at, chain.id, chain.label, chain.chat, 1, at - chain.born, idle, chain.hits, evicted_for
        )

    def find(self, parent: Node, hash: int, tokens: Tokens) -> Gone | None:
        """What became of the page that followed ``parent`` with these tokens, if it was here."""
        gone = self._gone.get(hash)
        if gone is None or gone.tokens != tokens or gone.parent_hash != parent.hash or gone.depth != parent.depth + 1:
            return None
        return gone

    def came_back(self, node: Node) -> None:
        """The page was computed and stored again: it is no longer gone."""
        self._gone.pop(node.hash, None)

    def take(self) -> tuple[Eviction, ...]:
        """The evictions since the last call."""
        taken = tuple(self._pending.values())
        self._pending.clear()
        return taken
