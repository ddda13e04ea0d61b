"""The settings as frozen data. ``None`` always means: choose by yourself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from app.state.sampling import ChatSettings, Preset
from app.theme import ThemeMode
from engine.port import LoadOptions

MB = 1_000_000
MAX_RECENT = 8


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a model is loaded. Budgets are in MB (a million bytes); ``page_rows`` is a multiple of 16."""

    threads: int | None = None
    n_ctx: int | None = None
    max_streams: int = 8
    page_rows: int = 16
    pool_mb: int | None = None
    cache_mb: int | None = None
    exact: bool = False

    def needs_reload(self, other: EngineSettings) -> bool:
        """Whether going from these to ``other`` means loading the model again (threads change at once)."""
        return replace(self, threads=None) != replace(other, threads=None)

    def cache_pages(self, kv_bytes_per_token: int) -> int | None:
        """The cache budget in whole pages of a model."""
        if self.cache_mb is None or kv_bytes_per_token <= 0:
            return None
        return self.cache_mb * MB // (kv_bytes_per_token * self.page_rows)

    def load_options(self, path: str, kv_bytes_per_token: int) -> LoadOptions:
        """How to load the model at ``path``."""
        return LoadOptions(
            path=path,
            n_ctx=self.n_ctx,
            threads=self.threads,
            max_streams=self.max_streams,
            page_rows=self.page_rows,
            pool_bytes=None if self.pool_mb is None else self.pool_mb * MB,
            cache_pages=self.cache_pages(kv_bytes_per_token),
            exact=self.exact,
        )


@dataclass(frozen=True, slots=True)
class Settings:
    """All of them. ``model`` is what was opened last ("": the default model), ``recent`` the files before it;
    ``chat`` is what new chats begin with, ``presets`` are the person's own; ``seen_crash`` names the newest crash
    report that was offered."""

    model: str = ""
    recent: tuple[str, ...] = ()
    theme: ThemeMode = "system"
    engine: EngineSettings = field(default_factory=EngineSettings)
    chat: ChatSettings = field(default_factory=ChatSettings)
    presets: tuple[Preset, ...] = ()
    seen_crash: str = ""

    def with_model(self, path: str) -> Settings:
        """The same after ``path`` was loaded: it is the first of the recent ones."""
        others = tuple(known for known in self.recent if known != path)
        return replace(self, model=path, recent=(path, *others)[:MAX_RECENT])
