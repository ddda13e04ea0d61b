"""The compressed prefix tree: runs of pages that belong to the same chains, for whoever draws it."""

from __future__ import annotations

from array import array
from collections.abc import Callable

from engine.cache.nodes import Node, PageTree
from engine.port import Segment

PREVIEW_TOKENS = 48


class SegmentView:
    """Builds ``Segment``s from a tree, and keeps the structure while the tree and its chains stay the same."""

    def __init__(self, tree: PageTree) -> None:
        self._tree = tree
        self._version: tuple[int, int] | None = None
        self._runs: list[tuple[list[Node], int | None]] = []

    def segments(
        self, chains_version: int, refs: array[int], decode: Callable[[tuple[int, ...]], str] | None
    ) -> tuple[Segment, ...]:
        """All segments, a parent before its children. ``decode`` gives the text of a segment's first tokens."""
        version = (self._tree.version, chains_version)
        if version != self._version:
            self._runs = _runs(self._tree)
            self._version = version
        return tuple(self._segment(run, parent, refs, decode) for run, parent in self._runs)

    def _segment(
        self, run: list[Node], parent: int | None, refs: array[int], decode: Callable[[tuple[int, ...]], str] | None
    ) -> Segment:
        first, rows = run[0], self._tree.page_rows
        return Segment(
            id=first.id,
            parent=parent,
            depth=(first.depth - 1) * rows,
            n_tokens=len(run) * rows,
            pages=tuple(node.page for node in run),
            chains=tuple(sorted(first.chains)),
            in_use=any(refs[node.page] > 1 for node in run),
            text="" if decode is None else _preview(run, decode),
        )


def _runs(tree: PageTree) -> list[tuple[list[Node], int | None]]:
    """(nodes of a run, id of the run before it)."""
    runs: list[tuple[list[Node], int | None]] = []
    stack: list[tuple[Node, int | None]] = [(node, None) for node in reversed(tree.root.children.values())]
    while stack:
        node, parent = stack.pop()
        run = [node]
        # The chains of a child are among its parent's, so equal numbers mean equal sets.
        while len(node.children) == 1:
            (child,) = node.children.values()
            if len(child.chains) != len(node.chains):
                break
            run.append(child)
            node = child
        runs.append((run, parent))
        stack.extend((child, run[0].id) for child in reversed(node.children.values()))
    return runs


def _preview(run: list[Node], decode: Callable[[tuple[int, ...]], str]) -> str:
    tokens = tuple(token for node in run[: PREVIEW_TOKENS // len(run[0].tokens) + 1] for token in node.tokens)
    tokens = tokens[:PREVIEW_TOKENS]
    if run[0].preview is None or run[0].preview[0] != len(tokens):
        run[0].preview = (len(tokens), decode(tokens))
    return run[0].preview[1]
