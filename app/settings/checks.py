"""What is wrong with engine settings, and what they amount to, in words."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace

from app.panels.words import size
from app.settings.values import MB, EngineSettings
from app.text import tr
from engine.cache.memory import DEFAULT_POOL_TOKENS
from engine.port import ModelInfo

PAGE_STEP = 16
MAX_PAGE_ROWS = 512
MAX_STREAMS = 64
MAX_THREADS = 256
LEAST_CONTEXT = 128


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What settings are judged against: processors, free memory in bytes and the model that is loaded."""

    cores: int
    free: int
    model: ModelInfo | None = None


def cores() -> int:
    """How many threads this process may run at once."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def problems(settings: EngineSettings, around: Surroundings) -> dict[str, str]:
    """Field -> a sentence about what must be put right; empty when all is well."""
    found: dict[str, str] = {}
    s = settings
    if s.threads is not None and not 1 <= s.threads <= MAX_THREADS:
        found["threads"] = tr("At least one thread, at most {n}.", n=MAX_THREADS)
    elif s.threads is not None and s.threads > around.cores:
        found["threads"] = tr(
            "This computer runs {n} threads at once; more would slow each other down.", n=around.cores
        )
    if s.n_ctx is not None and s.n_ctx < LEAST_CONTEXT:
        found["n_ctx"] = tr("A context has at least {n} tokens.", n=LEAST_CONTEXT)
    if not 1 <= s.max_streams <= MAX_STREAMS:
        found["max_streams"] = tr("Between 1 and {n} chats can be written at once.", n=MAX_STREAMS)
    if s.page_rows % PAGE_STEP or not PAGE_STEP <= s.page_rows <= MAX_PAGE_ROWS:
        found["page_rows"] = tr(
            "A page holds a multiple of {step} tokens, at most {most}.", step=PAGE_STEP, most=MAX_PAGE_ROWS
        )
    if s.pool_mb is not None and s.pool_mb * MB > around.free:
        found["pool_mb"] = tr("Only {free} of memory are free.", free=size(around.free))
    if s.pool_mb is not None and around.model is not None and s.pool_mb * MB < _page_bytes(s, around.model):
        found["pool_mb"] = tr(
            "One page of {name} takes {n}.", name=around.model.name, n=size(_page_bytes(s, around.model))
        )
    if s.cache_mb is not None and s.pool_mb is not None and s.cache_mb > s.pool_mb:
        found["cache_mb"] = tr("The cache lies in the pool and cannot be larger than it.")
    return found


def remarks(settings: EngineSettings, around: Surroundings) -> dict[str, str]:
    """Field -> what its value means here; for fields without a problem."""
    s, model = settings, around.model
    found = {
        "threads": tr("Automatic uses all {n} that this computer runs at once.", n=around.cores),
        "max_streams": tr("More chats than that wait their turn."),
        "page_rows": tr(
            "Tokens a page; prompts are reused page by page. Small pages reuse more, large ones cost less."
        ),
        "exact": tr("Every token is computed alike, so that a reused reply is bit for bit the same. Slower."),
    }
    if model is None:
        found["n_ctx"] = tr("Automatic is 8,192 tokens, or what the model was trained for.")
        found["pool_mb"] = tr("Memory for the KV of all chats. Automatic is at most a quarter of what is free.")
        found["cache_mb"] = tr("How much of the pool finished chats may keep. Automatic is all of it.")
        return found
    found["n_ctx"] = tr("{name} was trained for {n:,} tokens.", name=model.name, n=model.n_ctx_train)
    if s.n_ctx is not None and s.n_ctx > model.n_ctx_train:
        found["n_ctx"] += " " + tr("More are not used.")
    by_itself = min(DEFAULT_POOL_TOKENS * model.kv_bytes_per_token, around.free // 4)
    found["pool_mb"] = _tokens_words(s.pool_mb, model) or tr(
        "Automatic is {n} with {name}.", n=size(by_itself), name=model.name
    )
    found["cache_mb"] = _tokens_words(s.cache_mb, model) or tr("Automatic: all of the pool, until chats need it.")
    return found


def sane(settings: EngineSettings) -> EngineSettings:
    """The settings with the default in place of each value that no computer could use."""
    defaults = EngineSettings()
    wrong = problems(settings, Surroundings(cores=MAX_THREADS, free=1 << 62))
    for name in ("pool_mb", "cache_mb"):
        value = getattr(settings, name)
        if value is not None and value < 1:
            wrong[name] = "below 1"
    return replace(settings, **{f.name: getattr(defaults, f.name) for f in fields(settings) if f.name in wrong})


def _page_bytes(settings: EngineSettings, model: ModelInfo) -> int:
    return model.kv_bytes_per_token * settings.page_rows


def _tokens_words(budget_mb: int | None, model: ModelInfo) -> str:
    if budget_mb is None or model.kv_bytes_per_token <= 0:
        return ""
    tokens = budget_mb * MB // model.kv_bytes_per_token
    return tr("About {n:,} tokens of {name}.", n=tokens, name=model.name)
