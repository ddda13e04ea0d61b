"""Where each segment of the prefix tree is drawn: an icicle whose widths are tokens. No Qt here.

A segment is as wide as all tokens at and below it; its children stand under it from the left, so the part with
nothing below is its own share.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from engine.port import ChainInfo, Segment


@dataclass(frozen=True, slots=True)
class Node:
    """A segment in place: ``x`` and ``width`` are 0..1 of the whole, ``level`` counts from the top."""

    segment: Segment
    level: int
    x: float
    width: float
    total: int


class TreeLayout:
    """The placed segments of one snapshot, and the relations that moving about needs."""

    def __init__(self, segments: Sequence[Segment] = (), root: int | None = None) -> None:
        self.by_id = {s.id: s for s in segments}
        self.children: dict[int | None, list[int]] = {}
        for segment in segments:
            parent = segment.parent if segment.parent in self.by_id else None
            self.children.setdefault(parent, []).append(segment.id)
        self.totals = self._totals()
        self.root = root if root in self.by_id else None
        self.nodes: dict[int, Node] = {}
        self._place()
        self.n_levels = 1 + max((n.level for n in self.nodes.values()), default=-1)

    def _order(self) -> list[int]:
        """Segment ids, parents before children."""
        order, queue = [], list(self.children.get(None, ()))
        while queue:
            at = queue.pop()
            order.append(at)
            queue.extend(self.children.get(at, ()))
        return order

    def _totals(self) -> dict[int, int]:
        totals = {i: s.n_tokens for i, s in self.by_id.items()}
        for at in reversed(self._order()):
            parent = self.by_id[at].parent
            if parent in totals:
                totals[parent] += totals[at]
        return totals

    def _place(self) -> None:
        top = [self.root] if self.root is not None else self.children.get(None, [])
        whole = sum(self.totals[i] for i in top)
        queue: list[tuple[int, int, float]] = []
        left = 0
        for at in top:
            queue.append((at, 0, left / whole if whole else 0.0))
            left += self.totals[at]
        while queue:
            at, level, x = queue.pop()
            width = self.totals[at] / whole if whole else 0.0
            self.nodes[at] = Node(self.by_id[at], level, x, width, self.totals[at])
            inner = x
            for child in self.children.get(at, ()):
                queue.append((child, level + 1, inner))
                inner += self.totals[child] / whole if whole else 0.0

    def path(self, segment: int) -> list[int]:
        """The segments from a root down to this one."""
        found: list[int] = []
        at: int | None = segment
        while at is not None and at in self.by_id:
            found.append(at)
            at = self.by_id[at].parent
        return found[::-1]

    def end_of(self, chain: int) -> int | None:
        """The deepest segment of a chain."""
        mine = [s for s in self.by_id.values() if chain in s.chains]
        return max(mine, key=lambda s: s.depth).id if mine else None

    def neighbour(self, segment: int, direction: str) -> int | None:
        """The segment ``up``, ``down``, ``left`` or ``right`` of one, None at the edge."""
        here = self.nodes.get(segment)
        if here is None:
            return next(iter(self.nodes), None)
        if direction == "up":
            parent = here.segment.parent
            return parent if parent in self.nodes else None
        if direction == "down":
            below = [c for c in self.children.get(segment, ()) if c in self.nodes]
            return below[0] if below else None
        row = sorted((n for n in self.nodes.values() if n.level == here.level), key=lambda n: n.x)
        at = next(i for i, n in enumerate(row) if n.segment.id == segment) + (1 if direction == "right" else -1)
        return row[at].segment.id if 0 <= at < len(row) else None


def chains_ending(segment: Segment, layout: TreeLayout) -> list[int]:
    """The chains whose last page is in this segment (they go through no child of it)."""
    deeper = {c for child in layout.children.get(segment.id, ()) for c in layout.by_id[child].chains}
    return [c for c in segment.chains if c not in deeper]


def preferred_chain(segment: Segment, layout: TreeLayout, chains: dict[int, ChainInfo]) -> int | None:
    """The chain that a click on a segment means: one that ends here, else the one used last of those through it."""
    candidates = chains_ending(segment, layout) or list(segment.chains)
    known = [chains[c] for c in candidates if c in chains]
    return max(known, key=lambda c: (c.last_hit or c.born, c.id)).id if known else None
