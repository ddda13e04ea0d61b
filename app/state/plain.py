"""Frozen data to JSON and back, forgivingly: a value that does not fit is left out, the rest is kept.

What lies on disk may be older, newer or damaged; one wrong value must not cost a person the others.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict, fields, is_dataclass
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


class UnfitError(Exception):
    """A value does not have the type that is wanted."""


def to_text(value: Any) -> str:
    """A dataclass as one line of JSON."""
    return json.dumps(asdict(value), ensure_ascii=False, separators=(",", ":"))


def from_text(kind: type[T], text: Any) -> T:
    """A ``kind`` from its JSON. Raises ``UnfitError`` when nothing can be made of it."""
    try:
        given = json.loads(text)
    except (TypeError, ValueError) as error:
        raise UnfitError(str(error)) from error
    made: T = revive(kind, given)
    return made


def revive(kind: Any, given: Any) -> Any:
    """``given`` (plain JSON data) as a ``kind``: a dataclass or the type of one of its fields."""
    if is_dataclass(kind):
        return _revive_dataclass(kind, given)
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        return _first_fit(get_args(kind), given)
    if origin is Literal:
        if given in get_args(kind):
            return given
    elif origin is tuple:
        return _revive_tuple(get_args(kind), given)
    elif kind is float:
        if isinstance(given, int | float) and not isinstance(given, bool) and math.isfinite(given):
            return float(given)
    elif kind in (int, str, bool, NoneType) and type(given) is kind:
        return given
    raise UnfitError(f"{given!r} is no {kind}")


def _first_fit(kinds: tuple[Any, ...], given: Any) -> Any:
    for kind in kinds:
        try:
            return revive(kind, given)
        except UnfitError:
            continue
    raise UnfitError(f"{given!r} is none of {kinds}")


def _revive_tuple(kinds: tuple[Any, ...], given: Any) -> tuple[Any, ...]:
    if not isinstance(given, list | tuple):
        raise UnfitError(f"{given!r} is no list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(revive(kinds[0], item) for item in given)
    if len(kinds) != len(given):
        raise UnfitError(f"{given!r} has not {len(kinds)} items")
    return tuple(revive(kind, item) for kind, item in zip(kinds, given, strict=True))


@lru_cache(maxsize=64)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _revive_dataclass(kind: Any, given: Any) -> Any:
    if not isinstance(given, dict):
        raise UnfitError(f"{given!r} is no {kind.__name__}")
    values = {}
    for item in fields(kind):
        if item.name in given:
            try:
                values[item.name] = revive(_hints(kind)[item.name], given[item.name])
            except UnfitError:
                continue
    try:
        return kind(**values)
    except (TypeError, ValueError) as error:
        raise UnfitError(str(error)) from error
