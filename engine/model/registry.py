"""Which architectures the engine can run, and how a file becomes a ``Program``."""

from __future__ import annotations

import importlib
from collections.abc import Mapping

from engine.errors import UnsupportedModelError
from engine.gguf.metadata import Metadata
from engine.kernels.ops import Program, Tensor
from engine.model.blocks import Builder
from engine.model.config import ModelConfig, read_config
from engine.model.weights import Weights

_MODULES = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen2moe": "qwen2moe",
    "qwen3": "qwen3",
    "qwen3moe": "qwen3",
    "gemma2": "gemma2",
    "gemma3": "gemma3",
    "phi3": "phi3",
    "smollm3": "smollm3",
    "olmo2": "olmo2",
    "granite": "granite",
    "granitemoe": "granite",
}
"""``general.architecture`` -> module in ``engine.model.architectures``."""

ARCHITECTURES = tuple(_MODULES)


def read(metadata: Metadata, tensors: Mapping[str, Tensor]) -> ModelConfig:
    """The config of a file, after checking that its architecture is known. Raises ModelFileError with the field or
    tensor that is wrong, UnsupportedModelError for a sound file that this engine cannot run."""
    architecture = metadata.get_str("general.architecture")
    if architecture not in _MODULES:
        raise UnsupportedModelError(
            f"This engine cannot run the architecture {architecture!r}; it knows {', '.join(ARCHITECTURES)}."
        )
    return read_config(metadata, Weights(tensors).rows("token_embd.weight"))


def build(config: ModelConfig, tensors: Mapping[str, Tensor], n_ctx: int) -> Program:
    """The forward pass for contexts of up to ``n_ctx`` tokens; every tensor's shape is checked on the way."""
    module = importlib.import_module(f"engine.model.architectures.{_MODULES[config.architecture]}")
    program: Program = module.build(Builder(config, Weights(tensors), n_ctx))
    return program
