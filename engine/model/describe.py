"""What a model file is and what running it would need, without packing its weights."""

from __future__ import annotations

import math
import os
from collections import Counter
from typing import Any

import numpy as np

from engine.catalog import name_of
from engine.gguf import TENSOR_TYPES, GGUFFile, open_gguf
from engine.kernels.ops import Program
from engine.model import registry
from engine.model.config import ModelConfig
from engine.model.memory import kv_bytes_per_token, weights_bytes, workspace_bytes

DEFAULT_CONTEXT = 8192
MAX_ROWS = 128
"""Rows of one step at most; longer prompts are evaluated in chunks."""

_SHOWN_TEXT = 200


def choose_context(config: ModelConfig, n_ctx: int | None) -> int:
    """Tokens of context: what was asked for, or 8,192, but never more than the model was trained with."""
    return min(config.n_ctx_train, n_ctx or DEFAULT_CONTEXT)


def describe(path: str | os.PathLike[str], *, n_ctx: int | None = None, kv_dtype: str = "float16") -> dict[str, Any]:
    """Facts and memory estimate of the file at ``path``. Errors: ModelFileError, UnsupportedModelError."""
    with open_gguf(path) as file:
        config = registry.read(file.metadata, file.tensors)
        program = registry.build(config, file.tensors, choose_context(config, n_ctx))
        return describe_file(file, config, program, kv_dtype=kv_dtype)


def describe_file(file: GGUFFile, config: ModelConfig, program: Program, *, kv_dtype: str) -> dict[str, Any]:
    """The same of an open file; sizes in bytes."""
    return {
        "name": name_of(file.path) or config.name,
        "architecture": config.architecture,
        "parameters": count_parameters(file),
        "context_length": config.n_ctx_train,
        "context": program.n_ctx,
        "vocabulary": config.n_vocab,
        "layers": config.n_layers,
        "width": config.n_embd,
        "heads": config.n_heads,
        "kv_heads": config.n_kv_heads,
        "head_size": config.head_size,
        "file_bytes": file.size,
        "tensor_types": tensor_types(file),
        "memory": {
            "weights_bytes": weights_bytes(program),
            "kv_bytes_per_token": kv_bytes_per_token(program, np.dtype(kv_dtype).itemsize),
            "workspace_bytes": workspace_bytes(program, MAX_ROWS),
        },
        "metadata": _plain_metadata(file),
    }


def count_parameters(file: GGUFFile) -> int:
    """Weights in all tensors of the file."""
    return sum(math.prod(tensor.shape) for tensor in file.tensors.values())


def tensor_types(file: GGUFFile) -> dict[str, int]:
    """How many tensors there are of each type, by name."""
    return dict(Counter(TENSOR_TYPES[tensor.type].name for tensor in file.tensors.values()))


def _plain_metadata(file: GGUFFile) -> dict[str, Any]:
    """The file's keys for reading: numbers, flags, the start of texts; of lists only their length."""
    plain: dict[str, Any] = {}
    for key in file.metadata:
        length = file.metadata.length(key)
        value = f"list of {length}" if length is not None else file.metadata[key]
        plain[key] = value[:_SHOWN_TEXT] if isinstance(value, str) else value
    return plain
