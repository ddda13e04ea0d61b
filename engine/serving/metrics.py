"""``/metrics`` in Prometheus' text format; vLLM's names where the meaning is the same."""

from __future__ import annotations

import asyncio

from starlette.requests import Request as HttpRequest
from starlette.responses import PlainTextResponse, Response

from engine.port import Snapshot
from engine.serving.broker import Broker
from engine.serving.state import ServerState


async def metrics(http: HttpRequest) -> Response:
    """Counters of this server and gauges of the engine."""
    state: ServerState = http.app.state.server
    info = state.bundle().info
    snapshot = await asyncio.wrap_future(state.port.snapshot())
    model = f'model_name="{info.name.translate(_ESCAPES)}"'
    lines: list[str] = []
    for name, kind, help_text, value in _values(state.broker, snapshot):
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} {kind}", f"{name}{{{model}}} {value:g}"]
    lines += [
        "# HELP vllm:request_success_total Finished requests by reason.",
        "# TYPE vllm:request_success_total counter",
    ]
    for reason, count in state.broker.finished.items():
        lines.append(f'vllm:request_success_total{{{model},finished_reason="{reason}"}} {count}')
    return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


def _values(broker: Broker, snapshot: Snapshot) -> list[tuple[str, str, str, float]]:
    running = sum(s.phase != "queued" for s in snapshot.streams)
    pool = snapshot.pool
    return [
        ("vllm:num_requests_running", "gauge", "Streams that prefill or decode.", running),
        ("vllm:num_requests_waiting", "gauge", "Queued requests.", len(snapshot.streams) - running),
        (
            "vllm:kv_cache_usage_perc",
            "gauge",
            "Share of pages that streams hold, 0 to 1.",
            pool.referenced / pool.capacity,
        ),
        ("vllm:prompt_tokens_total", "counter", "Prompt tokens of finished requests.", broker.prompt_tokens),
        ("vllm:generation_tokens_total", "counter", "Generated tokens.", broker.generated_tokens),
        ("vllm:prefix_cache_queries_total", "counter", "Prompt tokens looked up.", broker.prompt_tokens),
        ("vllm:prefix_cache_hits_total", "counter", "Prompt tokens that were reused.", broker.cached_tokens),
        ("vllm:time_to_first_token_seconds_sum", "counter", "Seconds to first tokens, added up.", broker.first_token_s),
        ("vllm:time_to_first_token_seconds_count", "counter", "Requests with a first token.", broker.first_tokens),
        ("kvscope:pages_free", "gauge", "Free pages.", pool.free),
        ("kvscope:pages_cached", "gauge", "Pages that only the prefix cache holds.", pool.cached),
        ("kvscope:pages_referenced", "gauge", "Pages that streams hold.", pool.referenced),
        ("kvscope:steps_total", "counter", "Engine steps.", snapshot.step),
    ]
