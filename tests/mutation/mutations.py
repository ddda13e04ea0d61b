"""Deliberate defects of pool, session, prefix cache and scheduler. The suite must notice every one of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """``old``, which occurs exactly once in ``file``, becomes ``new``."""

    name: str
    file: str
    old: str
    new: str


POOL, SESSION = "engine/cache/pool.py", "engine/cache/session.py"
NODES, PREFIX = "engine/cache/nodes.py", "engine/cache/prefix.py"
SCHEDULER, ROOM = "engine/scheduling/scheduler.py", "engine/scheduling/room.py"
STREAM, SAMPLING = "engine/scheduling/stream.py", "engine/scheduling/sampling.py"

MUTATIONS = (
    Mutation("a lost decrement", POOL, "            refs[page] = left\n", ""),
    Mutation("a lost increment", POOL, "            refs[page] += 1\n", ""),
    Mutation("a copy without its bytes", POOL, "        self.memory[copy] = self.memory[page]\n", ""),
    Mutation(
        "a freed page that still counts as cached",
        POOL,
        "        self._n_cached -= 1\n        self._free",
        "        self._free",
    ),
    Mutation(
        "a page shared while written", SESSION, "if pool.refs[self._pages[i]] > 1", "if pool.refs[self._pages[i]] > 2"
    ),
    Mutation(
        "a cut that returns a page too many",
        SESSION,
        "keep = -(-n // self.pool.page_rows)",
        "keep = n // self.pool.page_rows",
    ),
    Mutation(
        "pages attached without a reference",
        SESSION,
        "        self.pool.retain(pages)\n        replaced",
        "        replaced",
    ),
    Mutation("tokens not verified", NODES, "node.parent is parent and node.tokens == tokens", "node.parent is parent"),
    Mutation(
        "ancestors not verified", NODES, "node.parent is parent and node.tokens == tokens", "node.tokens == tokens"
    ),
    Mutation(
        "an off-by-one in the cap",
        PREFIX,
        "path = self._tree.walk(tokens, len(tokens) - (not whole))",
        "path = self._tree.walk(tokens, len(tokens))",
    ),
    Mutation("a page in use evicted", PREFIX, "refs[leaf.page] == 1 and not leaf.pins", "not leaf.pins"),
    Mutation("a pinned page evicted", PREFIX, "refs[leaf.page] == 1 and not leaf.pins", "refs[leaf.page] == 1"),
    Mutation("the most recently used page evicted first", PREFIX, "heap = [(leaf.used,", "heap = [(-leaf.used,"),
    Mutation("a release that takes other chains' pages", PREFIX, "if node.chains <= ids]", "if node.chains & ids]"),
    Mutation(
        "a budget that is not kept", PREFIX, "self.held_pages >= self.max_pages", "self.held_pages > self.max_pages"
    ),
    Mutation(
        "the oldest stream evicted",
        SCHEDULER,
        "next(reversed(self._streams.values()))",
        "next(iter(self._streams.values()))",
    ),
    Mutation(
        "a chunk that is not bounded",
        SCHEDULER,
        "            budget -= self._read(stream, budget)",
        "            self._read(stream, budget)",
    ),
    Mutation(
        "a stream that keeps its pages",
        SCHEDULER,
        "        stream.live_session.release()\n        stream.session = None",
        "        stream.session = None",
    ),
    Mutation("a donation of tokens that were cut off", STREAM, "*self.generated[: self.n_kept]]", "*self.generated]"),
    Mutation(
        "a reply without its close", SCHEDULER, "[*stream.history(), *stream.closing_tokens()]", "[*stream.history()]"
    ),
    Mutation(
        "a reply one token too long",
        SAMPLING,
        "len(stream.generated) >= stream.limit",
        "len(stream.generated) > stream.limit",
    ),
    Mutation(
        "a stop token that is shown",
        SAMPLING,
        '        stream.end("stop")\n        return []',
        '        stream.end("stop")',
    ),
    Mutation("an admission that ignores the others", ROOM, "if needed <= available:", "if True:"),
)
