"""The openai package against the real model, on a real socket."""

from __future__ import annotations

import asyncio
import base64
import json

import numpy as np
import openai
import pytest

from tests.serving.conftest import MODEL
from tests.serving.harness import Served, until

CAPITAL = [{"role": "user", "content": "What is the capital of France?"}]
PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
        "tags": {"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "age", "tags"],
    "additionalProperties": False,
}


def test_models_are_listed_and_found_by_name(client: openai.OpenAI) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).model_extra["max_model_len"] == 8192
    with pytest.raises(openai.NotFoundError) as caught:
        client.models.retrieve("gpt-4")
    assert caught.value.code == "model_not_found"


def test_a_chat_reply(client: openai.OpenAI, real: Served) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_tokens=30)
    choice, usage = reply.choices[0], reply.usage
    assert choice.message.content == "The capital of France is Paris."
    assert (choice.finish_reason, reply.model, reply.object) == ("stop", MODEL, "chat.completion")
    ids = real.post("/tokenize", {"messages": CAPITAL}).json()["tokens"]
    written = real.post("/tokenize", {"prompt": choice.message.content}).json()["count"]
    assert (usage.prompt_tokens, usage.completion_tokens) == (len(ids), written)
    assert usage.total_tokens == len(ids) + written


def test_a_streamed_reply_is_the_buffered_one(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "messages": CAPITAL, "temperature": 0, "max_tokens": 30}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert (chunks[-1].choices, chunks[-1].usage.completion_tokens) == ([], whole.usage.completion_tokens)
    assert len({chunk.id for chunk in chunks}) == 1


def test_without_stream_options_no_usage_is_sent(client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(model=MODEL, messages=CAPITAL, max_tokens=2, stream=True))
    assert all(chunk.usage is None and chunk.choices for chunk in chunks)


def test_the_second_client_reports_what_the_first_left_in_the_cache(real: Served) -> None:
    system = {"role": "system", "content": "You are the clerk of a lighthouse. " * 12}
    cached = []
    for question in ("Who are you?", "Where do you work?"):
        with openai.OpenAI(base_url=real.url, api_key="none", max_retries=0) as client:
            messages = [system, {"role": "user", "content": question}]
            usage = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4, temperature=0).usage
            cached.append(usage.prompt_tokens_details.cached_tokens)
            shared = usage.prompt_tokens - 32
        real.idle()
    assert cached[0] < 16, "nobody had this system prompt before"
    assert cached[1] % 16 == 0 and cached[1] >= shared


def test_async_streams_run_together(real: Served) -> None:
    async def one(client: openai.AsyncOpenAI, number: int) -> str:
        prompt = f"{number}, {number + 1}, {number + 2}, {number + 3},"
        stream = await client.completions.create(
            model=MODEL, prompt=prompt, temperature=0, max_tokens=3, stream=True, stop=[","]
        )
        return "".join([chunk.choices[0].text async for chunk in stream])

    async def both() -> list[str]:
        async with openai.AsyncOpenAI(base_url=real.url, api_key="none", max_retries=0) as client:
            return await asyncio.gather(*(one(client, number) for number in (1, 11, 21, 31)))

    before = len(real.recorder.reports)
    assert [text.strip() for text in asyncio.run(both())] == ["5", "15", "25", "35"]
    assert max(len(report.decoded) for report in real.recorder.reports[before:]) > 1


def test_leaving_a_stream_half_way_ends_it_and_frees_its_pages(client: openai.OpenAI, real: Served) -> None:
    before = len(real.recorder.finished)
    stream = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Tell me a very long story."}],
        max_tokens=4000,
        logit_bias={str(token): -100 for token in (0, 1, 2)},
        stream=True,
    )
    for number, _ in enumerate(stream):
        if number == 5:
            break
    stream.close()
    real.recorder.until(lambda recorder: len(recorder.finished) > before)
    finished = real.recorder.finished[-1]
    assert finished.reason == "cancelled"
    assert finished.n_gen < 400
    assert real.idle().integrity == ""


def test_a_buffered_request_that_is_given_up_ends_too(real: Served) -> None:
    before = len(real.recorder.finished)
    with (
        openai.OpenAI(base_url=real.url, api_key="none", max_retries=0, timeout=0.5) as client,
        pytest.raises(openai.APITimeoutError),
    ):
        # Without its end tokens the reply cannot be over before the client gives up.
        endless = {"0": -100, "2": -100}
        client.completions.create(
            model=MODEL, prompt="One, two, three,", max_tokens=6000, temperature=0, logit_bias=endless
        )
    real.recorder.until(lambda recorder: len(recorder.finished) > before)
    assert real.recorder.finished[-1].reason == "cancelled"
    assert until(lambda: real.server.busy, lambda busy: busy == 0) == 0
    real.idle()


def test_stop_strings_and_lengths(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "prompt": "1, 2, 3, 4,", "temperature": 0}
    cut = client.completions.create(**asked, max_tokens=20, stop=[" 7"]).choices[0]
    assert (cut.text, cut.finish_reason) == (" 5, 6,", "stop")
    short = client.completions.create(**asked, max_tokens=5).choices[0]
    assert (short.text, short.finish_reason) == (" 5, 6", "length")


def test_max_completion_tokens_counts_like_max_tokens(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(model=MODEL, messages=CAPITAL, temperature=0, max_completion_tokens=3)
    assert (reply.choices[0].finish_reason, reply.usage.completion_tokens) == ("length", 3)


def test_prompts_may_be_token_ids(client: openai.OpenAI, real: Served) -> None:
    ids = real.post("/tokenize", {"prompt": "1, 2, 3, 4,", "add_special_tokens": True}).json()["tokens"]
    for prompt in (ids, [ids], ["1, 2, 3, 4,"]):
        reply = client.completions.create(model=MODEL, prompt=prompt, temperature=0, max_tokens=5)
        assert reply.choices[0].text == " 5, 6"


def test_logit_bias_bans_and_forces_tokens(client: openai.OpenAI, real: Served) -> None:
    paris, cat = (real.post("/tokenize", {"prompt": word}).json()["tokens"] for word in (" Paris", " cat"))
    asked = {"model": MODEL, "prompt": "The capital of France is", "temperature": 0, "max_tokens": 2}
    assert client.completions.create(**asked).choices[0].text.startswith(" Paris")
    other = client.completions.create(**asked, logit_bias={str(token): -100 for token in paris})
    assert "Paris" not in other.choices[0].text
    forced = client.completions.create(**asked, logit_bias={str(token): 100 for token in cat})
    assert forced.choices[0].text == " cat cat"


def test_a_seed_repeats_a_reply(client: openai.OpenAI) -> None:
    def write(seed: int) -> str:
        return (
            client.completions.create(model=MODEL, prompt="Once upon a time", temperature=1.2, max_tokens=12, seed=seed)
            .choices[0]
            .text
        )

    first = [write(seed) for seed in (1, 2, 3)]
    assert [write(seed) for seed in (1, 2, 3)] == first
    assert len(set(first)) == 3
    assert write(-1) == write(-1)


def test_log_probabilities_of_a_chat(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model=MODEL, messages=CAPITAL, temperature=0, max_tokens=30, logprobs=True, top_logprobs=3
    )
    entries = reply.choices[0].logprobs.content
    assert b"".join(bytes(entry.bytes) for entry in entries).decode() == reply.choices[0].message.content
    for entry in entries:
        values = [top.logprob for top in entry.top_logprobs]
        assert len(values) == 3 and values == sorted(values, reverse=True)
        assert entry.logprob == values[0] <= 0, "greedy takes the most likely one"
        assert sum(np.exp(values)) < 1.0001


def test_log_probabilities_arrive_with_their_chunks(client: openai.OpenAI) -> None:
    asked = {"model": MODEL, "messages": CAPITAL, "temperature": 0, "max_tokens": 8, "logprobs": True}
    whole = client.chat.completions.create(**asked).choices[0].logprobs.content
    chunks = client.chat.completions.create(**asked, stream=True)
    parts = [entry for chunk in chunks if chunk.choices[0].logprobs for entry in chunk.choices[0].logprobs.content]
    assert [(part.token, part.logprob) for part in parts] == [(entry.token, entry.logprob) for entry in whole]


def test_log_probabilities_of_a_completion(client: openai.OpenAI) -> None:
    reply = client.completions.create(model=MODEL, prompt="1, 2, 3, 4,", temperature=0, max_tokens=4, logprobs=2)
    found = reply.choices[0].logprobs
    assert found.tokens == [" ", "5", ",", " "] and reply.choices[0].text == " 5, "
    assert found.text_offset == [sum(map(len, found.tokens[:i])) for i in range(len(found.tokens))]
    assert all(max(top.values()) == value for top, value in zip(found.top_logprobs, found.token_logprobs, strict=True))


@pytest.mark.parametrize("temperature", [0, 1.5])
def test_a_schema_is_followed(client: openai.OpenAI, temperature: float) -> None:
    reply = client.chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Describe a person."}],
        temperature=temperature,
        seed=7,
        max_tokens=120,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": PERSON, "strict": True}},
    )
    assert reply.choices[0].finish_reason == "stop"
    person = json.loads(reply.choices[0].message.content)
    assert set(person) == {"name", "age", "tags"}
    assert isinstance(person["name"], str) and 0 <= person["age"] <= 120
    assert 1 <= len(person["tags"]) <= 2 and set(person["tags"]) <= {"red", "green"}


def test_json_objects_while_others_write_freely(real: Served) -> None:
    async def all_three() -> list[str]:
        async with openai.AsyncOpenAI(base_url=real.url, api_key="none", max_retries=0) as client:

            async def ask(question: str, **more: object) -> str:
                messages = [{"role": "user", "content": question}]
                reply = await client.chat.completions.create(
                    model=MODEL, messages=messages, temperature=0, max_tokens=80, **more
                )
                return reply.choices[0].message.content

            question = "Give me the name and age of a person as JSON."
            return await asyncio.gather(
                ask(question, response_format={"type": "json_object"}),
                ask("What is the capital of France?"),
                ask(question, response_format={"type": "json_object"}),
            )

    first, free, second = asyncio.run(all_three())
    assert isinstance(json.loads(first), dict) and first == second
    assert free == "The capital of France is Paris."


def test_embeddings_are_normalised_and_tell_texts_apart(client: openai.OpenAI, real: Served) -> None:
    texts = ["The cat sits on the mat.", "A cat is sitting on a mat.", "Quarterly revenue fell by nine percent."]
    held = real.idle().pool
    answer = client.embeddings.create(model=MODEL, input=texts)
    vectors = np.array([entry.embedding for entry in answer.data])
    assert vectors.shape == (3, 576) and [entry.index for entry in answer.data] == [0, 1, 2]
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[0] @ vectors[1] > vectors[0] @ vectors[2]
    assert answer.usage.prompt_tokens == sum(
        real.post("/tokenize", {"prompt": text, "add_special_tokens": True}).json()["count"] for text in texts
    )
    assert real.snapshot().pool == held, "embeddings bypass the cache"
    floats = client.embeddings.create(model=MODEL, input=texts[0], encoding_format="float").data[0].embedding
    packed = real.post("/v1/embeddings", {"input": texts[0], "encoding_format": "base64"}).json()["data"][0]
    assert np.array_equal(np.frombuffer(base64.b64decode(packed["embedding"]), "<f4"), np.float32(floats))
