"""Checked access to the fields of a JSON body: the right type and range, or 400 with the field named."""

from __future__ import annotations

import json
import math
from typing import Any

from engine.serving.problems import ApiError, bad


class Fields:
    """A JSON object whose fields are read one by one. JSON null counts as absent, as clients send it for that.

    ``path`` is put before the names of fields in errors ("stream_options." for what is inside that object).
    """

    def __init__(self, values: dict[str, Any], path: str = "") -> None:
        self._values = values
        self._path = path

    @classmethod
    def parse(cls, body: bytes) -> Fields:
        """From a request's body; 400 where it is no JSON object."""
        try:
            values = json.loads(body.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise ApiError(400, f"The body is not valid JSON: {error}.", code="bad_json") from error
        if not isinstance(values, dict):
            raise ApiError(400, "The body must be a JSON object.", code="bad_json")
        return cls(values)

    def _bad(self, name: str, message: str) -> ApiError:
        return bad(self._path + name, message)

    def get(self, name: str) -> Any:
        """The raw value, None if absent."""
        return self._values.get(name)

    def text(self, name: str, default: str | None = None) -> str:
        """A string; required without a default."""
        value = self.get(name)
        if value is None:
            if default is None:
                raise self._bad(name, "is required.")
            return default
        if not isinstance(value, str):
            raise self._bad(name, "must be a string.")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        """A boolean."""
        value = self.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self._bad(name, "must be true or false.")
        return value

    def number(self, name: str, default: float, low: float, high: float) -> float:
        """A finite number in [low, high]."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self._bad(name, "must be a number.")
        if (isinstance(value, float) and not math.isfinite(value)) or not low <= value <= high:
            raise self._bad(name, f"must be from {low:g} to {high:g}.")
        return float(value)

    def integer(self, name: str, default: int | None, low: int, high: int) -> int | None:
        """An integer in [low, high]."""
        value = self.get(name)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            raise self._bad(name, "must be an integer.")
        if not low <= value <= high:
            raise self._bad(name, f"must be from {low} to {high}.")
        return value

    def section(self, name: str) -> Fields | None:
        """A nested object, None if absent."""
        value = self.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._bad(name, "must be an object.")
        return Fields(value, f"{self._path}{name}.")

    def stop_strings(self) -> tuple[str, ...]:
        """``stop``: a string or up to 16 of them, none empty."""
        value = self.get("stop")
        strings = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(strings, list) or not all(isinstance(s, str) and s for s in strings) or len(strings) > 16:
            raise self._bad("stop", "must be a non-empty string or a list of at most 16 of them.")
        return tuple(strings)
