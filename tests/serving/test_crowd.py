"""Many clients at once on the real model; some leave at random moments."""

from __future__ import annotations

import asyncio
import random

import openai
import pytest

from tests.serving.conftest import MODEL
from tests.serving.harness import Served

N_STREAMS = 64


def codewords(n: int, rng: random.Random) -> list[str]:
    """Made-up words, no two of which begin with the same four letters."""
    words: dict[str, str] = {}
    while len(words) < n:
        word = "".join(rng.choice("bcdfghklmnprstvz") + rng.choice("aeiou") for _ in range(3))
        words[word[:4]] = word
    return list(words.values())


async def _stay(client: openai.AsyncOpenAI, word: str) -> tuple[str, str]:
    """A codeword, and the whole reply to a prompt that asks for it."""
    said = f"The code word is {word}."
    stream = await client.completions.create(
        model=MODEL,
        prompt=f"{said} I repeat: the code word is {word}. Once more: the code word is {word}. Again: the code word is",
        temperature=0,
        max_tokens=8,
        stop=[".", "\n"],
        stream=True,
    )
    return word, "".join([chunk.choices[0].text async for chunk in stream]).strip()


async def _leave(client: openai.AsyncOpenAI, word: str, chunks: int) -> None:
    """Close a long stream after some chunks; 0: the request itself is given up."""
    asking = client.completions.create(
        model=MODEL, prompt=f"A long story about {word}:", temperature=0, max_tokens=3000, stream=True
    )
    if chunks == 0:
        task = asyncio.ensure_future(asking)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return
    stream = await asking
    async for _ in stream:
        chunks -= 1
        if chunks == 0:
            break
    await stream.close()


async def _crowd(url: str, stayers: list[str], leavers: list[str], rng: random.Random) -> list[tuple[str, str]]:
    async with openai.AsyncOpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
        work = [_stay(client, word) for word in stayers]
        gone = [_leave(client, word, rng.choice([0, 1, 1, 2, 3, 5])) for word in leavers]
        everyone = [asyncio.ensure_future(one) for one in rng.sample([*work, *gone], N_STREAMS)]
        await asyncio.gather(*everyone)
        return [one.result() for one in everyone if one.result() is not None]


def test_sixty_four_streams_with_random_leavers(real: Served) -> None:
    rng = random.Random(20)
    words = codewords(N_STREAMS, rng)
    stayers, leavers = words[:40], words[40:]
    before = real.idle()
    replies = dict(asyncio.run(_crowd(real.url, stayers, leavers, rng)))
    after = real.idle()
    assert sorted(replies) == sorted(stayers)
    for word, reply in replies.items():
        assert reply and not any(reply.startswith(other[:4]) for other in words if other != word), (word, reply)
    right = sum(reply.startswith(word[:4]) for word, reply in replies.items())
    assert right >= 36, "a small model may misspell a word or two"
    assert real.server.busy == 0
    assert (after.integrity, after.pool.referenced) == ("", 0)
    assert after.pool.free + after.pool.cached == before.pool.capacity
