"""The tree of cached pages: one node per page, keyed by its parent and its own tokens.

Hashes only route to candidates; a node is taken for a match when its parent *is* the node matched before and its
tokens are equal. So two histories can never be confused, whatever the hash function does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

Tokens = tuple[int, ...]
HashPage = Callable[[int, Tokens], int]
"""(the parent's hash, the page's tokens) -> the page's hash."""


def hash_page(parent: int, tokens: Tokens) -> int:
    """The default hash: Python's own, over the parent's hash and the tokens; the same in every process."""
    return hash((parent, tokens))


class Node:
    """One cached page. ``chains`` are the ids of all chains that run through it, ``pins`` how many of them are pinned.

    ``used`` is the tick of its last use (for LRU), ``used_at`` and ``born`` Unix seconds; ``depth`` counts pages from
    the root, this one included. ``preview`` memoizes (number of tokens, text) for whoever draws the tree.
    """

    __slots__ = (
        "born",
        "chains",
        "children",
        "depth",
        "hash",
        "hits",
        "id",
        "page",
        "parent",
        "pins",
        "preview",
        "tokens",
        "used",
        "used_at",
    )

    def __init__(self, id: int, parent: Node | None, hash: int, tokens: Tokens, page: int, now: float) -> None:
        self.id = id
        self.parent = parent
        self.hash = hash
        self.tokens = tokens
        self.page = page
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.children: dict[int, Node] = {}
        self.chains: set[int] = set()
        self.pins = 0
        self.hits = 0
        self.used = 0
        self.born = self.used_at = now
        self.preview: tuple[int, str] | None = None

    def path(self) -> list[Node]:
        """All nodes from the first page to this one; empty for the root."""
        nodes: list[Node] = []
        node = self
        while node.parent is not None:
            nodes.append(node)
            node = node.parent
        nodes.reverse()
        return nodes


class PageTree:
    """Nodes by hash, by page and by parent. Holds no references to pages: that is the cache's part."""

    def __init__(self, page_rows: int, hash_page: HashPage = hash_page) -> None:
        self.page_rows = page_rows
        self.hash_page = hash_page
        self.root = Node(0, None, 0, (), -1, 0.0)
        self.by_page: dict[int, Node] = {}
        self.leaves: dict[int, Node] = {}
        self.version = 0
        """Changes with every change of structure, so that views of it can be kept."""
        self._by_hash: dict[int, list[Node]] = {}
        self._last_id = 0

    def find(self, parent: Node, tokens: Tokens) -> Node | None:
        """The child of ``parent`` that holds exactly ``tokens``."""
        for node in self._by_hash.get(self.hash_page(parent.hash, tokens), ()):
            if node.parent is parent and node.tokens == tokens:
                return node
        return None

    def walk(self, tokens: Sequence[int], limit: int) -> list[Node]:
        """The longest cached path of whole pages within the first ``limit`` of ``tokens``."""
        rows, node, path = self.page_rows, self.root, []
        for start in range(0, limit - rows + 1, rows):
            child = self.find(node, tuple(tokens[start : start + rows]))
            if child is None:
                break
            path.append(child)
            node = child
        return path

    def add(self, parent: Node, tokens: Tokens, page: int, now: float) -> Node:
        """A new leaf."""
        self._last_id += 1
        node = Node(self._last_id, parent, self.hash_page(parent.hash, tokens), tokens, page, now)
        self._by_hash.setdefault(node.hash, []).append(node)
        self.by_page[page] = node
        parent.children[node.id] = node
        self.leaves.pop(parent.id, None)
        self.leaves[node.id] = node
        self.version += 1
        return node

    def remove(self, leaf: Node) -> None:
        """Take a leaf out; its parent may become one."""
        parent = leaf.parent
        assert parent is not None and not leaf.children, "only leaves can be removed"
        bucket = self._by_hash[leaf.hash]
        bucket.remove(leaf)
        if not bucket:
            del self._by_hash[leaf.hash]
        del self.by_page[leaf.page]
        del parent.children[leaf.id]
        del self.leaves[leaf.id]
        if not parent.children and parent is not self.root:
            self.leaves[parent.id] = parent
        self.version += 1

    def __contains__(self, node: Node) -> bool:
        return self.by_page.get(node.page) is node

    def __iter__(self) -> Iterator[Node]:
        """All nodes, a parent before its children."""
        stack = list(self.root.children.values())
        while stack:
            node = stack.pop()
            yield node
            stack.extend(node.children.values())
