"""Chains: what was donated, as a person sees it — a path of cached pages with a label, a chat and its hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from engine.cache.nodes import Node, PageTree
from engine.errors import IntegrityError, UnknownChainError
from engine.port import ChainInfo


@dataclass(slots=True, eq=False)
class Chain:
    """A donated history. ``leaf`` is its last live page, ``n_tokens`` the donated length, ``tail`` its last tokens
    that fill no page. Only its tail can be evicted, so the live pages are always those from the root to ``leaf``."""

    id: int
    leaf: Node
    n_tokens: int
    tail: tuple[int, ...]
    label: str
    chat: str
    born: float
    hits: int = 0
    last_hit: float | None = None
    pinned: bool = False
    view: tuple[int, ChainInfo] | None = field(default=None, repr=False)
    """The last ``ChainInfo`` and the version of the book that it shows."""


class ChainBook:
    """All chains of a tree. Each node names the chains that run through it; this keeps those names right."""

    def __init__(self, tree: PageTree) -> None:
        self._tree = tree
        self._chains: dict[int, Chain] = {}
        self._last_id = 0
        self.version = 0

    def __len__(self) -> int:
        return len(self._chains)

    def get(self, id: int) -> Chain:
        """The chain with this id, or ``UnknownChainError``."""
        chain = self._chains.get(id)
        if chain is None:
            raise UnknownChainError(f"There is no chain {id}: it was released or evicted.")
        return chain

    def all(self) -> list[Chain]:
        """All chains, oldest first."""
        return list(self._chains.values())

    def of(self, node: Node) -> list[Chain]:
        """The chains that run through a node, oldest first."""
        return [self._chains[id] for id in sorted(node.chains)]

    def donate(
        self, path: Sequence[Node], tokens: Sequence[int], label: str, chat: str, now: float, grows: int | None = None
    ) -> Chain:
        """The chain of a donation along ``path``. A chat that goes on extends its chain, and so does whoever names the
        chain that it ``grows``; the same donation again is the same chain; anything else is a new one."""
        leaf = path[-1]
        rest = tuple(tokens[leaf.depth * self._tree.page_rows :])
        tail = rest if len(rest) < self._tree.page_rows else ()  # more is left when the cache's budget is used up
        chain = self._known(path, label, chat, grows)
        if chain is None:
            self._last_id += 1
            chain = Chain(self._last_id, self._tree.root, 0, (), label, chat, now)
            self._chains[chain.id] = chain
        if leaf is chain.leaf or leaf.depth > chain.leaf.depth:
            for node in path[chain.leaf.depth :]:
                node.chains.add(chain.id)
                node.pins += chain.pinned
            chain.leaf, chain.n_tokens, chain.tail = leaf, len(tokens), tail
        chain.label = label or chain.label
        self.version += 1
        return chain

    def _known(self, path: Sequence[Node], label: str, chat: str, grows: int | None) -> Chain | None:
        for chain in reversed(self.of(path[0])):
            depth = chain.leaf.depth
            on_path = depth <= len(path) and path[depth - 1] is chain.leaf
            if chain.id == grows or (chat and chain.chat == chat):
                if on_path or chain.id in path[-1].chains:
                    return chain
            elif chain.leaf is path[-1] and (chain.chat, chain.label) == (chat, label):
                return chain
        return None

    def hit(self, node: Node, now: float) -> None:
        """An attach ended at ``node``: every chain through it was of use."""
        for chain in self.of(node):
            chain.hits += 1
            chain.last_hit = now
        self.version += 1

    def pin(self, chain: Chain, pinned: bool) -> None:
        """Keep the chain's pages from eviction, or no longer."""
        if chain.pinned == pinned:
            return
        chain.pinned = pinned
        for node in chain.leaf.path():
            node.pins += 1 if pinned else -1
        self.version += 1

    def retreat(self, leaf: Node) -> Chain:
        """A leaf of the tree is being evicted: the chains that end there lose their last page; returns the newest.

        A chain that has no page of its own left is forgotten: what it still had belongs to others.
        """
        parent = leaf.parent
        assert parent is not None, "the root is no page"
        ended = self.of(leaf)
        for chain in ended:
            chain.n_tokens = parent.depth * self._tree.page_rows
            chain.leaf, chain.tail = parent, ()
            if parent is self._tree.root or len(parent.chains) > 1:
                self.forget(chain)
        self.version += 1
        return ended[-1]

    def forget(self, chain: Chain) -> None:
        """Strike a chain and its name on its pages; the pages stay for whoever asks next to drop them."""
        del self._chains[chain.id]
        for node in chain.leaf.path():
            node.chains.discard(chain.id)
            node.pins -= chain.pinned
        self.version += 1

    def check(self) -> None:
        """Raise ``IntegrityError`` unless nodes and chains name each other, and pins are counted right."""
        for node in self._tree:
            through = [self._chains[id] for id in node.chains if id in self._chains]
            if not through or len(through) != len(node.chains):
                raise IntegrityError(f"Cached page {node.page} belongs to no chain, or to one that is gone.")
            if node.pins != sum(chain.pinned for chain in through):
                raise IntegrityError(f"Cached page {node.page} is pinned {node.pins} times, its chains say otherwise.")
        for chain in self._chains.values():
            path = chain.leaf.path()
            if not path or any(chain.id not in node.chains or node not in self._tree for node in path):
                raise IntegrityError(f"Chain {chain.id} runs over pages that are not cached.")
        named = sum(len(node.chains) for node in self._tree)
        if named != sum(chain.leaf.depth for chain in self._chains.values()):
            raise IntegrityError("Cached pages name a chain that does not run through them.")

    def infos(self) -> tuple[ChainInfo, ...]:
        """All chains as frozen data."""
        return tuple(self._info(chain) for chain in self._chains.values())

    def _info(self, chain: Chain) -> ChainInfo:
        if chain.view is not None and chain.view[0] == self.version:
            return chain.view[1]
        path = chain.leaf.path()
        info = ChainInfo(
            id=chain.id,
            label=chain.label,
            chat=chain.chat,
            n_tokens=chain.n_tokens,
            pages=tuple(node.page for node in path),
            n_own=sum(1 for node in path if len(node.chains) == 1),
            hits=chain.hits,
            born=chain.born,
            last_hit=chain.last_hit,
            pinned=chain.pinned,
        )
        chain.view = (self.version, info)
        return info
