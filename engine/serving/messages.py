"""Request bodies turned into what the engine takes: sampling, limits, turns, schemas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from engine.port import Role, Turn
from engine.scheduling.request import SamplingParams
from engine.serving.fields import Fields
from engine.serving.problems import bad

MAX_NEW_LIMIT = 1 << 20
SEEDS = 1 << 63
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_IMPOSSIBLE = ("tools", "functions", "suffix", "echo", "audio", "prediction", "web_search_options")
"""Fields that would change what a reply is, so that leaving them out of account would mislead the client."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a completion request asks for beside its prompt. ``max_new`` None: as much as the context has room for."""

    sampling: SamplingParams
    max_new: int | None
    stop_strings: tuple[str, ...]
    stream: bool
    include_usage: bool
    logprobs: int | None
    schema: dict[str, Any] | None


def wanted(fields: Fields, *, chat: bool) -> Wanted:
    """Read the options that both completion routes share."""
    _refuse_impossible(fields)
    limit = fields.integer("max_completion_tokens", None, 1, MAX_NEW_LIMIT) if chat else None
    if limit is None:
        limit = fields.integer("max_tokens", None if chat else 16, 1, MAX_NEW_LIMIT)
    stream = fields.flag("stream")
    options = fields.section("stream_options")
    return Wanted(
        sampling=sampling(fields),
        max_new=limit,
        stop_strings=fields.stop_strings(),
        stream=stream,
        include_usage=options.flag("include_usage") if options is not None else False,
        logprobs=_logprobs(fields, chat=chat),
        schema=_schema(fields),
    )


def _refuse_impossible(fields: Fields) -> None:
    for name in _IMPOSSIBLE:
        if fields.get(name):
            raise bad(name, "this server cannot do that; leave the field out.")
    for name in ("n", "best_of"):
        if fields.integer(name, 1, 1, 128) != 1:
            raise bad(name, "this server writes one reply to a request; send more requests for more replies.")


def sampling(fields: Fields) -> SamplingParams:
    """The sampling fields; temperature 1 where none is given, as clients expect. ``top_k`` -1 and 0 are off."""
    seed = fields.integer("seed", None, -SEEDS, 2 * SEEDS - 1)
    return SamplingParams(
        temperature=fields.number("temperature", 1.0, 0.0, 2.0),
        top_k=max(0, fields.integer("top_k", 0, -1, 1 << 20) or 0),
        top_p=fields.number("top_p", 1.0, 0.0, 1.0),
        min_p=fields.number("min_p", 0.0, 0.0, 1.0),
        repetition_penalty=fields.number("repetition_penalty", 1.0, 0.01, 10.0),
        presence_penalty=fields.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2.0, 2.0),
        logit_bias=_logit_bias(fields),
        seed=None if seed is None else seed % SEEDS,
    )


def _logit_bias(fields: Fields) -> tuple[tuple[int, float], ...]:
    section = fields.get("logit_bias")
    if section is None:
        return ()
    if not isinstance(section, dict) or len(section) > 1024:
        raise bad("logit_bias", "must be an object with at most 1024 token ids.")
    pairs = []
    for key, value in section.items():
        if not key.isascii() or not key.isdigit() or len(key) > 9:
            raise bad("logit_bias", f"{key!r:.40} is no token id.")
        if isinstance(value, bool) or not isinstance(value, int | float) or not -100 <= value <= 100:
            raise bad("logit_bias", "each bias must be a number from -100 to 100.")
        pairs.append((int(key), float(value)))
    return tuple(pairs)


def _logprobs(fields: Fields, *, chat: bool) -> int | None:
    if not chat:
        return fields.integer("logprobs", None, 0, 20)
    best = fields.integer("top_logprobs", None, 0, 20)
    if fields.flag("logprobs"):
        return best or 0
    if best:
        raise bad("top_logprobs", "needs logprobs to be true.")
    return None


def _schema(fields: Fields) -> dict[str, Any] | None:
    """The JSON schema that a reply must follow; None for free text."""
    section = fields.section("response_format")
    if section is None:
        return None
    kind = section.text("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise bad("response_format.type", "must be text, json_object or json_schema.")
    inner = section.section("json_schema")
    schema = inner.get("schema") if inner is not None else None
    if not isinstance(schema, dict):
        raise bad("response_format.json_schema.schema", "must be an object.")
    return cast(dict[str, Any], schema)


def turns(fields: Fields) -> tuple[Turn, ...]:
    """``messages`` as turns; content may be a string or a list of text parts."""
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise bad("messages", "must be a list with at least one message.")
    result = []
    for i, message in enumerate(messages):
        name = f"messages[{i}]"
        if not isinstance(message, dict):
            raise bad(name, "must be an object.")
        named = message.get("role")
        role = _ROLES.get(named) if isinstance(named, str) else None
        if role is None:
            raise bad(f"{name}.role", "must be system, developer, user or assistant.")
        result.append(Turn(cast(Role, role), _content(message.get("content"), f"{name}.content")))
    return tuple(result)


def _content(value: Any, name: str) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        texts = []
        for part in value:
            if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
                raise bad(name, "only text parts are understood.")
            texts.append(part["text"])
        return "".join(texts)
    raise bad(name, "must be a string or a list of text parts.")


def one_prompt(fields: Fields, n_vocab: int) -> str | tuple[int, ...]:
    """``prompt``: a string or token ids, bare or as a list with that one entry."""
    value = fields.get("prompt")
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], str | list):
        value = value[0]
    if isinstance(value, str):
        return value
    if (ids := token_ids(value, n_vocab)) is not None:
        return ids
    raise bad("prompt", f"must be one string or one list of token ids from 0 to {n_vocab - 1}.")


def token_ids(value: Any, n_vocab: int) -> tuple[int, ...] | None:
    """A list of token ids, None where it is something else."""
    if isinstance(value, list) and all(type(token) is int and 0 <= token < n_vocab for token in value):
        return tuple(value)
    return None
