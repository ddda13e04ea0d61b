"""What the server refuses, and how it says so; over a fake model."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from engine.errors import BadRequestValueError, EngineError
from engine.serving.options import ServerOptions
from engine.serving.server import Server
from tests.fakes import FakeBundle
from tests.serving.harness import WAIT_S, Held, Served, serving_fake, until

CHAT = "/v1/chat/completions"
HELLO = [{"role": "user", "content": "hello"}]
ASKED = {"model": "fake", "messages": HELLO, "max_tokens": 5}


def error_of(answer: httpx.Response) -> dict[str, Any]:
    """The error object, whose shape is always the same."""
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]
    return error


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*HELLO, {"role": "user", "content": 3}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": "x" * 600}]}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": "many"}, "max_completion_tokens"),
        ({"temperature": 3}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"top_p": -0.1}, "top_p"),
        ({"top_p": 0}, "top_p"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"presence_penalty": -3}, "presence_penalty"),
        ({"frequency_penalty": "x"}, "frequency_penalty"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"seed": 1 << 70}, "seed"),
        ({"logit_bias": {"word": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"128": 1}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["x"] * 17}, "stop"),
        ({"stream": "yes"}, "stream"),
        ({"stream_options": {"include_usage": 1}}, "stream_options.include_usage"),
        ({"n": 2}, "n"),
        ({"tools": [{"type": "function"}]}, "tools"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"model": 7}, "model"),
    ],
)
def test_a_wrong_field_is_named(fake: Served, change: dict[str, Any], field: str) -> None:
    answer = fake.post(CHAT, ASKED | change)
    assert (answer.status_code, error_of(answer)["param"]) == (400, field)
    assert error_of(answer)["type"] == "invalid_request_error"


@pytest.mark.parametrize("prompt", [None, [], "", 5, ["a", "b"], [[1], [2]], [128], [-1], [True], [1.0]])
def test_wrong_prompts(fake: Served, prompt: Any) -> None:
    answer = fake.post("/v1/completions", {"prompt": prompt})
    assert (answer.status_code, error_of(answer)["param"]) == (400, "prompt")


@pytest.mark.parametrize("text", [None, [], "", ["a", ""], [{}], ["x"] * 257, [[128]]])
def test_wrong_inputs_for_embeddings(fake: Served, text: Any) -> None:
    answer = fake.post("/v1/embeddings", {"input": text})
    assert answer.status_code == 400
    assert error_of(answer)["param"].startswith("input")


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff\xfe", b"null", b'{"a":' * 5000])
def test_what_is_no_json_object(fake: Served, body: bytes) -> None:
    with fake.client() as client:
        answer = client.post(CHAT, content=body)
    assert (answer.status_code, error_of(answer)["code"]) == (400, "bad_json")


def test_unknown_routes_methods_and_models(fake: Served) -> None:
    with fake.client() as client:
        assert error_of(client.get("/v2/models"))["type"] == "not_found_error"
        wrong = client.get(CHAT)
        assert (wrong.status_code, wrong.headers["allow"]) == (405, "POST")
        assert error_of(wrong)["message"]
    answer = fake.post(CHAT, ASKED | {"model": "other"})
    assert (answer.status_code, error_of(answer)["code"]) == (404, "model_not_found")


def test_a_large_body_is_refused_whether_announced_or_not() -> None:
    with serving_fake(max_body=1000) as served:
        announced = served.post(CHAT, ASKED | {"user": "x" * 1000})
        with served.client() as client:
            chunked = client.post(CHAT, content=iter([b"x" * 600, b"x" * 600]))
    assert (announced.status_code, error_of(announced)["code"]) == (413, "too_large")
    assert (chunked.status_code, error_of(chunked)["code"]) == (413, "too_large")


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    with serving_fake(body_s=0.05) as served, socket.create_connection(served.server.address, WAIT_S) as line:
        line.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n{{".encode())
        assert line.recv(4096).startswith(b"HTTP/1.1 408")


def test_the_key_is_asked_for() -> None:
    with serving_fake(api_key="secret") as served:
        without = served.post(CHAT, ASKED)
        wrong = served.post(CHAT, ASKED, headers={"Authorization": "Bearer secret2"})
        right = served.post(CHAT, ASKED, headers={"Authorization": "Bearer secret"})
        with served.client() as client:
            unknown, health = client.get("/nowhere"), client.get("/health")
    assert (without.status_code, wrong.status_code, right.status_code) == (401, 401, 200)
    assert without.headers["www-authenticate"] == "Bearer"
    assert error_of(wrong)["code"] == "invalid_api_key"
    assert (unknown.status_code, health.status_code) == (401, 200)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost.evil"])
def test_a_page_that_rebinds_its_name_is_refused(fake: Served, host: str) -> None:
    answer = fake.post(CHAT, ASKED, headers={"Host": host})
    assert (answer.status_code, error_of(answer)["code"]) == (403, "bad_host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9", "[::1]", "[::1]:8080"])
def test_this_machine_has_several_names(fake: Served, host: str) -> None:
    assert fake.post(CHAT, ASKED, headers={"Host": host}).status_code == 200


def test_web_pages_may_not_ask_unless_allowed() -> None:
    page = {"Origin": "https://page.example"}
    with serving_fake() as served:
        answer = served.post(CHAT, ASKED, headers=page)
        assert (answer.status_code, error_of(answer)["code"]) == (403, "bad_origin")
        assert not [name for name in answer.headers if name.startswith("access-control")]
    with serving_fake(origins=("https://page.example",)) as served:
        answer = served.post(CHAT, ASKED, headers=page)
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, page["Origin"])
        assert served.post(CHAT, ASKED, headers={"Origin": "https://other.example"}).status_code == 403


def test_another_address_needs_a_key() -> None:
    with pytest.raises(BadRequestValueError) as caught:
        ServerOptions(host="0.0.0.0").check()
    assert caught.value.field == "api_key"
    ServerOptions(host="0.0.0.0", api_key="secret").check()
    ServerOptions(host="::1").check()


def test_a_taken_port_is_said_in_a_sentence(fake: Served) -> None:
    second = Server(fake.loop, lambda broker: lambda: None, ServerOptions(port=fake.server.address[1]))
    with pytest.raises(EngineError, match="Choose another"):
        second.start()


class Busy:
    """A server whose model is held in the middle of a reply that a client waits for."""

    def __init__(self, served: Served, held: Held, pool: ThreadPoolExecutor) -> None:
        self.served = served
        self.release = held.release
        self.waiting = pool.submit(served.post, CHAT, ASKED)
        assert held.reached.wait(WAIT_S)


@pytest.fixture
def busy() -> Iterator[Busy]:
    """``max_waiting`` is 1, so that it is full."""
    bundle = FakeBundle()
    held = Held(bundle)
    with ThreadPoolExecutor(2) as pool, serving_fake(bundle, max_waiting=1) as served:
        one = Busy(served, held, pool)
        try:
            yield one
        finally:
            one.release()


def test_too_many_requests_are_asked_to_come_again(busy: Busy) -> None:
    for path, body in ((CHAT, ASKED), ("/v1/completions", {"prompt": "x"}), ("/v1/embeddings", {"input": "x"})):
        answer = busy.served.post(path, body)
        assert (answer.status_code, error_of(answer)["code"]) == (429, "queue_full")
        assert int(answer.headers["retry-after"]) > 0
    busy.release()
    assert busy.waiting.result(WAIT_S).status_code == 200
    assert busy.served.post(CHAT, ASKED).status_code == 200


def test_draining_refuses_new_requests_and_finishes_old_ones(busy: Busy) -> None:
    stopping = threading.Thread(target=busy.served.server.stop)
    stopping.start()
    with busy.served.client() as client:
        health = until(lambda: client.get("/health"), lambda answer: answer.status_code == 503)
        answer = client.post(CHAT, json=ASKED)
    assert (answer.status_code, error_of(answer)["code"]) == (503, "draining")
    assert int(answer.headers["retry-after"]) > 0 and error_of(health)["code"] == "draining"
    busy.release()
    finished = busy.waiting.result(WAIT_S)
    assert (finished.status_code, finished.json()["usage"]["completion_tokens"]) == (200, 5)
    stopping.join(WAIT_S)
    assert not stopping.is_alive()
    with pytest.raises(httpx.ConnectError):
        busy.served.post(CHAT, ASKED)


def test_replies_that_outlast_the_drain_are_cut_with_an_error(busy: Busy) -> None:
    stopping = threading.Thread(target=busy.served.server.stop, args=(0.0,))
    stopping.start()
    with busy.served.client() as client:
        until(lambda: client.get("/health"), lambda answer: answer.status_code == 503)
    busy.release()
    cut = busy.waiting.result(WAIT_S)
    assert cut.status_code == 200 or (cut.status_code, error_of(cut)["code"]) == (503, "cancelled")
    stopping.join(WAIT_S)
    assert not stopping.is_alive()


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_takes_too_long_is_stopped(stream: bool) -> None:
    bundle = FakeBundle()
    held = Held(bundle)
    with serving_fake(bundle, timeout_s=0.05) as served:
        answer = served.post(CHAT, ASKED | {"stream": stream})
        held.release()
        served.recorder.until(lambda recorder: recorder.finished)
        assert served.recorder.finished[0].reason == "cancelled"
    if not stream:
        assert (answer.status_code, error_of(answer)["code"]) == (504, "timeout")
        return
    *_, last, done = (line for line in answer.text.splitlines() if line)
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
    assert done == "data: [DONE]"


def test_a_closed_connection_ends_its_stream_within_one_step() -> None:
    bundle = FakeBundle()
    with serving_fake(bundle) as served:
        client = served.client()
        request = client.build_request("POST", CHAT, json=ASKED | {"stream": True, "max_tokens": 400})
        held = Held(bundle)
        answer = client.send(request, stream=True)
        assert held.reached.wait(WAIT_S)
        answer.close()
        client.close()
        until(lambda: served.server.busy, lambda busy: busy == 0)
        held.release()  # the step that was running when the client left; the next one must not decode
        served.recorder.until(lambda recorder: recorder.finished)
        assert sum(bool(report.decoded) for report in served.recorder.reports) == 1
        assert served.recorder.finished[0].reason == "cancelled"
        assert served.idle().integrity == ""


def test_another_model_ends_replies_of_the_old_one_with_an_error(busy: Busy) -> None:
    unloading = busy.served.loop.unload()
    busy.release()
    unloading.result(WAIT_S)
    cut = busy.waiting.result(WAIT_S)
    assert cut.status_code == 200 or (cut.status_code, error_of(cut)["code"]) == (503, "cancelled")
    answer = busy.served.post(CHAT, ASKED)
    assert (answer.status_code, error_of(answer)["code"]) == (503, "not_loaded")


def test_a_defect_of_the_model_ends_one_request_with_500() -> None:
    bundle = FakeBundle()

    def fail(name: str, sessions: object) -> None:
        raise RuntimeError("a broken kernel")

    with serving_fake(bundle) as served:
        bundle.evaluator.on_call = fail
        answer = served.post(CHAT, ASKED)
        with served.client() as client, client.stream("POST", CHAT, json=ASKED | {"stream": True}) as stream:
            lines = [line for line in stream.iter_lines() if line]
        bundle.evaluator.on_call = None
        assert served.post(CHAT, ASKED).status_code == 200
    assert (answer.status_code, error_of(answer)["message"]) == (500, "a broken kernel")
    assert "a broken kernel" in lines[-2]
