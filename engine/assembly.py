"""A model, a pool, a prefix cache and a scheduler put together: what demos, benchmarks and the loader share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.scheduling.scheduler import Scheduler
from engine.text.stop import TextStream

if TYPE_CHECKING:
    from engine.model.language_model import LanguageModel
    from engine.scheduling.request import Request

DEFAULT_POOL_TOKENS = 65_536


@contextmanager
def scheduler_over(
    model: LanguageModel,
    *,
    max_streams: int = 8,
    max_queue: int = 64,
    chunk: int = 128,
    page_rows: int = 16,
    capacity_pages: int | None = None,
    prefix_cache: bool = True,
) -> Iterator[Scheduler]:
    """A scheduler over a pool of its own; every page is given back when the block ends.

    ``capacity_pages`` None takes pages for 65,536 tokens (committed lazily).
    """
    pages = capacity_pages or -(-DEFAULT_POOL_TOKENS // page_rows)
    pool = KVPool(model.kv_spec, capacity_pages=pages, page_rows=page_rows)
    cache = PrefixCache(pool) if prefix_cache else None

    def text_factory(request: Request) -> Any:
        return TextStream(model.tokenizer, request.stop_strings, request.prompt)

    scheduler = Scheduler(
        model,
        pool=pool,
        cache=cache,
        max_streams=max_streams,
        max_queue=max_queue,
        chunk=chunk,
        text_factory=text_factory,
    )
    try:
        yield scheduler
    finally:
        scheduler.close()
        if cache is not None:
            cache.release_all()
        pool.close()
