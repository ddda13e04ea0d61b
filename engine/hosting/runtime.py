"""A loaded model at work: bundle, pool, prefix cache and scheduler, and what can be asked of them between steps."""

from __future__ import annotations

import time
from collections.abc import Iterable

import numpy as np

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.errors import BadRequestValueError, IntegrityError, UnknownChainError
from engine.hosting.bundle import Bundle
from engine.port import (
    PAGE_ACTIVE,
    PAGE_CACHED,
    PAGE_FREE,
    PAGE_SHARED,
    LoadOptions,
    PageDetail,
    PageState,
    ReleaseReport,
    Snapshot,
)
from engine.scheduling.events import StepReport
from engine.scheduling.request import Request
from engine.scheduling.scheduler import Scheduler

STATE_NAMES: tuple[PageState, ...] = ("free", "active", "shared", "cached")


class Runtime:
    """Everything that belongs to one loaded model; used on the engine's thread.

    ``chats`` are the chats it served, ``trimmed`` says that there is nothing to give back to the system.
    """

    def __init__(self, bundle: Bundle, options: LoadOptions, former_chats: Iterable[str] = ()) -> None:
        info = bundle.info
        self.bundle = bundle
        self.options = options
        self.chats: set[str] = set()
        self.trimmed = True
        self.pool = KVPool(bundle.evaluator.kv_spec, capacity_pages=info.capacity_pages, page_rows=info.page_rows)
        self.cache = PrefixCache(self.pool, max_pages=options.cache_pages) if options.prefix_cache else None
        if self.cache is not None:
            self.cache.former_chats.update(former_chats)
        self.scheduler = Scheduler(
            bundle.evaluator,
            pool=self.pool,
            cache=self.cache,
            max_streams=options.max_streams,
            max_queue=options.max_queue,
            chunk=options.chunk,
            text_factory=bundle.text_stream,
        )

    def close(self) -> StepReport | None:
        """End all streams and give the pool's memory back (the bundle stays). Returns the report with the last events
        if anything was running."""
        had_work = self.scheduler.has_work
        self.scheduler.close()
        if self.cache is not None:
            self.cache.close()
        self.pool.close()
        return self.scheduler.last_report if had_work else None

    def abandon(self, error: Exception) -> StepReport:
        """A step failed by a defect: end all streams with that error. Pool and cache are left to the garbage
        collector, because their books may be wrong. Returns the report with the last events."""
        self.scheduler.abandon(error)
        assert self.scheduler.last_report is not None
        return self.scheduler.last_report

    def submit(self, request: Request) -> None:
        """Queue a request; typed errors if it is refused."""
        self.scheduler.submit(request)
        if request.chat:
            self.chats.add(request.chat)

    def step(self) -> StepReport:
        """One step of the scheduler."""
        self.trimmed = False
        self.scheduler.step()
        assert self.scheduler.last_report is not None
        return self.scheduler.last_report

    def trim(self) -> None:
        """Give the memory of free pages back to the system."""
        self.pool.trim()
        self.trimmed = True

    def snapshot(self) -> Snapshot:
        """The whole instrument now."""
        pool, cache, report = self.pool, self.cache, self.scheduler.last_report
        return Snapshot(
            step=0 if report is None else report.step,
            at=time.time(),
            pool=pool.counts(),
            page_rows=pool.page_rows,
            page_bytes=pool.page_bytes,
            page_states=page_states(pool),
            refcounts=np.array(pool.refs, dtype=np.int32),
            stream_pages=self.scheduler.stream_pages(),
            chains=() if cache is None else cache.chains(),
            segments=() if cache is None else cache.segments(self.text_of),
            streams=self.scheduler.states(),
            integrity=self._integrity(),
        )

    def _integrity(self) -> str:
        try:
            self.pool.check_integrity()
        except IntegrityError as error:
            return str(error)
        return ""

    def page_detail(self, page: int) -> PageDetail:
        """One page: who holds it and what is on it."""
        pool, cache, scheduler = self.pool, self.cache, self.scheduler
        if not 0 <= page < pool.capacity_pages:
            raise BadRequestValueError(f"Pages are numbered from 0 to {pool.capacity_pages - 1}.", field="page")
        node = None if cache is None else cache.node_of(page)
        chains = [] if node is None or cache is None else cache.chains_of(node)
        holders = scheduler.holders(page)
        tokens = node.tokens if node is not None else next((tokens for _, _, tokens in holders), ())
        chats = [chat for _, chat, _ in holders] + [chain.chat for chain in chains]
        return PageDetail(
            page=page,
            state=STATE_NAMES[int(page_states(pool)[page])],
            refcount=pool.refs[page],
            chats=tuple(dict.fromkeys(chat for chat in chats if chat)),
            streams=tuple(stream for stream, _, _ in holders),
            chains=tuple(chain.id for chain in chains),
            tokens=tuple(tokens),
            text=self.text_of(tokens),
            born=None if node is None else node.born,
            hits=0 if node is None else node.hits,
        )

    def text_of(self, tokens: tuple[int, ...]) -> str:
        """What stands on a page, control tokens included."""
        return self.bundle.tokenizer.decode(tokens, special=True)

    def reusable(self, prompt: tuple[int, ...]) -> int:
        """How many tokens of a prompt would come from the cache now."""
        return 0 if self.cache is None else len(self.cache.match(prompt)) * self.pool.page_rows

    def release(self, chain: int, dry_run: bool) -> ReleaseReport:
        """See ``PrefixCache.release``."""
        return self._need_cache(chain).release(chain, dry_run=dry_run)

    def release_all(self, dry_run: bool) -> ReleaseReport:
        """See ``PrefixCache.release_all``."""
        if self.cache is None:
            return ReleaseReport((), 0, 0, 0, dry_run=dry_run)
        return self.cache.release_all(dry_run=dry_run)

    def pin(self, chain: int, pinned: bool) -> None:
        """See ``PrefixCache.pin``."""
        self._need_cache(chain).pin(chain, pinned)

    def _need_cache(self, chain: int) -> PrefixCache:
        if self.cache is None:
            raise UnknownChainError(f"There is no chain {chain}: the prefix cache is switched off.")
        return self.cache


def page_states(pool: KVPool) -> np.ndarray:
    """The state of every page, uint8[capacity], as ``PAGE_FREE`` … in ``engine.port``."""
    refs = np.frombuffer(pool.refs, dtype=np.int32)
    held = np.frombuffer(pool.held, dtype=np.uint8)
    alone = np.where(held, PAGE_CACHED, PAGE_ACTIVE)
    return np.where(refs == 0, PAGE_FREE, np.where(refs == 1, alone, PAGE_SHARED)).astype(np.uint8)
