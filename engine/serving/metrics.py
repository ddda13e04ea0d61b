"""``/metrics`` in Prometheus' text format; vLLM's names where the meaning is the same."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from engine.errors import EngineError
from engine.port import Snapshot
from engine.serving.problems import from_engine
from engine.serving.state import ServerState, model_id
from engine.serving.tally import Histogram, Tally

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})
_REASONS = {"stop": "stop", "length": "length", "cancelled": "abort", "evicted": "evicted", "error": "error"}


async def metrics(http: HttpRequest) -> Response:
    """Gauges of the engine, and counters of all its streams since this server was started."""
    state: ServerState = http.app.state.server
    info = state.bundle().info
    try:
        snapshot = await asyncio.wrap_future(state.port.snapshot())
    except EngineError as error:
        raise from_engine(error) from error
    label = f'model_name="{model_id(info).translate(_ESCAPES)}"'
    lines = [*_plain(label, state.broker.tally, snapshot), *_histograms(label, state.broker.tally)]
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _plain(label: str, tally: Tally, snapshot: Snapshot) -> Iterator[str]:
    running, pool = sum(stream.phase != "queued" for stream in snapshot.streams), snapshot.pool
    values: list[tuple[str, str, str, float]] = [
        ("vllm:num_requests_running", "gauge", "Streams that prefill or decode.", running),
        ("vllm:num_requests_waiting", "gauge", "Queued requests.", len(snapshot.streams) - running),
        ("vllm:kv_cache_usage_perc", "gauge", "Share of pages in use, 0 to 1.", pool.referenced / pool.capacity),
        ("vllm:prompt_tokens_total", "counter", "Prompt tokens of finished requests.", tally.prompt_tokens),
        ("vllm:generation_tokens_total", "counter", "Generated tokens.", tally.generated_tokens),
        ("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", tally.prompt_tokens),
        ("vllm:prefix_cache_hits_total", "counter", "Prompt tokens that were reused.", tally.cached_tokens),
        ("kvscope:pages_free", "gauge", "Free pages.", pool.free),
        ("kvscope:pages_cached", "gauge", "Pages that only the prefix cache holds.", pool.cached),
        ("kvscope:pages_referenced", "gauge", "Pages that streams hold.", pool.referenced),
        ("kvscope:chains", "gauge", "Chains in the prefix cache.", len(snapshot.chains)),
        ("kvscope:steps_total", "counter", "Engine steps.", snapshot.step),
    ]
    for name, kind, words, value in values:
        yield from _heading(name, kind, words)
        yield f"{name}{{{label}}} {_number(value)}"
    name = "vllm:request_success_total"
    yield from _heading(name, "counter", "Finished requests by reason.")
    for reason, count in tally.finished.items():
        yield f'{name}{{{label},finished_reason="{_REASONS[reason]}"}} {count}'


def _histograms(label: str, tally: Tally) -> Iterator[str]:
    for name, words, histogram in (
        ("vllm:time_to_first_token_seconds", "From submission to the first token.", tally.first_token),
        ("vllm:inter_token_latency_seconds", "Between two tokens of a reply (its mean).", tally.between_tokens),
        ("vllm:request_queue_time_seconds", "Waiting in the queue.", tally.queue),
        ("vllm:e2e_request_latency_seconds", "From submission to the last token.", tally.whole),
    ):
        yield from _heading(name, "histogram", words)
        yield from _buckets(name, label, histogram)


def _buckets(name: str, label: str, histogram: Histogram) -> Iterator[str]:
    total = 0
    for bound, count in zip((*histogram.bounds, float("inf")), histogram.counts, strict=True):
        total += count
        edge = "+Inf" if bound == float("inf") else f"{bound:g}"
        yield f'{name}_bucket{{{label},le="{edge}"}} {total}'
    yield f"{name}_sum{{{label}}} {_number(histogram.sum)}"
    yield f"{name}_count{{{label}}} {total}"


def _heading(name: str, kind: str, words: str) -> tuple[str, str]:
    return f"# HELP {name} {words}", f"# TYPE {name} {kind}"


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else repr(float(value))
