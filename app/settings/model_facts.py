"""What a model file is, and whether running it fits into this computer's memory; read before it is loaded."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from app.panels.words import size
from app.settings.values import MB, EngineSettings
from app.text import tr
from engine.cache.memory import DEFAULT_POOL_TOKENS, free_memory

Verdict = Literal["fits", "tight", "too_large"]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts from the header of a model file; sizes in bytes."""

    path: str
    name: str
    architecture: str
    parameters: int
    context_length: int
    default_context: int
    vocabulary: int
    layers: int
    file_bytes: int
    tensor_types: tuple[tuple[str, int], ...]
    weights_bytes: int
    kv_bytes_per_token: int
    workspace_bytes: int
    metadata: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Fit:
    """Bytes that loading needs: ``least`` with one full context, ``most`` with the whole pool; ``free`` are there."""

    least: int
    most: int
    pool: int
    free: int

    @property
    def verdict(self) -> Verdict:
        """``too_large``: not even one chat with a full context fits. ``tight``: the pool cannot fill up."""
        if self.least > self.free:
            return "too_large"
        return "tight" if self.most > self.free else "fits"


def read_facts(path: str) -> ModelFacts:
    """Read the header of a model file (tens of milliseconds). Errors: ``ModelFileError``, ``UnsupportedModelError``."""
    from engine.model.describe import describe  # not before the window is shown

    found: dict[str, Any] = describe(path)
    memory = found["memory"]
    return ModelFacts(
        path=path,
        name=found["name"],
        architecture=found["architecture"],
        parameters=found["parameters"],
        context_length=found["context_length"],
        default_context=found["context"],
        vocabulary=found["vocabulary"],
        layers=found["layers"],
        file_bytes=found["file_bytes"],
        tensor_types=tuple(sorted(found["tensor_types"].items(), key=lambda item: -item[1])),
        weights_bytes=memory["weights_bytes"],
        kv_bytes_per_token=memory["kv_bytes_per_token"],
        workspace_bytes=memory["workspace_bytes"],
        metadata=tuple((key, str(value)) for key, value in found["metadata"].items()),
    )


def context_of(facts: ModelFacts, settings: EngineSettings) -> int:
    """The context that the model gets with these settings, in tokens."""
    return facts.default_context if settings.n_ctx is None else min(facts.context_length, settings.n_ctx)


def pool_bytes_of(facts: ModelFacts, settings: EngineSettings, free: int) -> int:
    """The pool that the model gets with these settings, in bytes (see ``LoadOptions``)."""
    if settings.pool_mb is not None:
        return settings.pool_mb * MB
    return min(DEFAULT_POOL_TOKENS * facts.kv_bytes_per_token, free // 4)


def fit_of(facts: ModelFacts, settings: EngineSettings, free: int | None = None) -> Fit:
    """Whether the model fits; ``free`` None asks the system (a model that is loaded stays until the new one is)."""
    free = free_memory() if free is None else free
    fixed = facts.weights_bytes + facts.workspace_bytes
    pool = pool_bytes_of(facts, settings, free)
    least = fixed + min(context_of(facts, settings) * facts.kv_bytes_per_token, pool)
    return Fit(least, fixed + pool, pool, free)


def fit_words(fit: Fit) -> str:
    """The verdict as a sentence; empty when all fits."""
    least, most, free = (size(n) for n in (fit.least, fit.most, fit.free))
    match fit.verdict:
        case "too_large":
            return tr(
                "Loading it needs at least {least}, and {free} of memory are free. The computer would become very slow "
                "or end the program.",
                least=least,
                free=free,
            )
        case "tight":
            return tr(
                "With a full KV pool it needs {most}, and {free} of memory are free. A smaller pool budget is safer.",
                most=most,
                free=free,
            )
    return ""
