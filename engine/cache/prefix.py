"""PrefixCache: whole pages of finished histories, kept so that a prompt that starts alike need not compute them.

Donate (``insert``), attach, list (``chains``), release. A page that the cache holds has one reference of the cache;
the tree, the chains, the ledger and the explanation of a miss are modules of their own.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Sequence

from engine.cache.chains import Chain, ChainBook
from engine.cache.explain import explain
from engine.cache.ledger import EvictionLedger
from engine.cache.nodes import HashPage, Node, PageTree, hash_page
from engine.cache.pool import KVPool
from engine.cache.segments import SegmentView
from engine.cache.session import Session
from engine.errors import SessionError
from engine.port import ChainInfo, ReleaseReport, Segment
from engine.scheduling.events import Eviction, Miss


class PrefixCache:
    """The prefix cache of one pool.

    ``max_pages`` limits what it may hold (None: the pool is the limit). ``former_chats`` are chats that another model
    served before: their first miss has that cause.
    """

    is_cache = True

    def __init__(
        self,
        pool: KVPool,
        *,
        max_pages: int | None = None,
        hash_page: HashPage = hash_page,
        clock: Callable[[], float] = time.time,
        ledger_size: int = 8192,
    ) -> None:
        if pool.closed:
            raise SessionError("The KV pool of this prefix cache was closed.")
        self.pool = pool
        self.max_pages = pool.capacity_pages if max_pages is None else max_pages
        self.former_chats: set[str] = set()
        self._clock = clock
        self._tick = 0
        self._tree = PageTree(pool.page_rows, hash_page)
        self._chains = ChainBook(self._tree)
        self._ledger = EvictionLedger(ledger_size)
        self._segments = SegmentView(self._tree)
        pool.borrowers[id(self)] = self

    # What it holds

    @property
    def held_pages(self) -> int:
        """Pages that the cache has a reference to."""
        return len(self._tree.by_page)

    @property
    def n_evictable(self) -> int:
        """About how many pages ``evict`` could free now: those that no session uses and no pinned chain needs."""
        kept = set[int]()
        for chain in self._chains.all():
            if chain.pinned:
                kept.update(node.page for node in chain.leaf.path() if self.pool.refs[node.page] == 1)
        return self.pool.n_cached - len(kept)

    @property
    def version(self) -> int:
        """Changes whenever a page is stored or given up."""
        return self._tree.version

    @property
    def regrets(self) -> int:
        """How many misses asked for a page that had been evicted."""
        return self._ledger.regrets

    def borrowed_pages(self) -> Iterable[int]:
        """For the pool's books: every page it holds, once."""
        return self._tree.by_page.keys()

    def chains(self) -> tuple[ChainInfo, ...]:
        """All donated chains, oldest first."""
        return self._chains.infos()

    def segments(self, decode: Callable[[tuple[int, ...]], str] | None = None) -> tuple[Segment, ...]:
        """The compressed prefix tree, a parent before its children."""
        return self._segments.segments(self._chains.version, self.pool.refs, decode)

    def node_of(self, page: int) -> Node | None:
        """The node that holds a page (to be read only)."""
        return self._tree.by_page.get(page)

    # Attach and donate

    def match(self, tokens: Sequence[int], *, whole: bool = False) -> list[int]:
        """Pages that ``attach`` would find for a prompt; changes nothing."""
        return [node.page for node in self._tree.walk(tokens, len(tokens) - (not whole))]

    def attach(self, session: Session, tokens: Sequence[int], *, whole: bool = False) -> int:
        """Let ``session`` go on from the cached pages that ``tokens`` start with; returns how many tokens that spared.

        ``session`` may be new, or stand at a page border inside ``tokens``. At least the last token is left to be
        evaluated, because only that gives logits; ``whole`` waives this for prompts that are only to be stored.
        """
        self._check_own(session)
        if session.closed:
            raise SessionError("This session was released and cannot be used again.")
        if session.tokens != list(tokens[: session.n_past]):
            raise SessionError("A prefix can only be attached to a session whose tokens the prompt starts with.")
        if session.n_past % self.pool.page_rows:
            return 0
        path = self._tree.walk(tokens, len(tokens) - (not whole))
        fresh = path[session.n_past // self.pool.page_rows :]
        if not fresh:
            return 0
        spared = [token for node in fresh for token in node.tokens]
        session.adopt([node.page for node in fresh], spared)
        now = self._clock()
        self._touch(path, now)
        for node in fresh:
            node.hits += 1
        self._chains.hit(path[-1], now)
        return len(spared)

    def insert(
        self,
        session: Session,
        tokens: Sequence[int] | None = None,
        label: str = "",
        *,
        chat: str = "",
        grows: int | None = None,
    ) -> int | None:
        """Donate the whole pages of what ``session`` has evaluated and return the id of their chain (None: no page).

        ``tokens``, if given, is the history to donate, a prefix of ``session.tokens``. A later donation of the same
        chat that goes on from a chain extends it, and so does one that names the chain it ``grows``.
        """
        self._check_own(session)
        history = session.tokens if tokens is None else list(tokens)
        if tokens is not None and history != session.tokens[: len(history)]:
            raise SessionError("Only tokens that the session has evaluated can be donated.")
        now = self._clock()
        path = self._store(session, history, now)
        if not path:
            return None
        self._touch(path, now)
        return self._chains.donate(path, history, label, chat, now, grows).id

    def _store(self, session: Session, history: Sequence[int], now: float) -> list[Node]:
        """Nodes for the whole pages of ``history``, as far as the budget allows."""
        rows, node = self.pool.page_rows, self._tree.root
        path: list[Node] = []
        for i in range(len(history) // rows):
            tokens = tuple(history[i * rows : (i + 1) * rows])
            child = self._tree.find(node, tokens)
            if child is None:
                if self.held_pages >= self.max_pages and not self._evict(1, "", keep=node):
                    break
                page = session.pages[i]
                self.pool.hold(page)
                child = self._tree.add(node, tokens, page, now)
                self._ledger.came_back(child)
            path.append(child)
            node = child
        return path

    # Give up

    def evict(self, n: int, *, evicted_for: str = "") -> int:
        """Free up to ``n`` pages, the least recently used leaves first; never a page in use or pinned. Returns how
        many were freed."""
        return self._evict(n, evicted_for, keep=None)

    def _evict(self, n: int, evicted_for: str, keep: Node | None) -> int:
        refs, now, freed = self.pool.refs, self._clock(), 0
        heap = [(leaf.used, leaf.id, leaf) for leaf in self._tree.leaves.values() if self._may_go(leaf, refs, keep)]
        heapq.heapify(heap)
        while heap and freed < n:
            leaf = heapq.heappop(heap)[2]
            parent = leaf.parent
            assert parent is not None, "the root is no leaf"
            self._ledger.evicted(leaf, self._chains.retreat(leaf), now, evicted_for)
            self._tree.remove(leaf)
            self.pool.unhold(leaf.page)
            freed += 1
            if parent.id in self._tree.leaves and self._may_go(parent, refs, keep):
                heapq.heappush(heap, (parent.used, parent.id, parent))
        return freed

    @staticmethod
    def _may_go(leaf: Node, refs: Sequence[int], keep: Node | None) -> bool:
        return refs[leaf.page] == 1 and not leaf.pins and leaf is not keep

    def release(self, chain: int, *, dry_run: bool = False) -> ReleaseReport:
        """Drop the pages that only this chain has; see ``ReleaseReport``. Pages in use stay with their streams."""
        return self._release([self._chains.get(chain)], dry_run)

    def release_all(self, *, dry_run: bool = False) -> ReleaseReport:
        """Drop every page that the cache holds, pinned ones too."""
        return self._release(self._chains.all(), dry_run)

    def _release(self, chains: Sequence[Chain], dry_run: bool) -> ReleaseReport:
        ids = {chain.id for chain in chains}
        nodes = {node.id: node for chain in chains for node in chain.leaf.path()}
        own = [node for node in nodes.values() if node.chains <= ids]
        others = {id for node in nodes.values() for id in node.chains} - ids
        shared = sum(1 for node in own if self.pool.refs[node.page] > 1)
        report = ReleaseReport(
            chains=tuple(sorted(ids)),
            freed=len(own) - shared,
            kept=len(nodes) - len(own),
            shared=shared,
            shared_with=tuple(self._chains.get(id).label for id in sorted(others)),
            dry_run=dry_run,
        )
        if not dry_run:
            now = self._clock()
            owner = {node.id: chain for chain in chains for node in chain.leaf.path()}
            for chain in chains:
                self._chains.forget(chain)
            for node in sorted(own, key=lambda node: -node.depth):
                self._ledger.remember(node, owner[node.id], now, "")
                self._tree.remove(node)
                self.pool.unhold(node.page)
        return report

    def pin(self, chain: int, pinned: bool = True) -> None:
        """Keep a chain from eviction, or no longer."""
        self._chains.pin(self._chains.get(chain), pinned)

    def close(self) -> None:
        """Give everything back; the pool then knows the cache no more."""
        self.release_all()
        self.pool.borrowers.pop(id(self), None)

    # Tell

    def explain(self, prompt: Sequence[int], chat: str = "") -> Miss | None:
        """Why ``prompt`` cannot be reused to its last whole page; None when it can."""
        miss = explain(self._tree, self._chains, self._ledger, prompt, chat)
        if chat in self.former_chats and miss is not None:
            self.former_chats.discard(chat)
            if miss.position == 0 and miss.cause in ("never_stored", "diverged"):
                return Miss("other_model", 0)
        return miss

    def take_evictions(self) -> tuple[Eviction, ...]:
        """Evictions under pressure since the last call."""
        return self._ledger.take()

    def chains_of(self, node: Node) -> list[Chain]:
        """The chains through a node (to be read only)."""
        return self._chains.of(node)

    def check_integrity(self) -> None:
        """Raise ``IntegrityError`` unless the pool's books, the tree and the chains agree."""
        self.pool.check_integrity()
        self._chains.check()

    def _touch(self, path: Sequence[Node], now: float) -> None:
        self._tick += 1
        for node in path:
            node.used, node.used_at = self._tick, now

    def _check_own(self, session: Session) -> None:
        if session.pool is not self.pool:
            raise SessionError("This session belongs to another pool than the prefix cache.")
