"""Checks of a request before it is queued: what could never run is refused at once, with the value named."""

from __future__ import annotations

import math

from engine.errors import BadRequestValueError, EmptyPromptError, PromptTooLongError
from engine.scheduling.request import Request, SamplingParams

LARGEST = 1_000_000
"""Bound of temperatures, penalties and biases: far beyond any use, and safe in float32."""


def validate(request: Request, *, n_ctx: int, n_vocab: int, capacity_rows: int) -> None:
    """Raise a typed error unless ``request`` can run with this context, vocabulary and pool (in rows)."""
    n = len(request.prompt)
    if n == 0:
        raise EmptyPromptError("The prompt is empty: give at least one token.")
    if request.kind not in ("generate", "warm"):
        raise BadRequestValueError("kind must be generate or warm.", field="kind")
    if request.kind == "generate" and request.max_new < 1:
        raise BadRequestValueError("max_new must be at least 1.", field="max_new")
    room = n_ctx - (request.kind == "generate")
    if n > room:
        raise PromptTooLongError(
            f"The prompt has {n} tokens; the context of {n_ctx} leaves room for {room}. Shorten it, or load the model "
            "with a larger context."
        )
    if n > capacity_rows:
        raise PromptTooLongError(
            f"The prompt has {n} tokens; the KV pool holds {capacity_rows}. Shorten it, or give the pool more memory."
        )
    for field, tokens in (("prompt", request.prompt), ("close_tokens", request.close_tokens)):
        if any(not 0 <= token < n_vocab for token in (min(tokens, default=0), max(tokens, default=0))):
            raise BadRequestValueError(f"{field} has token ids outside 0 to {n_vocab - 1}.", field=field)
    if request.logprobs is not None and not 0 <= request.logprobs <= n_vocab:
        raise BadRequestValueError(f"logprobs must lie between 0 and {n_vocab}.", field="logprobs")
    validate_sampling(request.sampling, n_vocab)


def validate_sampling(sampling: SamplingParams, n_vocab: int) -> None:
    """Raise ``BadRequestValueError`` unless every value is in its range."""

    def check(field: str, good: bool, rule: str) -> None:
        if not good:
            raise BadRequestValueError(f"{field} must be {rule}.", field=field)

    def within(value: float) -> bool:
        return -LARGEST <= value <= LARGEST  # false for NaN

    check("temperature", 0 <= sampling.temperature <= LARGEST, f"between 0 and {LARGEST:,}")
    check("top_k", 0 <= sampling.top_k < 2**63, "0 (off) or more")
    check("top_p", 0 < sampling.top_p <= 1, "above 0 and at most 1")
    check("min_p", 0 <= sampling.min_p <= 1, "between 0 and 1")
    check(
        "repetition_penalty",
        1 / LARGEST <= sampling.repetition_penalty <= LARGEST,
        f"above 0 and at most {LARGEST:,}",
    )
    check("presence_penalty", within(sampling.presence_penalty), f"between -{LARGEST:,} and {LARGEST:,}")
    check("frequency_penalty", within(sampling.frequency_penalty), f"between -{LARGEST:,} and {LARGEST:,}")
    check("penalty_last_n", sampling.penalty_last_n >= 0, "0 (off) or more")
    biased = all(0 <= token < n_vocab and (within(bias) or math.isinf(bias)) for token, bias in sampling.logit_bias)
    check("logit_bias", biased, f"pairs of a token id from 0 to {n_vocab - 1} and a number of at most {LARGEST:,}")
