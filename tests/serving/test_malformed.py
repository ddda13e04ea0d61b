"""Bodies that no client should send: always an answer of the right shape, never a failure of the server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fakes import FakeBundle
from tests.serving.harness import Served, serving_fake

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from([0, 1, -1, 1e308, 1 << 64, "", "\ud800", "text", "json_object", "user", "x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = """model messages prompt input max_tokens max_completion_tokens temperature top_p top_k min_p seed stop stream
stream_options logprobs top_logprobs logit_bias presence_penalty frequency_penalty repetition_penalty n tools user
response_format encoding_format dimensions special add_special_tokens text content"""
FIELDS = st.sampled_from(NAMES.split())
MESSAGES = st.lists(st.fixed_dictionaries({"role": VALUES, "content": VALUES}), max_size=2)
FORMATS = st.fixed_dictionaries(
    {"type": st.sampled_from(["json_schema", "json_object", "text"]), "json_schema": VALUES}
)
GOOD: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2},
    "/v1/completions": {"prompt": "hi", "max_tokens": 2},
    "/v1/embeddings": {"input": "hi"},
    "/tokenize": {"prompt": "hi"},
}
CHANGES = st.dictionaries(FIELDS, VALUES, max_size=3) | st.fixed_dictionaries({"messages": MESSAGES})
PATHS = st.sampled_from(sorted(GOOD))
REFUSALS = {400, 404, 413}


@pytest.fixture(scope="module")
def line() -> Iterator[httpx.Client]:
    """One connection for all examples, to a model that soon runs out of context. It answers to the end."""
    with serving_fake(FakeBundle(n_ctx=48)) as served, served.client() as client:
        yield client
        assert client.post("/v1/completions", json=GOOD["/v1/completions"]).status_code == 200
        assert served.idle().integrity == ""


def check(answer: httpx.Response) -> None:
    """An answer, or a refusal that says what is wrong."""
    if answer.status_code == 200:
        assert answer.content
        return
    assert answer.status_code in REFUSALS, answer.text
    error = answer.json()["error"]
    assert error["message"] and error["code"]
    assert answer.status_code != 400 or error["param"] or error["code"] == "bad_json"


@settings(max_examples=80)
@given(path=PATHS, changes=CHANGES)
def test_fields_of_any_kind(line: httpx.Client, path: str, changes: dict[str, Any]) -> None:
    check(line.post(path, content=json.dumps(GOOD[path] | changes).encode()))


@settings(max_examples=40)
@given(path=PATHS, body=st.binary(max_size=40) | VALUES.map(lambda value: json.dumps(value).encode()))
def test_bodies_of_any_kind(line: httpx.Client, path: str, body: bytes) -> None:
    answer = line.post(path, content=body)
    check(answer)
    assert answer.status_code != 200


@settings(max_examples=25)
@given(schema=VALUES | FORMATS)
def test_schemas_of_any_kind(real: Served, schema: Any) -> None:
    body = GOOD["/v1/chat/completions"] | {"response_format": schema}
    with real.client() as client:
        check(client.post("/v1/chat/completions", content=json.dumps(body).encode()))


@pytest.mark.parametrize("path", sorted(GOOD))
def test_half_a_character_is_refused(real: Served, path: str) -> None:
    body = json.dumps(GOOD[path]).replace("hi", "hi \\ud800")
    with real.client() as client:
        answer = client.post(path, content=body.encode())
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "tokenizer"
    assert answer.json()["error"]["param"] in ("messages", "prompt", "input")
