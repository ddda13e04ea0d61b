"""How much memory a program needs: its weights as the kernels pack them, and the scratch space of its steps."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields

from gguf import GGMLQuantizationType

from engine.cache.memory import free_memory
from engine.errors import ModelMemoryError
from engine.kernels.formats import BLOCK_ROWS, BY_TYPE, FLOAT_BYTES, FLOATS, GROUP
from engine.kernels.ops import Matmul, Program, RopeTable, Tensor

_LEAST_TOKENS = 512
"""Tokens of KV that must fit beside the weights for a load to make sense."""

_DIGITS = 2
"""Records of a quantized activation row: its codes, and a second digit where a group needs one."""


def values_of(program: Program) -> Iterator[object]:
    """Every tensor and table that the program's operations name, once."""
    seen: set[int] = set()
    for op in (*program.body, *program.head):
        for item in fields(op):
            value = getattr(op, item.name)
            if isinstance(value, Tensor | RopeTable) and id(value) not in seen:
                seen.add(id(value))
                yield value


def packed_bytes(tensor: Tensor) -> int:
    """Bytes of a tensor in memory: matrices in blocks of 16 rows (see ``kernels.formats``), vectors as float32."""
    if len(tensor.shape) == 1:
        return 4 * tensor.shape[0]
    *experts, rows, cols = tensor.shape
    kind = GGMLQuantizationType(tensor.type)
    packed = BY_TYPE.get(kind)
    if packed is not None:
        block = packed.block_bytes(cols // GROUP)
    elif kind in FLOATS:
        block = -(-cols * BLOCK_ROWS * FLOAT_BYTES[FLOATS[kind]] // 64) * 64
    else:
        return len(tensor.data)
    return math.prod(experts) * -(-rows // BLOCK_ROWS) * block


def weights_bytes(program: Program) -> int:
    """Bytes of all weights."""
    return sum(packed_bytes(value) for value in values_of(program) if isinstance(value, Tensor))


def workspace_bytes(program: Program, max_rows: int) -> int:
    """Bytes of the registers (logits go straight to their sessions), of quantized activations and of rope tables."""
    registers = sum(program.registers) - program.logits.width
    inputs = {op.x.index: op.x.width for op in (*program.body, *program.head) if isinstance(op, Matmul)}
    quantized = sum(-(-width // GROUP) * 64 * _DIGITS for width in inputs.values())
    tables = sum(value.cos.nbytes + value.sin.nbytes for value in values_of(program) if isinstance(value, RopeTable))
    return max_rows * (4 * registers + quantized) + tables


def kv_bytes_per_token(program: Program, item_bytes: int) -> int:
    """Bytes of K and V of one position in all layers."""
    return 2 * program.n_layers * program.kv_heads * program.head_size * item_bytes


def check_fits(program: Program, *, max_rows: int, kv_item_bytes: int) -> None:
    """Raise ``ModelMemoryError``, with figures, if the model cannot fit into the memory that is free now."""
    kv = _LEAST_TOKENS * kv_bytes_per_token(program, kv_item_bytes)
    needed, available = weights_bytes(program) + workspace_bytes(program, max_rows) + kv, free_memory()
    if needed > available:
        raise ModelMemoryError(
            f"This model needs {_size(needed)} of memory, but only {_size(available)} are free: close other programs, "
            "or choose a smaller model or one with fewer bits per weight."
        )


def _size(n: int) -> str:
    return f"{n / 2**30:.1f} GiB" if n >= 2**30 else f"{n / 2**20:.0f} MiB"
