"""The shape of a model, read from a file's metadata with every bound and contradiction checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf.metadata import Metadata

MAX_LAYERS = 1024
MAX_WIDTH = 1 << 18
MAX_HEADS = 4096
MAX_HEAD_SIZE = 1024
MAX_CONTEXT = 1 << 27
MAX_EXPERTS = 4096
MAX_VOCABULARY = 1 << 24


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


def read_config(metadata: Metadata, n_vocab: int) -> ModelConfig:
    """The config of a file whose embedding table has ``n_vocab`` rows; ModelFileError names what is wrong."""
    architecture = metadata.get_str("general.architecture")
    key = _Keys(metadata, architecture)
    n_layers = key.integer("block_count", 1, MAX_LAYERS)
    n_embd = key.integer("embedding_length", 1, MAX_WIDTH)
    n_heads = key.per_layer("attention.head_count", n_layers, MAX_HEADS)
    head_size = _head_size(key, n_embd, n_heads)
    _check_vocabulary(key, n_vocab)
    n_ff = key.per_layer("feed_forward_length", n_layers, MAX_WIDTH)
    return ModelConfig(
        architecture=architecture,
        name=metadata.get_str("general.name", "") or architecture,
        n_layers=n_layers,
        n_embd=n_embd,
        n_heads=n_heads,
        n_kv_heads=_kv_heads(key, n_layers, n_heads),
        head_size=head_size,
        n_ff=n_ff,
        n_vocab=n_vocab,
        n_ctx_train=key.integer("context_length", 1, MAX_CONTEXT),
        eps=key.number("attention.layer_norm_rms_epsilon", 0.0, 1.0),
        rope=_rope(key, head_size),
        window=key.integer("attention.sliding_window", 0, MAX_CONTEXT, 0),
        window_pattern=_window_pattern(key, n_layers),
        local_rope_base=key.number("rope.freq_base_swa", 1.0, 1e12, 10_000.0),
        attention_softcap=key.number("attn_logit_softcapping", 0.0, 1e6, 0.0),
        final_softcap=key.number("final_logit_softcapping", 0.0, 1e6, 0.0),
        attention_scale=key.number("attention.scale", 0.0, 1e6, 0.0),
        embedding_scale=key.number("embedding_scale", 0.0, 1e6, 1.0),
        residual_scale=key.number("residual_scale", 0.0, 1e6, 1.0),
        logit_scale=key.number("logit_scale", 1e-6, 1e6, 1.0),
        **_experts(key, n_ff),
    )


def _experts(key: _Keys, n_ff: int) -> dict[str, Any]:
    """The fields of a mixture of experts."""
    experts = key.integer("expert_count", 0, MAX_EXPERTS, 0)
    if not experts:
        return {}
    return {
        "experts": experts,
        "experts_used": key.integer("expert_used_count", 1, experts),
        "expert_ff": key.integer("expert_feed_forward_length", 1, MAX_WIDTH, n_ff),
        "shared_expert_ff": key.integer("expert_shared_feed_forward_length", 0, MAX_WIDTH, 0),
        "expert_scale": key.number("expert_weights_scale", 0.0, 1e6, 1.0) or 1.0,
        "experts_renormalize": key.metadata.get_bool(f"{key.architecture}.expert_weights_norm", None),
    }


class _Keys:
    """The keys ``<architecture>.*`` of a file."""

    def __init__(self, metadata: Metadata, architecture: str) -> None:
        self.metadata = metadata
        self.architecture = architecture
        self._prefix = architecture + "."

    def error(self, key: str, what: str) -> ModelFileError:
        return self.metadata.error(self._prefix + key, what)

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        if default is None:
            return self.metadata.get_int(self._prefix + key, low, high)
        return self.metadata.get_int(self._prefix + key, low, high, default)

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        if default is None:
            return self.metadata.get_float(self._prefix + key, low, high)
        return self.metadata.get_float(self._prefix + key, low, high, default)

    def text(self, key: str, default: str) -> str:
        return self.metadata.get_str(self._prefix + key, default)

    def length(self, key: str) -> int | None:
        return self.metadata.length(self._prefix + key)

    def per_layer(self, key: str, n_layers: int, high: int, default: int | None = None) -> int:
        """One number for all layers, or an array of equal numbers."""
        values = set(self.metadata.get_int_per_layer(self._prefix + key, n_layers, 1, high, default))
        if len(values) > 1:
            raise UnsupportedModelError(
                f"This model's layers differ in {self._prefix}{key}; only models with equal layers can be run."
            )
        return values.pop()


def _head_size(key: _Keys, n_embd: int, n_heads: int) -> int:
    default = n_embd // n_heads if n_embd % n_heads == 0 and n_embd // n_heads <= MAX_HEAD_SIZE else None
    head_size = key.integer("attention.key_length", 1, MAX_HEAD_SIZE, default)
    if key.integer("attention.value_length", 1, MAX_HEAD_SIZE, head_size) != head_size:
        raise UnsupportedModelError("This model's key and value heads differ in size, which this engine cannot run.")
    return head_size


def _kv_heads(key: _Keys, n_layers: int, n_heads: int) -> int:
    n_kv_heads = key.per_layer("attention.head_count_kv", n_layers, MAX_HEADS, n_heads)
    if n_heads % n_kv_heads:
        raise key.error("attention.head_count_kv", f"is {n_kv_heads}, which does not divide the {n_heads} query heads")
    return n_kv_heads


def _check_vocabulary(key: _Keys, n_vocab: int) -> None:
    """The table of embeddings, the stated size and the tokenizer's list must agree."""
    stated = key.integer("vocab_size", 1, MAX_VOCABULARY, n_vocab)
    if stated != n_vocab:
        raise key.error("vocab_size", f"is {stated}, but token_embd.weight has {n_vocab} rows")
    tokens = key.metadata.length("tokenizer.ggml.tokens")
    if tokens is not None and tokens != n_vocab:
        what = f"has {tokens} items, but token_embd.weight has {n_vocab} rows"
        raise key.metadata.error("tokenizer.ggml.tokens", what)


def _window_pattern(key: _Keys, n_layers: int) -> int:
    """One layer in this many sees the whole context; 0 where the file leaves it to the architecture.

    Files give a number, or for every layer whether it is windowed.
    """
    name = "attention.sliding_window_pattern"
    if key.length(name) is None:
        return key.integer(name, 0, MAX_LAYERS, 0)
    windowed = key.metadata.get_array(f"{key.architecture}.{name}", "bool", n_layers).tolist()
    pattern = windowed.index(False) + 1 if False in windowed else 0
    if pattern and any(flag == ((i + 1) % pattern == 0) for i, flag in enumerate(windowed)):
        raise UnsupportedModelError("This model's sliding-window layers follow no regular pattern; it cannot be run.")
    return pattern


def _rope(key: _Keys, head_size: int) -> RopeConfig:
    rotated = key.integer("rope.dimension_count", 2, head_size, head_size)
    if rotated % 2:
        raise key.error("rope.dimension_count", f"is {rotated}, but must be even")
    scaling = key.text("rope.scaling.type", "linear")
    if scaling not in ("none", "linear", "yarn", "longrope"):
        raise UnsupportedModelError(f"This engine does not know the rope scaling {scaling!r} of this model.")
    factor = key.number("rope.scaling.factor", 0.0, 1e6, 0.0) or key.number("rope.scale_linear", 0.0, 1e6, 0.0)
    original = key.integer("rope.scaling.original_context_length", 0, MAX_CONTEXT, 0)
    if scaling == "yarn" and factor > 1 and not original:
        raise key.error("rope.scaling.original_context_length", "is missing, but yarn scaling needs it")
    return RopeConfig(
        base=key.number("rope.freq_base", 1.0, 1e12, 10_000.0),
        rotated=rotated,
        scaling=scaling,
        factor=factor or 1.0,
        original_context=original,
        magnitude=key.number("rope.scaling.attn_factor", 0.0, 1e3, 1.0) or 1.0,
    )
