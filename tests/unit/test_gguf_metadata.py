"""Typed metadata access: right values, and errors that name the key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from engine.errors import ModelFileError
from engine.gguf import Metadata

META = Metadata(
    {
        "n": 12,
        "flag": True,
        "theta": 10000.0,
        "nan": float("nan"),
        "name": "tiny",
        "tokens": ["a", "b", "c"],
        "types": np.array([1, 1, 3], np.int32),
        "scores": np.array([0.0, -1.5, -2.5], np.float32),
        "holes": np.array([0.0, np.nan], np.float32),
        "huge": np.array([2**63], np.uint64),
        "marks": np.array([True, False]),
        "mixed": [["a"], ["b"]],
        "heads": np.array([4, 2, 4], np.uint32),
    },
    file_name="tiny.gguf",
)


def test_values() -> None:
    assert META.get_int("n", 1, 100) == 12
    assert META.get_int("absent", 1, 100, 7) == 7
    assert META.get_int("absent", 1, 100, None) is None
    assert META.get_float("theta", 1.0, 1e9) == 10000.0
    assert META.get_float("n", 1.0, 1e9) == 12.0
    assert META.get_float("absent", 0.0, 1.0, None) is None
    assert META.get_bool("flag") is True
    assert META.get_bool("absent", False) is False
    assert META.get_str("name") == "tiny"
    assert META.get_str("absent", "x") == "x"
    assert META.get_strings("tokens", 3) == ["a", "b", "c"]
    assert META.get_strings("absent", None, []) == []
    assert META.get_array("types", "int").dtype == np.int64
    assert META.get_array("scores", "float", 3).tolist() == [0.0, -1.5, -2.5]
    assert META.get_array("types", "float").dtype == np.float32
    assert META.get_array("marks", "bool").tolist() == [True, False]
    assert META.get_array("absent", "int", None, None) is None
    assert META.get_int_per_layer("heads", 3, 1, 8) == (4, 2, 4)
    assert META.get_int_per_layer("n", 2, 1, 100) == (12, 12)
    assert META.get_int_per_layer("absent", 2, 1, 100, 5) == (5, 5)
    assert META.get_int_per_layer("absent", 2, 1, 100, [5, 6]) == (5, 6)
    assert (META.length("tokens"), META.length("n"), META.length("absent")) == (3, None, None)
    assert "n" in META and "absent" not in META and len(META) == len(list(META)) == 13


REFUSED: list[tuple[str, Callable[[], Any], str]] = [
    ("absent", lambda: META.get_int("absent", 0, 1), "has no “absent”"),
    ("absent", lambda: META.get_strings("absent"), "has no “absent”"),
    ("absent", lambda: META.get_int_per_layer("absent", 2, 0, 9), "has no “absent”"),
    ("n", lambda: META.get_int("n", 0, 11), "is 12, but must lie between 0 and 11"),
    ("flag", lambda: META.get_int("flag", 0, 11), "a whole number, not true or false"),
    ("theta", lambda: META.get_int("theta", 0, 11), "a whole number, not a fraction"),
    ("tokens", lambda: META.get_int("tokens", 0, 11), "a whole number, not a list"),
    ("name", lambda: META.get_float("name", 0.0, 1.0), "a number, not a text"),
    ("flag", lambda: META.get_float("flag", 0.0, 1.0), "a number, not true or false"),
    ("nan", lambda: META.get_float("nan", 0.0, 1.0), "is nan"),
    ("theta", lambda: META.get_float("theta", 0.0, 1.0), "must lie between"),
    ("n", lambda: META.get_bool("n"), "true or false, not a whole number"),
    ("n", lambda: META.get_str("n"), "a text, not a whole number"),
    ("n", lambda: META.get_strings("n"), "a list, not a whole number"),
    ("types", lambda: META.get_strings("types"), "a list of texts"),
    ("mixed", lambda: META.get_strings("mixed"), "a list of texts"),
    ("tokens", lambda: META.get_strings("tokens", 4), "has 3 items where 4 are needed"),
    ("tokens", lambda: META.get_array("tokens", "int"), "a list of whole numbers"),
    ("scores", lambda: META.get_array("scores", "int"), "a list of whole numbers"),
    ("types", lambda: META.get_array("types", "bool"), "a list of true and false"),
    ("types", lambda: META.get_array("types", "int", 2), "has 3 items where 2 are needed"),
    ("holes", lambda: META.get_array("holes", "float"), "not finite"),
    ("huge", lambda: META.get_array("huge", "int"), "too large"),
    ("heads", lambda: META.get_int_per_layer("heads", 4, 1, 8), "has 3 items where 4 are needed"),
    ("heads", lambda: META.get_int_per_layer("heads", 3, 1, 3), "is 4, but must lie between 1 and 3"),
]


@pytest.mark.parametrize(("key", "ask", "words"), REFUSED)
def test_refusals_name_the_key(key: str, ask: Callable[[], Any], words: str) -> None:
    with pytest.raises(ModelFileError) as caught:
        ask()
    assert caught.value.field == key
    assert words in str(caught.value)
    assert str(caught.value).startswith("tiny.gguf cannot be used: ")


def test_callers_can_name_a_contradiction() -> None:
    error = META.error("tokens", "has 3 items for 4 rows of embeddings")
    assert (error.field, error.code) == ("tokens", "model_file")
    assert "its metadata “tokens” has 3 items for 4 rows" in str(error)


def test_an_empty_list_fits_any_kind() -> None:
    empty = Metadata({"none": []})
    assert empty.get_array("none", "int").dtype == np.int64
    assert empty.get_array("none", "bool", 0).size == 0
