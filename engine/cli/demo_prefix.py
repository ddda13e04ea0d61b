"""``demo prefix``: the prefix cache by hand — donate, attach, list, release — with every step printed."""

from __future__ import annotations

import argparse
import time
from typing import Any

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.cli.common import add_model_options, check_length, emit, load, note

SYSTEM = (
    "You are a terse assistant in a hardware shop. Opening hours: Monday to Friday 8 to 18, Saturday 9 to 13, closed "
    "on Sunday. You sell tools, paint, timber and garden supplies. You never give legal or medical advice. Prices are "
    "in euros."
)
QUESTION_1 = " Do you sell drills?"
QUESTION_2 = " When do you open?"


def add_command(commands: Any) -> None:
    """Register ``demo prefix``."""
    parser = commands.add_parser("prefix", help="donate, attach, list chains, release, step by step")
    add_model_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Two streams over one system prompt: the second attaches what the first donated."""
    with load(arguments) as model:
        result = walk(model)
    if arguments.json:
        emit(result)


def walk(model: Any) -> dict[str, Any]:
    """The whole story on one pool; returns its numbers."""
    prompt_1 = model.encode_prompt(SYSTEM + QUESTION_1)
    prompt_2 = model.encode_prompt(SYSTEM + QUESTION_2)
    check_length(max(len(prompt_1), len(prompt_2)), model, "The demonstration")
    pool = KVPool(model.kv_spec, capacity_pages=64)
    cache = PrefixCache(pool)
    note(
        f"pool: {pool.capacity_pages} pages of {pool.page_rows} tokens, "
        f"{model.kv_spec.page_bytes(pool.page_rows):,} bytes each"
    )
    try:
        with model.new_session(pool) as first:
            cold_ms = _timed(lambda: model.eval(first, prompt_1))
            note(f"stream A: evaluated {len(prompt_1)} tokens in {cold_ms:.1f} ms, holds {first.n_pages} pages")
            chain = cache.insert(first, prompt_1, label="system prompt")
            note(f"stream A donates: the cache holds {cache.held_pages} full pages")
        note(f"stream A released: {_counts(pool)}")
        with model.new_session(pool) as second:
            matched = cache.attach(second, prompt_2)
            note(f"stream B: attached {matched} of {len(prompt_2)} tokens ({matched // pool.page_rows} pages)")
            warm_ms = _timed(lambda: model.eval(second, prompt_2[matched:]))
            note(f"stream B: evaluated the other {len(prompt_2) - matched} in {warm_ms:.1f} ms")
            for c in (chains := cache.chains()):
                note(f"chain {c.id}: {c.n_tokens} tokens, {len(c.pages)} live pages, {c.hits} hit(s), '{c.label}'")
            held = cache.held_pages
            report = cache.release(chains[0].id)
            note(f"release while B runs: {report.freed} freed, {report.kept} kept, {report.shared} still used by B")
        note(f"stream B released: {_counts(pool)}")
    finally:
        cache.release_all()
        pool.close()
    note("the pool is closed: every page came back")
    return {
        "cold": {"n_prompt": len(prompt_1), "eval_ms": cold_ms},
        "warm": {"n_prompt": len(prompt_2), "n_cached": matched, "eval_ms": warm_ms},
        "chain": chain,
        "held_pages": held,
        "release": {"freed": report.freed, "kept": report.kept, "shared": report.shared},
    }


def _timed(action: Any) -> float:
    start = time.perf_counter()
    action()
    return (time.perf_counter() - start) * 1000


def _counts(pool: KVPool) -> str:
    counts = pool.counts()
    return f"{counts.free} free + {counts.cached} cached + {counts.referenced} referenced = {counts.capacity}"
