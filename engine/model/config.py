"""The shape of a model, read from a file's metadata with every bound and contradiction checked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.errors import ModelFileError, UnsupportedModelError

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 18
MAX_HEADS = 4096
MAX_HEAD_SIZE = 1024
MAX_CONTEXT = 1 << 27
MAX_EXPERTS = 4096


@dataclass(frozen=True, slots=True)
class RopeConfig:
    """Rotary embedding: ``rotated`` entries of a head turn; ``scaling`` is none, linear, yarn or longrope.

    ``factor`` stretches positions; ``original_context`` is the context the model was trained with before stretching;
    ``magnitude`` multiplies cos and sin.
    """

    base: float
    rotated: int
    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 0
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """What an architecture needs to know; sizes are counts of floats, heads, layers or tokens.

    Fields at their defaults are not used by the architecture: ``window`` 0 is full attention, ``experts`` 0 a dense
    feed-forward. ``attention_scale`` 0 stands for 1 / sqrt(head_size).
    """

    architecture: str
    name: str
    n_layers: int
    n_embd: int
    n_heads: int
    n_kv_heads: int
    head_size: int
    n_ff: int
    n_vocab: int
    n_ctx_train: int
    eps: float
    rope: RopeConfig
    window: int = 0
    window_pattern: int = 0
    local_rope_base: float = 0.0
    attention_softcap: float = 0.0
    final_softcap: float = 0.0
    attention_scale: float = 0.0
    embedding_scale: float = 1.0
    residual_scale: float = 1.0
    logit_scale: float = 1.0
    experts: int = 0
    experts_used: int = 0
    expert_ff: int = 0
    shared_expert_ff: int = 0
    expert_scale: float = 1.0
    experts_renormalize: bool | None = None

    @property
    def q_width(self) -> int:
        return self.n_heads * self.head_size

    @property
    def kv_width(self) -> int:
        return self.n_kv_heads * self.head_size


class Fields:
    """Typed, bounded reading of the keys ``<architecture>.*``."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._metadata = metadata
        self._prefix = architecture

    def _value(self, key: str) -> Any:
        return self._metadata.get(f"{self._prefix}.{key}")

    def fail(self, key: str, what: str) -> ModelFileError:
        name = f"{self._prefix}.{key}"
        return ModelFileError(f"The model file cannot be used: {name} {what}.", field=name)

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """An integer in [low, high]; an array of equal integers (one per layer) counts as one."""
        value = self._value(key)
        if value is None:
            if default is None:
                raise self.fail(key, "is missing")
            return default
        if not isinstance(value, int | float | str | bool) and len(value):
            if any(item != value[0] for item in value):
                raise UnsupportedModelError(
                    f"This model's layers differ in {self._prefix}.{key}; only models with equal layers can be run."
                )
            value = int(value[0])
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.fail(key, "is not a whole number")
        if not low <= value <= high:
            raise self.fail(key, f"is {value}, outside {low} to {high}")
        return value

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number in [low, high]."""
        value = self._value(key)
        if value is None:
            if default is None:
                raise self.fail(key, "is missing")
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise self.fail(key, "is not a finite number")
        if not low <= value <= high:
            raise self.fail(key, f"is {value:g}, outside {low:g} to {high:g}")
        return float(value)

    def text(self, key: str, default: str) -> str:
        value = self._value(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise self.fail(key, "is not text")
        return value

    def flag(self, key: str) -> bool | None:
        value = self._value(key)
        if value is not None and not isinstance(value, bool):
            raise self.fail(key, "is not true or false")
        return value


def read_config(metadata: Mapping[str, Any], n_vocab: int) -> ModelConfig:
    """The config of a file whose embedding table has ``n_vocab`` rows; ModelFileError names what is wrong."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str) or not architecture:
        raise ModelFileError(
            "The model file does not say what architecture it holds (general.architecture).",
            field="general.architecture",
        )
    fields = Fields(metadata, architecture)
    n_embd = fields.integer("embedding_length", 1, MAX_WIDTH)
    n_heads = fields.integer("attention.head_count", 1, MAX_HEADS)
    head_size = _head_size(fields, n_embd, n_heads)
    n_kv_heads = fields.integer("attention.head_count_kv", 1, MAX_HEADS, default=n_heads)
    if n_heads % n_kv_heads:
        raise fields.fail("attention.head_count_kv", f"is {n_kv_heads}, which does not divide the {n_heads} heads")
    _check_vocabulary(metadata, fields, n_vocab)
    experts = fields.integer("expert_count", 0, MAX_EXPERTS, default=0)
    n_ff = fields.integer("feed_forward_length", 1, MAX_WIDTH)
    return ModelConfig(
        architecture=architecture,
        name=str(metadata.get("general.name") or architecture),
        n_layers=fields.integer("block_count", 1, MAX_LAYERS),
        n_embd=n_embd,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_size=head_size,
        n_ff=n_ff,
        n_vocab=n_vocab,
        n_ctx_train=fields.integer("context_length", 1, MAX_CONTEXT),
        eps=fields.number("attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope=_rope(fields, head_size),
        window=fields.integer("attention.sliding_window", 0, MAX_CONTEXT, default=0),
        window_pattern=_window_pattern(fields),
        local_rope_base=fields.number("rope.freq_base_swa", 1.0, 1e12, default=10_000.0),
        attention_softcap=fields.number("attn_logit_softcapping", 0.0, 1e6, default=0.0),
        final_softcap=fields.number("final_logit_softcapping", 0.0, 1e6, default=0.0),
        attention_scale=fields.number("attention.scale", 0.0, 1e6, default=0.0),
        embedding_scale=fields.number("embedding_scale", 0.0, 1e6, default=1.0),
        residual_scale=fields.number("residual_scale", 0.0, 1e6, default=1.0),
        logit_scale=fields.number("logit_scale", 1e-6, 1e6, default=1.0),
        experts=experts,
        experts_used=fields.integer("expert_used_count", 1, experts) if experts else 0,
        expert_ff=fields.integer("expert_feed_forward_length", 1, MAX_WIDTH, default=n_ff) if experts else 0,
        shared_expert_ff=fields.integer("expert_shared_feed_forward_length", 0, MAX_WIDTH, default=0),
        expert_scale=fields.number("expert_weights_scale", 0.0, 1e6, default=1.0) or 1.0,
        experts_renormalize=fields.flag("expert_weights_norm"),
    )


def _head_size(fields: Fields, n_embd: int, n_heads: int) -> int:
    default = n_embd // n_heads if n_embd % n_heads == 0 else None
    head_size = fields.integer("attention.key_length", 1, MAX_HEAD_SIZE, default=default)
    if fields.integer("attention.value_length", 1, MAX_HEAD_SIZE, default=head_size) != head_size:
        raise UnsupportedModelError("This model's key and value heads differ in size, which this engine cannot run.")
    return head_size


def _check_vocabulary(metadata: Mapping[str, Any], fields: Fields, n_vocab: int) -> None:
    """The table of embeddings, the stated size and the tokenizer's list must agree."""
    stated = fields.integer("vocab_size", 1, 1 << 24, default=n_vocab)
    if stated != n_vocab:
        raise fields.fail("vocab_size", f"is {stated}, but token_embd.weight has {n_vocab} rows")
    tokens = metadata.get("tokenizer.ggml.tokens")
    if tokens is not None and len(tokens) != n_vocab:
        raise ModelFileError(
            f"The model file contradicts itself: {len(tokens)} tokens, but token_embd.weight has {n_vocab} rows.",
            field="tokenizer.ggml.tokens",
        )


def _window_pattern(fields: Fields) -> int:
    """One layer in this many sees the whole context; 0 where the file leaves it to the architecture."""
    value = fields._value("attention.sliding_window_pattern")
    if value is None or isinstance(value, int):
        return fields.integer("attention.sliding_window_pattern", 0, MAX_LAYERS, default=0)
    flags = [bool(item) for item in value]
    pattern = flags.index(False) + 1 if False in flags else 0
    if pattern and any(flag == ((i + 1) % pattern == 0) for i, flag in enumerate(flags)):
        raise UnsupportedModelError("This model's sliding-window layers follow no regular pattern; it cannot be run.")
    return pattern


def _rope(fields: Fields, head_size: int) -> RopeConfig:
    rotated = fields.integer("rope.dimension_count", 2, head_size, default=head_size)
    if rotated % 2:
        raise fields.fail("rope.dimension_count", f"is {rotated}, which is odd")
    scaling = fields.text("rope.scaling.type", "linear")
    if scaling not in ("none", "linear", "yarn", "longrope"):
        raise UnsupportedModelError(f"This engine does not know the rope scaling {scaling!r} of this model.")
    factor = fields.number("rope.scaling.factor", 0.0, 1e6, default=0.0)
    legacy = fields.number("rope.scale_linear", 0.0, 1e6, default=0.0)
    if not factor and legacy:
        scaling, factor = "linear", legacy
    return RopeConfig(
        base=fields.number("rope.freq_base", 1.0, 1e12, default=10_000.0),
        rotated=rotated,
        scaling=scaling,
        factor=factor or 1.0,
        original_context=fields.integer("rope.scaling.original_context_length", 0, MAX_CONTEXT, default=0),
        magnitude=fields.number("rope.scaling.attn_factor", 0.0, 1e3, default=1.0) or 1.0,
    )
