"""The parts that architectures are put together from: a builder that emits operations, and the usual blocks."""

from __future__ import annotations

from typing import Literal

from engine.kernels import ops
from engine.kernels.ops import Op, Program, Reg, RopeTable
from engine.model.config import ModelConfig
from engine.model.rope import rope_table
from engine.model.weights import Weights

Activation = Literal["silu", "gelu"]
Pairs = Literal["adjacent", "halves"]


class Builder:
    """Collects the operations of one forward pass.

    ``x`` is the residual stream; the other registers are scratch that every layer uses again.
    """

    def __init__(self, config: ModelConfig, weights: Weights, n_ctx: int) -> None:
        self.config = config
        self.weights = weights
        self.n_ctx = n_ctx
        self._ops: list[Op] = []
        self._widths: list[int] = []
        self.x = self.register(config.n_embd)
        self.normed = self.register(config.n_embd)
        self.delta = self.register(config.n_embd)
        self.q = self.register(config.q_width)
        self.k = self.register(config.kv_width)
        self.v = self.register(config.kv_width)
        self.mixed = self.register(config.q_width)

    def register(self, width: int) -> Reg:
        """A new register of ``width`` floats a row."""
        self._widths.append(width)
        return Reg(len(self._widths) - 1, width)

    def emit(self, *operations: Op) -> None:
        self._ops.extend(operations)

    def rope(self, *, factors: str = "") -> RopeTable:
        """The table that the config describes, divided by the frequency factors of the tensor named ``factors``."""
        rope = self.config.rope
        divisors = self.weights.floats(factors, rope.rotated // 2) if factors in self.weights else None
        return rope_table(rope, self.n_ctx, factors=divisors)

    def embed(self, scale: float = 1.0) -> None:
        table = self.weights.tensor("token_embd.weight", self.config.n_vocab, self.config.n_embd)
        self.emit(ops.Embed(self.x, table, scale))

    def norm(self, out: Reg, x: Reg, name: str, groups: int = 1) -> None:
        """RMS norm by the weight ``name``; with ``groups`` heads each head by itself."""
        weight = self.weights.tensor(name, x.width // groups)
        self.emit(ops.RmsNorm(out, x, weight, self.config.eps, groups))

    def finish(self, *, logit_scale: float = 1.0, softcap: float = 0.0) -> Program:
        """Final norm and output product (tied to the embeddings where the file has no output weight)."""
        config, body = self.config, tuple(self._ops)
        self._ops = []
        logits = self.register(config.n_vocab)
        self.norm(self.normed, self.x, "output_norm.weight")
        name = "output.weight" if "output.weight" in self.weights else "token_embd.weight"
        output = self.weights.tensor(name, config.n_vocab, config.n_embd)
        bias = self.weights.optional("output.bias", config.n_vocab)
        self.emit(ops.Matmul(logits, self.normed, output, bias, scale=logit_scale))
        if softcap > 0:
            self.emit(ops.Softcap(logits, logits, softcap))
        self.weights.check_all_used()
        return Program(
            body=body,
            head=tuple(self._ops),
            registers=tuple(self._widths),
            residual=self.x,
            hidden=self.normed,
            logits=logits,
            n_layers=config.n_layers,
            kv_heads=config.n_kv_heads,
            head_size=config.head_size,
            n_ctx=self.n_ctx,
            n_vocab=config.n_vocab,
        )


def attention(
    b: Builder,
    layer: int,
    *,
    rope: RopeTable | None,
    pairs: Pairs = "halves",
    norms: Literal["pre", "post", "both"] = "pre",
    qk_norms: Literal["none", "heads", "row"] = "none",
    window: int = 0,
    residual_scale: float = 1.0,
) -> None:
    """Self-attention with its norms, added to the residual stream. ``rope`` None: no positions (NoPE)."""
    config, prefix = b.config, f"blk.{layer}."
    source = b.x
    if norms != "post":
        b.norm(b.normed, b.x, prefix + "attn_norm.weight")
        source = b.normed
    _project(b, prefix, source)
    if qk_norms != "none":
        by_head = qk_norms == "heads"
        b.norm(b.q, b.q, prefix + "attn_q_norm.weight", config.n_heads if by_head else 1)
        b.norm(b.k, b.k, prefix + "attn_k_norm.weight", config.n_kv_heads if by_head else 1)
    if rope is not None:
        rotated = config.rope.rotated
        b.emit(ops.Rope(b.q, config.n_heads, config.head_size, rotated, rope, pairs))
        b.emit(ops.Rope(b.k, config.n_kv_heads, config.head_size, rotated, rope, pairs))
    scale = config.attention_scale or config.head_size**-0.5
    heads = config.n_heads, config.n_kv_heads, config.head_size
    b.emit(
        ops.StoreKV(layer, b.k, b.v),
        ops.Attend(b.mixed, b.q, layer, *heads, scale, config.attention_softcap, window),
    )
    post_norm = "" if norms == "pre" else prefix + "post_attention_norm.weight"
    project_back(b, b.mixed, prefix + "attn_output", post_norm=post_norm, residual_scale=residual_scale)


def _project(b: Builder, prefix: str, source: Reg) -> None:
    """q, k and v from ``source``; files hold them apart or fused, with biases or without."""
    widths = b.q.width, b.k.width, b.v.width
    if prefix + "attn_qkv.weight" in b.weights:
        parts = b.weights.split_rows(prefix + "attn_qkv.weight", widths, source.width)
        biases = b.weights.split_vector(prefix + "attn_qkv.bias", widths)
        for register, weight, bias in zip((b.q, b.k, b.v), parts, biases, strict=True):
            b.emit(ops.Matmul(register, source, weight, bias))
        return
    for register, name in ((b.q, "attn_q"), (b.k, "attn_k"), (b.v, "attn_v")):
        weight = b.weights.tensor(f"{prefix}{name}.weight", register.width, source.width)
        b.emit(ops.Matmul(register, source, weight, b.weights.optional(f"{prefix}{name}.bias", register.width)))


def project_back(b: Builder, source: Reg, name: str, *, post_norm: str = "", residual_scale: float = 1.0) -> None:
    """x += (W source + bias) * residual_scale, or x += norm(W source + bias) * residual_scale."""
    weight = b.weights.tensor(name + ".weight", b.x.width, source.width)
    bias = b.weights.optional(name + ".bias", b.x.width)
    if not post_norm:
        b.emit(ops.Matmul(b.x, source, weight, bias, add=True, scale=residual_scale))
        return
    b.emit(ops.Matmul(b.delta, source, weight, bias))
    b.norm(b.delta, b.delta, post_norm)
    b.emit(ops.Add(b.x, b.x, b.delta, residual_scale))


class FeedForward:
    """Gated feed-forward blocks; keeps the registers that all layers share."""

    def __init__(self, b: Builder, *, act: Activation = "silu") -> None:
        self.b = b
        self.act = act
        self._gates: dict[int, tuple[Reg, Reg]] = {}

    def _registers(self, width: int) -> tuple[Reg, Reg]:
        if width not in self._gates:
            self._gates[width] = self.b.register(width), self.b.register(width)
        return self._gates[width]

    def dense(self, layer: int, *, norms: Literal["pre", "post", "both"] = "pre", residual_scale: float = 1.0) -> None:
        """x += down(act(gate(h)) * up(h)), h the normed x; files hold gate and up apart or fused (gate first)."""
        b, prefix = self.b, f"blk.{layer}."
        source = self._normed(prefix, norms)
        gate, up = self._registers(b.config.n_ff)
        if prefix + "ffn_gate.weight" in b.weights:
            for register, name in ((gate, "ffn_gate"), (up, "ffn_up")):
                weight = b.weights.tensor(f"{prefix}{name}.weight", register.width, source.width)
                bias = b.weights.optional(f"{prefix}{name}.bias", register.width)
                b.emit(ops.Matmul(register, source, weight, bias))
        else:
            parts = b.weights.split_rows(prefix + "ffn_up.weight", (gate.width, up.width), source.width)
            b.emit(ops.Matmul(gate, source, parts[0]), ops.Matmul(up, source, parts[1]))
        b.emit(ops.Glu(gate, gate, up, self.act))
        post_norm = "" if norms == "pre" else prefix + "post_ffw_norm.weight"
        project_back(b, gate, prefix + "ffn_down", post_norm=post_norm, residual_scale=residual_scale)

    def experts(self, layer: int, *, renormalize: bool, residual_scale: float = 1.0) -> None:
        """A mixture of experts, and the shared expert where the model has one."""
        b, config, prefix = self.b, self.b.config, f"blk.{layer}."
        source = self._normed(prefix, "pre")
        (router, _) = self._registers(config.experts)
        weight = b.weights.tensor(prefix + "ffn_gate_inp.weight", config.experts, source.width)
        b.emit(ops.Matmul(router, source, weight))
        up_shape = config.experts, config.expert_ff, source.width
        if config.experts_renormalize is not None:
            renormalize = config.experts_renormalize
        b.emit(
            ops.Experts(
                out=b.x,
                x=source,
                router_logits=router,
                gate=b.weights.tensor(prefix + "ffn_gate_exps.weight", *up_shape),
                up=b.weights.tensor(prefix + "ffn_up_exps.weight", *up_shape),
                down=b.weights.tensor(prefix + "ffn_down_exps.weight", config.experts, b.x.width, config.expert_ff),
                used=config.experts_used,
                act=self.act,
                renormalize=renormalize,
                scale=config.expert_scale * residual_scale,
            )
        )
        if config.shared_expert_ff:
            self._shared_expert(prefix, source)

    def _shared_expert(self, prefix: str, source: Reg) -> None:
        """x += sigmoid(g·h) * down(act(gate(h)) * up(h))."""
        b, width = self.b, self.b.config.shared_expert_ff
        gate, up = self._registers(width)
        (switch, _) = self._registers(1)
        for register, name in ((gate, "ffn_gate_shexp"), (up, "ffn_up_shexp")):
            weight = b.weights.tensor(f"{prefix}{name}.weight", width, source.width)
            b.emit(ops.Matmul(register, source, weight))
        b.emit(
            ops.Matmul(switch, source, b.weights.as_matrix(prefix + "ffn_gate_inp_shexp.weight", source.width)),
            ops.Glu(gate, gate, up, self.act),
            ops.Matmul(b.delta, gate, b.weights.tensor(prefix + "ffn_down_shexp.weight", b.x.width, width)),
            ops.SigmoidGate(b.delta, b.delta, switch),
            ops.Add(b.x, b.x, b.delta),
        )

    def _normed(self, prefix: str, norms: str) -> Reg:
        b = self.b
        if norms == "post":
            return b.x
        b.norm(b.normed, b.x, prefix + "ffn_norm.weight")
        return b.normed
