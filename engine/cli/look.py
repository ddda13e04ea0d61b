"""``info``, ``tokenize``, ``logits`` and ``score``: look at a model without chatting with it."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from engine.cli.common import add_model_options, check_finite, emit, load, note, positive, read_id_lists, read_texts

LANES = ("prompt", "generated", "exact")


def add_commands(commands: Any) -> None:
    """Register the four commands."""
    info = commands.add_parser("info", help="metadata, tensor types and a memory estimate")
    info.add_argument("model", metavar="MODEL", help="a GGUF file or a catalogue id")
    info.add_argument("--context", type=positive, metavar="N", help="tokens of context")
    info.add_argument("--json", action="store_true", help="print JSON")
    info.set_defaults(run=run_info)

    tokenize = commands.add_parser("tokenize", help="strings to token ids")
    tokenize.add_argument("model", metavar="MODEL", help="a GGUF file or a catalogue id")
    tokenize.add_argument("--file", required=True, help="a JSON list of strings (- for stdin)")
    tokenize.add_argument("--special", action="store_true", help="recognise control tokens in the text")
    tokenize.add_argument("--json", action="store_true", help="print JSON (it always does)")
    tokenize.set_defaults(run=run_tokenize)

    logits = commands.add_parser("logits", help="the largest logits after each prompt")
    add_model_options(logits)
    logits.add_argument("--file", required=True, help="a JSON list of token-id lists (- for stdin)")
    logits.add_argument("--top", type=positive, default=8, metavar="N", help="how many (default 8)")
    logits.add_argument("--lane", choices=LANES, default="prompt", help="which arithmetic evaluates the rows")
    logits.set_defaults(run=run_logits)

    score = commands.add_parser("score", help="mean negative log-likelihood of token lists, nats per token")
    add_model_options(score)
    score.add_argument("--file", required=True, help="a JSON list of token-id lists (- for stdin)")
    score.add_argument("--lane", choices=LANES, default="prompt", help="which arithmetic evaluates the rows")
    score.set_defaults(run=run_score)


def run_info(arguments: argparse.Namespace) -> None:
    """Print what the file is and what it would need, without packing its weights."""
    from engine.catalog import resolve
    from engine.model.language_model import describe

    info = describe(resolve(arguments.model), n_ctx=arguments.context)
    if arguments.json:
        emit(info)
        return
    memory = info["memory"]
    print(f"{info['name']}: {info['architecture']}, {info['parameters'] / 1e6:,.1f} M parameters")
    print(f"context {info['context_length']:,} tokens")
    print("tensors " + ", ".join(f"{count} × {kind}" for kind, count in sorted(info["tensor_types"].items())))
    print(
        f"memory: weights {memory['weights_bytes'] / 2**20:,.0f} MiB, "
        f"KV {memory['kv_bytes_per_token'] * 1000 / 2**20:,.1f} MiB per 1,000 tokens, "
        f"workspace {memory['workspace_bytes'] / 2**20:,.0f} MiB"
    )


def run_tokenize(arguments: argparse.Namespace) -> None:
    """Print one list of ids per string."""
    from engine.catalog import resolve
    from engine.gguf import open_gguf
    from engine.text.tokenizer import Tokenizer

    with open_gguf(resolve(arguments.model)) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    emit([tokenizer.encode(text, special=arguments.special) for text in read_texts(arguments.file)])


def run_logits(arguments: argparse.Namespace) -> None:
    """Print the N largest logits at the last position of each list."""
    with load(arguments, exact=arguments.lane == "exact") as model:
        results = []
        for ids in read_id_lists(arguments.file, model):
            row = model.logits(ids, lane=arguments.lane)
            check_finite(row)
            best = np.argsort(-row, kind="stable")[: arguments.top]
            results.append({"ids": [int(i) for i in best], "logits": [float(row[i]) for i in best]})
    emit(results)


def run_score(arguments: argparse.Namespace) -> None:
    """Print the mean negative log-likelihood of each list's tokens after the first."""
    with load(arguments, exact=arguments.lane == "exact") as model:
        results = []
        for ids in read_id_lists(arguments.file, model):
            nll = model.score(ids, lane=arguments.lane)
            check_finite(nll)
            results.append({"mean_nll": float(np.mean(nll)) if len(nll) else 0.0, "n": len(nll)})
            note(f"{len(nll)} tokens: {results[-1]['mean_nll']:.4f} nats per token")
    emit(results)
