"""Checks at the model's door: options in range, sessions and pools of the model's shape (kernels trust both)."""

from __future__ import annotations

from engine.cache.pool import KVSpec
from engine.cache.session import Session
from engine.errors import BadRequestValueError, SessionError

PAGE_ROWS = 16
"""Rows of a page are a multiple of this: kernels read so many positions at a time."""


def check_options(*, threads: int | None = None, n_ctx: int | None = None, kv_dtype: str = "float16") -> None:
    """Raise ``BadRequestValueError`` unless each option is None or in its range."""
    for field, value in (("threads", threads), ("n_ctx", n_ctx)):
        if value is not None and value < 1:
            raise BadRequestValueError(f"{field} must be at least 1.", field=field)
    if kv_dtype not in ("float16", "float32"):
        raise BadRequestValueError("kv_dtype must be float16 or float32.", field="kv_dtype")


def check_page_rows(page_rows: int) -> None:
    """Raise ``BadRequestValueError`` unless the kernels can compute with pages of so many rows."""
    if page_rows < 1 or page_rows % PAGE_ROWS:
        raise BadRequestValueError(f"page_rows must be a multiple of {PAGE_ROWS}.", field="page_rows")


def check_session(session: Session, spec: KVSpec, n_ctx: int) -> None:
    """Refuse a session whose pages or positions are not of the model's shape (``SessionError``, or
    ``BadRequestValueError`` for its pool's ``page_rows``)."""
    pool = session.pool
    if pool.spec is not spec and pool.spec != spec:
        raise SessionError("This session's KV pages have another model's shape; create the pool for this model.")
    if pool.page_rows % PAGE_ROWS:
        check_page_rows(pool.page_rows)
    if session.n_ctx > n_ctx:
        raise SessionError(f"This session is larger than the model's context of {n_ctx} tokens.")
