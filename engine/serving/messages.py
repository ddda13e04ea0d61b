"""Request bodies turned into what the engine takes: sampling, limits, turns, constraints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from engine.port import Role, Turn
from engine.scheduling.request import SamplingParams
from engine.serving.fields import Fields
from engine.serving.problems import bad

MAX_NEW_LIMIT = 1 << 20
_ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}


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
    count = fields.integer("n", 1, 1, 1)
    assert count == 1
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


def sampling(fields: Fields) -> SamplingParams:
    """The sampling fields; temperature 1 where none is given, as clients expect."""
    return SamplingParams(
        temperature=fields.number("temperature", 1.0, 0.0, 2.0),
        top_k=fields.integer("top_k", 0, -1, 1 << 20) or 0,
        top_p=fields.number("top_p", 1.0, 0.0, 1.0),
        min_p=fields.number("min_p", 0.0, 0.0, 1.0),
        repetition_penalty=fields.number("repetition_penalty", 1.0, 0.01, 10.0),
        presence_penalty=fields.number("presence_penalty", 0.0, -2.0, 2.0),
        frequency_penalty=fields.number("frequency_penalty", 0.0, -2.0, 2.0),
        logit_bias=_logit_bias(fields),
        seed=fields.integer("seed", None, -(1 << 63), (1 << 64) - 1),
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
    if not fields.flag("logprobs"):
        return None
    return fields.integer("top_logprobs", 0, 0, 20)


def _schema(fields: Fields) -> dict[str, Any] | None:
    """The JSON schema a reply must follow; {} for any JSON object; None for free text."""
    section = fields.section("response_format")
    if section is None:
        return None
    kind = section.text("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind != "json_schema":
        raise bad("response_format", "type must be text, json_object or json_schema.")
    inner = section.section("json_schema")
    schema = inner.get("schema") if inner is not None else None
    if not isinstance(schema, dict):
        raise bad("response_format", "json_schema.schema must be an object.")
    return cast(dict[str, Any], schema)


def turns(fields: Fields) -> list[Turn]:
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
    return result


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
