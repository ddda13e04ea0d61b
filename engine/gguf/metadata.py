"""Metadata of a GGUF file: a read-only mapping with typed, range-checked access.

Numbers, booleans and short strings are held; arrays are decoded from the file each time they are asked for (a
vocabulary of 262,144 strings takes about 0.07 s), so keep what you need rather than asking again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

import numpy as np

from engine.errors import ModelFileError

T = TypeVar("T")


_ADVICE = "download the model again or try another one."


class _Required:
    """The type of ``REQUIRED``."""


REQUIRED = _Required()
"""Default of the ``get_…`` methods: the key must be there."""


@dataclass(frozen=True, slots=True)
class Deferred:
    """A value that is decoded when asked for; ``length`` is its number of array items, None for a string."""

    read: Callable[[], Any]
    length: int | None


class Metadata(Mapping[str, Any]):
    """Key -> value: int, float, bool, str, read-only numpy array (numbers, booleans), list[str] or a nested list.

    ``file_name`` appears in messages. A plain dict of values serves as well as what the reader gives.
    Arrays and very long strings can no longer be read once the file is closed (``ValueError``).
    """

    def __init__(self, values: Mapping[str, Any], *, file_name: str = "the model file") -> None:
        self._values = dict(values)
        self.file_name = file_name

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        return value.read() if isinstance(value, Deferred) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values

    def length(self, key: str) -> int | None:
        """Number of items of an array without decoding it; None for other values and for a missing key."""
        value = self._values.get(key)
        if isinstance(value, Deferred):
            return value.length
        return len(value) if isinstance(value, (list, tuple, np.ndarray)) else None

    def error(self, key: str, what: str) -> ModelFileError:
        """An error about ``key``, for callers that find a contradiction: ``raise metadata.error(key, "is …")``."""
        return ModelFileError(f"{self.file_name} cannot be used: its metadata “{key}” {what}; {_ADVICE}", field=key)

    @overload
    def get_int(self, key: str, lo: int, hi: int) -> int: ...
    @overload
    def get_int(self, key: str, lo: int, hi: int, default: T) -> int | T: ...
    def get_int(self, key: str, lo: int, hi: int, default: Any = REQUIRED) -> Any:
        """The integer at ``key``, which must lie in lo..hi (both included)."""
        if key not in self._values:
            return self._default(key, default)
        return self._check_int(key, self._values[key], lo, hi)

    @overload
    def get_float(self, key: str, lo: float, hi: float) -> float: ...
    @overload
    def get_float(self, key: str, lo: float, hi: float, default: T) -> float | T: ...
    def get_float(self, key: str, lo: float, hi: float, default: Any = REQUIRED) -> Any:
        """The finite number at ``key``, which must lie in lo..hi (both included)."""
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.error(key, f"should be a number, not {_kind(value)}")
        if not math.isfinite(value) or not lo <= value <= hi:
            raise self.error(key, f"is {value!r}, but must lie between {lo} and {hi}")
        return float(value)

    @overload
    def get_bool(self, key: str) -> bool: ...
    @overload
    def get_bool(self, key: str, default: T) -> bool | T: ...
    def get_bool(self, key: str, default: Any = REQUIRED) -> Any:
        """The boolean at ``key``."""
        if key not in self._values:
            return self._default(key, default)
        value = self._values[key]
        if not isinstance(value, bool):
            raise self.error(key, f"should be true or false, not {_kind(value)}")
        return value

    @overload
    def get_str(self, key: str) -> str: ...
    @overload
    def get_str(self, key: str, default: T) -> str | T: ...
    def get_str(self, key: str, default: Any = REQUIRED) -> Any:
        """The string at ``key``."""
        if key not in self._values:
            return self._default(key, default)
        value = self[key]
        if not isinstance(value, str):
            raise self.error(key, f"should be a text, not {_kind(value)}")
        return value

    @overload
    def get_strings(self, key: str, length: int | None = None) -> list[str]: ...
    @overload
    def get_strings(self, key: str, length: int | None, default: T) -> list[str] | T: ...
    def get_strings(self, key: str, length: int | None = None, default: Any = REQUIRED) -> Any:
        """The list of strings at ``key``; ``length``, if given, is the number of items it must have."""
        if key not in self._values:
            return self._default(key, default)
        self._check_length(key, length)
        value = self[key]
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.error(key, f"should be a list of texts, not {_kind(value)}")
        return value

    @overload
    def get_array(self, key: str, kind: str, length: int | None = None) -> np.ndarray: ...
    @overload
    def get_array(self, key: str, kind: str, length: int | None, default: T) -> np.ndarray | T: ...
    def get_array(self, key: str, kind: str, length: int | None = None, default: Any = REQUIRED) -> Any:
        """The numeric array at ``key`` as a numpy array, 1-D.

        ``kind`` is "int" (any width, returned as int64), "float" (returned as float32; integers accepted; every item
        finite) or "bool". ``length``, if given, is the number of items it must have.
        """
        if key not in self._values:
            return self._default(key, default)
        self._check_length(key, length)
        return self._convert(key, self[key], kind)

    def get_int_per_layer(
        self, key: str, n_layers: int, lo: int, hi: int, default: Sequence[int] | int | None = None
    ) -> tuple[int, ...]:
        """An integer for each layer: one number for all of them, or an array with ``n_layers`` items."""
        if key not in self._values and default is not None:
            return (default,) * n_layers if isinstance(default, int) else tuple(default)
        if self.length(key) is None:
            return (self.get_int(key, lo, hi),) * n_layers
        items = self.get_array(key, "int", n_layers).tolist()
        return tuple(self._check_int(key, item, lo, hi) for item in items)

    def _default(self, key: str, default: Any) -> Any:
        if default is REQUIRED:
            raise ModelFileError(f"{self.file_name} cannot be used: its metadata has no “{key}”; {_ADVICE}", field=key)
        return default

    def _check_int(self, key: str, value: Any, lo: int, hi: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, f"should be a whole number, not {_kind(value)}")
        if not lo <= value <= hi:
            raise self.error(key, f"is {value}, but must lie between {lo} and {hi}")
        return value

    def _check_length(self, key: str, length: int | None) -> None:
        found = self.length(key)
        if found is None:
            raise self.error(key, f"should be a list, not {_kind(self._values[key])}")
        if length is not None and found != length:
            raise self.error(key, f"has {found} items where {length} are needed")

    def _convert(self, key: str, value: Any, kind: str) -> np.ndarray:
        array = value if isinstance(value, np.ndarray) else np.asarray(value)
        accepted, dtype, words = _ARRAY_KINDS[kind]
        if array.ndim != 1 or (array.dtype.kind not in accepted and array.size):
            raise self.error(key, f"should be a list of {words}")
        if array.dtype == np.uint64 and array.size and int(array.max()) > np.iinfo(np.int64).max:
            raise self.error(key, "holds numbers that are too large")
        if kind == "float" and not np.isfinite(array).all():
            raise self.error(key, "holds numbers that are not finite")
        return array.astype(dtype)


_ARRAY_KINDS: dict[str, tuple[str, type, str]] = {
    "int": ("iu", np.int64, "whole numbers"),
    "float": ("fiu", np.float32, "numbers"),
    "bool": ("b", np.bool_, "true and false"),
}


def _kind(value: Any) -> str:
    """Words for the type of a value."""
    if isinstance(value, Deferred):
        return "a list" if value.length is not None else "a text"
    if isinstance(value, bool):
        return "true or false"
    names = ((int, "a whole number"), (float, "a fraction"), (str, "a text"))
    return next((name for kind, name in names if isinstance(value, kind)), "a list")
