"""From a file to a program: tensors are checked against the config by name and shape."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest

from engine.errors import ModelFileError, UnsupportedModelError
from engine.gguf import GGUFFile, Metadata, open_gguf
from engine.kernels import ops
from engine.kernels.ops import Program, Tensor
from engine.model import registry
from engine.model.config import RopeConfig
from engine.model.rope import rope_table

TINY = Path(__file__).parents[1] / "data" / "tiny"


@pytest.fixture
def llama() -> GGUFFile:
    return open_gguf(TINY / "llama.gguf")


def build(file: GGUFFile, tensors: dict[str, Tensor] | None = None, n_ctx: int = 64) -> Program:
    tensors = file.tensors if tensors is None else tensors
    return registry.build(registry.read(file.metadata, tensors), tensors, n_ctx)


def test_program_of_a_llama(llama: GGUFFile) -> None:
    program = build(llama)
    kinds = [type(op) for op in program.body]
    assert kinds[0] is ops.Embed
    assert kinds.count(ops.Attend) == kinds.count(ops.StoreKV) == program.n_layers == 3
    assert [type(op) for op in program.head] == [ops.RmsNorm, ops.Matmul]
    assert (program.n_ctx, program.n_vocab, program.logits.width) == (64, 260, 260)
    output = program.head[1]
    assert isinstance(output, ops.Matmul) and output.weight is llama.tensors["token_embd.weight"]


@pytest.mark.parametrize("name", ["blk.1.attn_k.weight", "output_norm.weight", "blk.2.ffn_down.weight"])
def test_missing_tensor_is_named(llama: GGUFFile, name: str) -> None:
    tensors = {key: value for key, value in llama.tensors.items() if key != name}
    with pytest.raises(ModelFileError, match=re.escape(name)) as caught:
        build(llama, tensors)
    assert caught.value.field == name


def test_missing_embeddings(llama: GGUFFile) -> None:
    with pytest.raises(ModelFileError) as caught:
        registry.read(llama.metadata, {})
    assert caught.value.field == "token_embd.weight"


@pytest.mark.parametrize("name", ["blk.0.attn_q.weight", "blk.0.ffn_norm.weight"])
def test_wrong_shape_is_named(llama: GGUFFile, name: str) -> None:
    wrong = dataclasses.replace(llama.tensors[name], shape=(16, 16))
    with pytest.raises(ModelFileError, match="16 x 16") as caught:
        build(llama, llama.tensors | {name: wrong})
    assert caught.value.field == name


def test_tensor_nobody_reads(llama: GGUFFile) -> None:
    extra = dataclasses.replace(llama.tensors["output_norm.weight"], name="blk.0.attn_sinks.weight")
    with pytest.raises(UnsupportedModelError, match="attn_sinks"):
        build(llama, llama.tensors | {"blk.0.attn_sinks.weight": extra})


def test_tensor_of_a_type_without_kernels(llama: GGUFFile) -> None:
    name = "blk.0.attn_q.weight"
    odd = dataclasses.replace(llama.tensors[name], type=16)
    with pytest.raises(UnsupportedModelError, match="IQ2_XXS"):
        build(llama, llama.tensors | {name: odd})


def test_unknown_architecture(llama: GGUFFile) -> None:
    metadata = Metadata(dict(llama.metadata) | {"general.architecture": "mamba"})
    with pytest.raises(UnsupportedModelError, match="mamba"):
        registry.read(metadata, llama.tensors)


def test_fused_weights_are_views() -> None:
    file = open_gguf(TINY / "phi3.gguf")
    program = build(file)
    q, k, v = [op for op in program.body if isinstance(op, ops.Matmul)][:3]
    fused = file.tensors["blk.0.attn_qkv.weight"]
    assert (q.weight.shape, k.weight.shape, v.weight.shape) == ((64, 64), (32, 64), (32, 64))
    assert all(np.shares_memory(op.weight.data, fused.data) for op in (q, k, v))
    assert np.array_equal(np.concatenate([q.weight.data, k.weight.data, v.weight.data]), fused.data)


def test_windows_of_gemma2() -> None:
    program = build(open_gguf(TINY / "gemma2.gguf"))
    attends = [op for op in program.body if isinstance(op, ops.Attend)]
    assert [op.window for op in attends] == [16, 0, 16]
    assert {op.softcap for op in attends} == {50.0}
    assert isinstance(program.head[-1], ops.Softcap) and program.head[-1].cap == 30.0


def test_rope_linear_scaling_stretches_positions() -> None:
    plain = rope_table(RopeConfig(base=10_000.0, rotated=8), 64)
    stretched = rope_table(RopeConfig(base=10_000.0, rotated=8, scaling="linear", factor=4.0), 64)
    assert np.allclose(stretched.cos[::4], plain.cos[:16], atol=1e-6)


def test_rope_yarn_keeps_quick_frequencies_and_stretches_slow_ones() -> None:
    config = RopeConfig(base=10_000.0, rotated=64, scaling="yarn", factor=8.0, original_context=256)
    plain = rope_table(RopeConfig(base=10_000.0, rotated=64), 2)
    yarn = rope_table(config, 2)
    magnitude = 1 + 0.1 * np.log(8.0)
    angle, stretched = np.arctan2(plain.sin[1], plain.cos[1]), np.arctan2(yarn.sin[1], yarn.cos[1])
    assert np.allclose(np.hypot(yarn.cos, yarn.sin), magnitude, atol=1e-5)
    assert stretched[0] == pytest.approx(angle[0], rel=1e-5)
    assert stretched[-1] == pytest.approx(angle[-1] / 8, rel=1e-5)


def test_rope_factors_divide_frequencies() -> None:
    factors = np.array([1.0, 2.0, 4.0, 8.0], np.float32)
    plain = rope_table(RopeConfig(base=100.0, rotated=8), 3)
    divided = rope_table(RopeConfig(base=100.0, rotated=8), 3, factors=factors)
    assert np.allclose(
        np.arctan2(divided.sin[1], divided.cos[1]), np.arctan2(plain.sin[1], plain.cos[1]) / factors, atol=1e-6
    )
