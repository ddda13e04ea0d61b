"""Scheduler: requests in, events out; limits, stops, errors, reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from engine.cache.pool import KVPool
from engine.cache.prefix import PrefixCache
from engine.cache.session import Session
from engine.errors import (
    BadRequestValueError,
    DuplicateRequestError,
    EmptyPromptError,
    PromptTooLongError,
    QueueFullError,
)
from engine.scheduling.events import Finished, Piece
from engine.scheduling.logprobs import logprobs
from engine.scheduling.request import Request, SamplingParams
from engine.scheduling.scheduler import Scheduler
from tests.desk import VOCAB, Desk, P
from tests.fakes import SPEC, FakeEvaluator, FakeText, reply

PROMPT = [3, 1, 4, 1, 5]


@pytest.mark.parametrize("pages", [64, None])
@pytest.mark.parametrize("n", [1, P - 1, P, P + 1, 2 * P, 5 * P, 5 * P + 3])
def test_prompts_of_every_length_get_their_own_reply(n: int, pages: int | None) -> None:
    desk = Desk(pages=pages)
    finished = desk.run(1, range(n), max_new=7)
    assert desk.tokens(1) == reply(range(n), 7, VOCAB)
    assert desk.text(1) == "".join(f"<{token}>" for token in desk.tokens(1))
    assert (finished.reason, finished.n_prompt, finished.n_gen, finished.n_kept) == ("length", n, 7, 7)


def test_a_batch_gives_every_stream_what_it_gets_alone() -> None:
    desk = Desk(max_streams=4)
    prompts = {id: [id, *range(id)] for id in range(1, 10)}
    for id, prompt in prompts.items():
        desk.submit(id, prompt, max_new=3 + id)
    desk.drain()
    assert max(len(report.decoded) for report in desk.reports) == 4
    for id, prompt in prompts.items():
        assert desk.tokens(id) == reply(prompt, 3 + id, VOCAB)


@pytest.mark.parametrize(
    ("fields", "error", "field"),
    [
        ({"prompt": ()}, EmptyPromptError, None),
        ({"prompt": (1,) * 64}, PromptTooLongError, None),
        ({"prompt": (1,) * 33, "pages": 8}, PromptTooLongError, None),
        ({"max_new": 0}, BadRequestValueError, "max_new"),
        ({"prompt": (VOCAB,)}, BadRequestValueError, "prompt"),
        ({"prompt": (1, -1)}, BadRequestValueError, "prompt"),
        ({"close_tokens": (VOCAB,)}, BadRequestValueError, "close_tokens"),
        ({"logprobs": -1}, BadRequestValueError, "logprobs"),
        ({"sampling": SamplingParams(temperature=-0.1)}, BadRequestValueError, "temperature"),
        ({"sampling": SamplingParams(temperature=float("nan"))}, BadRequestValueError, "temperature"),
        ({"sampling": SamplingParams(top_k=-1)}, BadRequestValueError, "top_k"),
        ({"sampling": SamplingParams(top_p=0.0)}, BadRequestValueError, "top_p"),
        ({"sampling": SamplingParams(min_p=1.5)}, BadRequestValueError, "min_p"),
        ({"sampling": SamplingParams(repetition_penalty=0.0)}, BadRequestValueError, "repetition_penalty"),
        ({"sampling": SamplingParams(presence_penalty=float("inf"))}, BadRequestValueError, "presence_penalty"),
        ({"sampling": SamplingParams(frequency_penalty=float("nan"))}, BadRequestValueError, "frequency_penalty"),
        ({"sampling": SamplingParams(penalty_last_n=-1)}, BadRequestValueError, "penalty_last_n"),
        ({"sampling": SamplingParams(logit_bias=((VOCAB, 1.0),))}, BadRequestValueError, "logit_bias"),
    ],
)
def test_what_could_never_run_is_refused(fields: dict[str, Any], error: type[Exception], field: str | None) -> None:
    desk = Desk(pages=fields.pop("pages", 64))
    with pytest.raises(error) as refused:
        desk.submit(1, **{"prompt": PROMPT, **fields})
    assert getattr(refused.value, "field", None) == field
    assert str(refused.value).endswith(".") and not desk.scheduler.has_work


def test_a_full_queue_and_a_known_id_are_refused() -> None:
    desk = Desk(max_streams=1, max_queue=2)
    desk.submit(1, PROMPT)
    desk.step()
    desk.submit(2, PROMPT)
    for known in (1, 2):
        with pytest.raises(DuplicateRequestError):
            desk.submit(known, PROMPT)
    desk.submit(3, PROMPT)
    with pytest.raises(QueueFullError):
        desk.submit(4, PROMPT)
    desk.drain()
    assert desk.run(1, PROMPT).reason == "length"


@pytest.mark.parametrize("sizes", [{"max_streams": 0}, {"max_queue": 0}, {"chunk": 0}])
def test_senseless_sizes_are_refused(sizes: dict[str, int]) -> None:
    with pytest.raises(BadRequestValueError):
        Scheduler(FakeEvaluator(), **sizes)  # type: ignore[arg-type]


def test_the_cache_must_be_over_the_schedulers_pool() -> None:
    pool = KVPool(SPEC, capacity_pages=4)
    with pytest.raises(BadRequestValueError):
        Scheduler(FakeEvaluator(), cache=PrefixCache(pool))


def test_a_queued_request_holds_no_pages() -> None:
    desk = Desk(max_streams=1)
    for id in range(5):
        desk.submit(id, PROMPT)
    assert desk.scheduler.pool.n_free == 64
    desk.step()
    assert set(desk.scheduler.stream_pages()) == {0}
    assert [state.phase for state in desk.scheduler.states()] == ["decoding", *["queued"] * 4]


def test_max_new_one_ends_with_the_first_token() -> None:
    desk = Desk()
    finished = desk.run(1, PROMPT, max_new=1)
    assert (finished.reason, finished.n_gen, desk.model.generated_rows) == ("length", 1, 0)


def test_a_stop_token_is_never_shown_nor_counted() -> None:
    expected = reply(PROMPT, 6, VOCAB)
    stop = expected[4]
    assert stop not in expected[:4]
    desk = Desk()
    finished = desk.run(1, PROMPT, stop_ids=frozenset([stop]))
    assert desk.tokens(1) == expected[:4]
    assert (finished.reason, finished.n_gen) == ("stop", 4)


def test_a_stop_token_may_be_the_first() -> None:
    desk = Desk()
    finished = desk.run(1, PROMPT, stop_ids=frozenset(reply(PROMPT, 1, VOCAB)))
    assert desk.pieces == {}
    assert (finished.reason, finished.n_gen, finished.ttft_us, finished.gen_us) == ("stop", 0, 0, 0)


def test_a_prompt_that_just_fits_gets_one_token() -> None:
    desk = Desk(n_ctx=16)
    finished = desk.run(1, range(15), max_new=9)
    assert (finished.reason, finished.n_gen) == ("length", 1)


def test_the_context_ends_a_reply() -> None:
    desk = Desk(n_ctx=16)
    finished = desk.run(1, PROMPT, max_new=99)
    assert (finished.reason, finished.n_gen) == ("length", 11)
    assert desk.tokens(1) == reply(PROMPT, 11, VOCAB)


def test_a_stop_string_ends_a_reply_before_it() -> None:
    expected = reply(PROMPT, 6, VOCAB)
    desk = Desk()
    finished = desk.run(1, PROMPT, stop_strings=(f"<{expected[3]}>",))
    assert desk.text(1) == "".join(f"<{token}>" for token in expected[:3])
    assert (finished.reason, finished.n_gen, finished.n_kept) == ("stop", 4, 3)


class Late(FakeText):
    """Holds everything back until the end."""

    def push(self, token: int) -> tuple[str, bool]:
        self.held = getattr(self, "held", "") + super().push(token)[0]
        return "", False

    def flush(self) -> str:
        return getattr(self, "held", "")


def test_text_that_was_held_back_comes_in_a_last_piece_without_a_token() -> None:
    desk = Desk(text_factory=Late)
    desk.run(1, PROMPT, max_new=3)
    assert [(piece.token, piece.text) for piece in desk.pieces[1]] == [
        *((token, "") for token in reply(PROMPT, 3, VOCAB)),
        (None, "".join(f"<{token}>" for token in reply(PROMPT, 3, VOCAB))),
    ]


def test_warm_reads_the_prompt_and_stores_it_whole() -> None:
    desk = Desk()
    finished = desk.run(1, range(3 * P), kind="warm", max_new=0, label="system prompt")
    assert (finished.n_gen, finished.reason, desk.pieces) == (0, "length", {})
    assert desk.cache is not None and desk.cache.held_pages == 3
    assert [chain.label for chain in desk.cache.chains()] == ["system prompt"]
    again = desk.run(2, range(3 * P), kind="warm", max_new=0)
    assert (again.n_cached, desk.model.prompt_tokens) == (3 * P, 3 * P)


def test_seeds_are_reported_and_fresh_where_none_is_given() -> None:
    desk = Desk()
    given = desk.run(1, PROMPT, max_new=1, sampling=SamplingParams(seed=7))
    fresh = {desk.run(id, PROMPT, max_new=1).seed for id in range(2, 8)}
    assert given.seed == 7
    assert len(fresh) == 6 and all(0 <= seed < 1 << 53 for seed in fresh)


def test_a_session_draws_with_the_streams_seed_from_the_first_draw_on() -> None:
    desk, seen = Desk(), []

    def note(name: str, sessions: Sequence[Session]) -> None:
        if name == "sample_batch":
            seen.extend((session.seed, session.n_drawn) for session in sessions)

    desk.model.on_call = note
    desk.run(1, PROMPT, max_new=3, sampling=SamplingParams(seed=5))
    assert seen == [(5, 0), (5, 1), (5, 2)]


def test_logprobs_are_of_the_models_own_distribution() -> None:
    desk = Desk()
    desk.run(1, PROMPT, max_new=2, logprobs=3)
    first = desk.pieces[1][0]
    assert first.token == first.top_logprobs[0][0]
    assert len(first.top_logprobs) == 3 and first.logprob == first.top_logprobs[0][1]
    total = np.exp(4.0) + np.exp(2.0) + (VOCAB - 2)
    assert first.logprob == pytest.approx(4.0 - np.log(total), abs=1e-6)
    assert first.top_logprobs[1][1] == pytest.approx(2.0 - np.log(total), abs=1e-6)
    desk.run(2, PROMPT, max_new=1, logprobs=0)
    assert desk.pieces[2][0].top_logprobs == () and desk.pieces[2][0].logprob == first.logprob


def test_logprobs_sort_ties_by_token() -> None:
    value, top = logprobs(np.zeros(8, np.float32), 5, 3)
    assert value == pytest.approx(-np.log(8))
    assert [token for token, _ in top] == [0, 1, 2]
    assert len(logprobs(np.zeros(2, np.float32), 0, 9)[1]) == 2


class OnlyEven:
    """A constraint: even tokens."""

    def __init__(self) -> None:
        self.accepted: list[int] = []

    def mask(self) -> np.ndarray:
        return np.arange(VOCAB) % 2 == 0

    def accept(self, token: int) -> None:
        self.accepted.append(token)


def test_a_constraint_limits_its_own_stream_only() -> None:
    desk, even = Desk(), OnlyEven()
    desk.submit(1, PROMPT, max_new=6, constraint=even)
    desk.submit(2, PROMPT, max_new=6)
    desk.drain()
    assert all(token % 2 == 0 for token in desk.tokens(1)) and even.accepted == desk.tokens(1)
    assert desk.tokens(2) == reply(PROMPT, 6, VOCAB)
    assert any(token % 2 for token in desk.tokens(2))


def test_times_count_from_submit_through_the_first_token_to_the_last() -> None:
    now = [10.0]
    desk = Desk(clock=lambda: now[0], max_streams=1)
    desk.submit(1, range(20), max_new=3)
    desk.submit(2, PROMPT, max_new=1)
    for _ in range(20):
        now[0] += 1.0
        if desk.scheduler.has_work:
            desk.step()
    first, second = desk.finished[1], desk.finished[2]
    assert (first.queue_us, first.ttft_us, first.gen_us) == (1_000_000, 3_000_000, 2_000_000)
    assert (second.queue_us, second.ttft_us, second.gen_us) == (6_000_000, 6_000_000, 0)


def test_a_report_says_what_the_step_did() -> None:
    desk = Desk(max_streams=2)
    desk.submit(1, PROMPT, max_new=9, chat="a", label="one")
    desk.step()
    desk.submit(2, range(12), max_new=9)
    desk.submit(3, PROMPT)
    desk.step()
    report = desk.reports[-1]
    assert (report.step, report.decoded, report.prefilled, report.queued) == (2, (1,), ((2, 8),), 1)
    one, two, three = report.streams
    assert (one.chat, one.label, one.phase, one.n_read, one.n_gen) == ("a", "one", "decoding", 5, 2)
    assert (two.phase, two.n_prompt, two.n_read, two.n_gen) == ("prefilling", 12, 8, 0)
    assert (three.phase, three.n_read) == ("queued", 0)
    assert report.duration_us >= report.decode_us + report.prefill_us - 2
    assert report.pool == desk.scheduler.pool.counts()


def test_a_step_without_work_does_nothing() -> None:
    desk = Desk()
    assert desk.step() == [] and not desk.scheduler.has_work
    assert desk.reports[-1].streams == ()


def test_closing_ends_everything_and_returns_all_pages() -> None:
    desk = Desk(max_streams=2)
    for id in range(4):
        desk.submit(id, range(id + 1, id + 12))
    desk.step(3)
    desk.scheduler.cancel(3)
    desk.take(desk.scheduler.close())
    assert {id: event.reason for id, event in desk.finished.items()} == dict.fromkeys(range(4), "cancelled")
    assert not desk.scheduler.has_work and desk.scheduler.pool.counts().referenced == 0
    assert desk.cache is not None and desk.pool is not None
    desk.cache.close()
    desk.pool.close()


def test_without_a_pool_every_stream_has_its_whole_context() -> None:
    desk = Desk(pages=None, n_ctx=40, max_streams=3)
    for id in range(5):
        desk.submit(id, range(id + 1), max_new=99)
    desk.drain()
    assert {event.reason for event in desk.finished.values()} == {"length"}
    assert all(desk.right(id, range(id + 1)) and desk.finished[id].n_gen == 39 - id for id in range(5))
    assert all(event.chain is None and event.n_cached == 0 for event in desk.finished.values())
    desk.scheduler.close()
    assert desk.scheduler.pool.closed


def _fails(method: str, stream_prompt: Sequence[int]) -> Any:
    def check(name: str, sessions: Sequence[Session]) -> None:
        if name == method and any(s.tokens[: len(stream_prompt)] == list(stream_prompt) for s in sessions):
            raise RuntimeError("a tensor is on fire")

    return check


@pytest.mark.parametrize("method", ["eval", "eval_batch", "sample_batch"])
def test_an_error_ends_only_the_stream_that_causes_it(method: str) -> None:
    desk = Desk()
    desk.model.on_call = _fails(method, [9, 9])
    desk.submit(1, PROMPT, max_new=5)
    desk.submit(2, [9, 9, *range(9)], max_new=5)
    desk.submit(3, [1, 2], max_new=5)
    desk.drain()
    failed = desk.finished[2]
    assert (failed.reason, failed.error, failed.error_code) == ("error", "a tensor is on fire", "internal")
    for id, prompt in ((1, PROMPT), (3, [1, 2])):
        assert desk.finished[id].reason == "length" and desk.tokens(id) == reply(prompt, 5, VOCAB)


class Broken(FakeText):
    """Fails for requests labelled with the method's name."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.label = request.label

    def push(self, token: int) -> tuple[str, bool]:
        if self.label == "push":
            raise ValueError("no such character")
        return super().push(token)

    def flush(self) -> str:
        if self.label == "flush":
            raise ValueError("no such character")
        return super().flush()


@pytest.mark.parametrize("label", ["push", "flush"])
def test_an_error_of_the_text_side_ends_its_stream(label: str) -> None:
    desk = Desk(text_factory=Broken)
    desk.submit(1, PROMPT, max_new=3, label=label)
    desk.submit(2, PROMPT, max_new=3)
    desk.drain()
    assert (desk.finished[1].reason, desk.finished[1].error) == ("error", "no such character")
    assert desk.finished[2].reason == "length"


def test_events_are_pieces_then_the_last_event() -> None:
    desk = Desk()
    desk.submit(1, PROMPT, max_new=2)
    kinds = []
    while desk.scheduler.has_work:
        kinds += [type(event) for event in desk.step()]
    assert kinds == [Piece, Piece, Finished]
