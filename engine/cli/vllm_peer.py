"""The vLLM side of ``bench --peer vllm``: run by the peer's own Python, needs vllm, gguf and nothing of ours.

``vllm_peer.py MODEL THREADS CONTEXT STREAMS TOKENS`` reads one JSON question per line and answers {"rate": tokens per
second}; no sequence is longer than CONTEXT, and there are at most STREAMS. vLLM does not read GGUF files on the CPU, so
it is given the same weights unpacked: as bfloat16 where the processor multiplies that, else as float32, which is its
faster way there. Only llama models.
"""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_STEP_TOKENS = 4096
_NAMES = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}


def native_bfloat16() -> bool:
    """Whether this processor multiplies bfloat16 itself."""
    try:
        return "avx512_bf16" in Path("/proc/cpuinfo").read_text()
    except OSError:
        return False


def unpack(path: str, folder: str, dtype: str) -> tuple[int, int]:
    """Write the weights of a GGUF file of a llama to ``folder`` as Hugging Face's library keeps them; returns how long
    its context and how large its vocabulary is."""
    import gguf
    import numpy as np
    import torch
    from safetensors.torch import save_file

    reader = gguf.GGUFReader(path)
    if reader.fields["general.architecture"].contents() != "llama":
        raise SystemExit("only llama models are unpacked for vLLM")

    def number(key: str) -> Any:
        return reader.fields[f"llama.{key}"].contents()

    heads, kv_heads = number("attention.head_count"), number("attention.head_count_kv")
    weights = {}
    for tensor in reader.tensors:
        if not tensor.name.endswith(".weight") or tensor.name == "rope_freqs.weight":
            raise SystemExit(f"what {tensor.name} is for vLLM is not known here")
        values = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32)
        parts = tensor.name.split(".")
        if parts[0] != "blk":
            name = _WHOLE[parts[0]]
        else:
            name = f"model.layers.{parts[1]}.{_NAMES[parts[2]]}"
        if parts[-2] in ("attn_q", "attn_k"):
            # GGUF keeps the pairs that are turned together side by side, the library half a head apart.
            count = heads if parts[-2] == "attn_q" else kv_heads
            rows, columns = values.shape
            values = values.reshape(count, rows // count // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)
        weights[f"{name}.weight"] = torch.from_numpy(np.ascontiguousarray(values)).to(getattr(torch, dtype))
    save_file(weights, f"{folder}/model.safetensors", metadata={"format": "pt"})
    config = _config(number, weights["model.embed_tokens.weight"].shape[0], "lm_head.weight" not in weights, dtype)
    Path(folder, "config.json").write_text(json.dumps(config))
    return int(config["max_position_embeddings"]), int(config["vocab_size"])


def _config(number: Callable[[str], Any], n_vocab: int, tied: bool, dtype: str) -> dict[str, Any]:
    """The model's description as the library has it; ``number`` reads a field of the GGUF file."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": number("embedding_length"),
        "intermediate_size": number("feed_forward_length"),
        "num_hidden_layers": number("block_count"),
        "num_attention_heads": number("attention.head_count"),
        "num_key_value_heads": number("attention.head_count_kv"),
        "rms_norm_eps": float(number("attention.layer_norm_rms_epsilon")),
        "rope_theta": float(number("rope.freq_base")),
        "max_position_embeddings": number("context_length"),
        "vocab_size": n_vocab,
        "tie_word_embeddings": tied,
        "hidden_act": "silu",
        "torch_dtype": dtype,
    }


class Engine:
    """vLLM's engine in this process, one step at a time, without its prefix cache."""

    def __init__(self, folder: str, threads: int, context: int, streams: int, dtype: str, n_vocab: int) -> None:
        os.environ["VLLM_CPU_KVCACHE_SPACE"] = "2"
        os.environ["VLLM_CPU_OMP_THREADS_BIND"] = f"0-{threads - 1}"
        os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
        from vllm import EngineArgs, LLMEngine, SamplingParams

        self.params = SamplingParams
        self.n_vocab = n_vocab
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                folder,
                skip_tokenizer_init=True,
                dtype=dtype,
                max_model_len=context,
                max_num_seqs=streams,
                max_num_batched_tokens=max(context, _STEP_TOKENS),
                enable_prefix_caching=False,
            )
        )
        self.random = random.Random(0)
        self.asked = 0

    def ask(self, n: int, new: int) -> None:
        """Queue a prompt of ``n`` random tokens and ``new`` tokens to come."""
        self.asked += 1
        prompt = [self.random.randrange(5, self.n_vocab) for _ in range(n)]
        params = self.params(max_tokens=new, temperature=0, ignore_eos=True, detokenize=False)
        self.engine.add_request(str(self.asked), {"prompt_token_ids": prompt}, params)

    def finish(self) -> None:
        """Step until nothing is left to do."""
        while self.engine.has_unfinished_requests():
            self.engine.step()

    def prefill(self, n: int) -> float:
        """Tokens/s of reading ``n`` tokens."""
        self.ask(n, 1)
        start = time.perf_counter()
        self.finish()
        return n / (time.perf_counter() - start)

    def decode(self, width: int, context: int, steps: int, warm_up: int) -> float:
        """Tokens/s of ``width`` sequences advancing together."""
        reading = 1 + width * max(context, 1) // _STEP_TOKENS
        for _ in range(width):
            self.ask(max(context, 1), warm_up + steps + reading + 1)
        begun: set[str] = set()
        while len(begun) < width:
            begun.update(output.request_id for output in self.engine.step() if output.outputs[0].token_ids)
        for _ in range(warm_up):
            self.engine.step()
        start = time.perf_counter()
        for _ in range(steps):
            self.engine.step()
        rate = width * steps / (time.perf_counter() - start)
        self.finish()
        return rate


def main() -> None:
    sys.path.remove(str(Path(__file__).resolve().parent))  # its modules are not for others: one is called profile
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what vLLM reports is no answer
    path, threads, context, streams, _ = sys.argv[1:]
    dtype = "bfloat16" if native_bfloat16() else "float32"
    with tempfile.TemporaryDirectory() as folder:
        longest, n_vocab = unpack(path, folder, dtype)
        engine = Engine(folder, int(threads), min(int(context), longest), int(streams), dtype, n_vocab)
        for line in sys.stdin:
            question = json.loads(line)
            if "prefill" in question:
                rate = engine.prefill(question["prefill"])
            elif "decode" in question:
                rate = engine.decode(question["decode"], question["context"], question["steps"], question["warm_up"])
            else:
                rate = 0.0
            print(json.dumps({"rate": rate}), file=answers, flush=True)


if __name__ == "__main__":
    main()
