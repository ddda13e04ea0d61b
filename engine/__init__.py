"""KVScope's engine: paged KV, continuous batching and a prefix cache over compiled CPU kernels; headless.

Names are imported on first use, so that ``import engine`` costs nothing and does not import Numba.
"""

from __future__ import annotations

import importlib
from typing import Any

_EXPORTS = {
    "KVPool": "engine.cache.pool",
    "KVSpec": "engine.cache.pool",
    "Session": "engine.cache.session",
    "PrefixCache": "engine.cache.prefix",
    "Request": "engine.scheduling.request",
    "SamplingParams": "engine.scheduling.request",
    "Scheduler": "engine.scheduling.scheduler",
    "SchedEvent": "engine.scheduling.events",
    "Piece": "engine.scheduling.events",
    "Finished": "engine.scheduling.events",
    "StepReport": "engine.scheduling.events",
    "ChatRenderer": "engine.text.chat",
    "EngineLoop": "engine.loop",
    "EngineError": "engine.errors",
    "LanguageModel": "engine.model.language_model",
    "load_model": "engine.model.language_model",
    "eval": "engine.model.language_model",
    "eval_batch": "engine.model.language_model",
    "sample": "engine.model.language_model",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    if name not in _EXPORTS:
        raise AttributeError(f"module 'engine' has no attribute {name!r}")
    return getattr(importlib.import_module(_EXPORTS[name]), name)
