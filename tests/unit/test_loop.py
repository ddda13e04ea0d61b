"""EngineLoop: commands between steps, text work and loading beside them, a clean end in every state."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import numpy as np
import pytest

from engine.cache.pool import KVPool
from engine.errors import (
    BadRequestValueError,
    CancelledError,
    DuplicateRequestError,
    EngineError,
    ModelFileError,
    NotLoadedError,
    TemplateError,
    UnknownChainError,
)
from engine.hosting.bundle import LoadProgress
from engine.hosting.workers import Mailbox
from engine.loop import EngineLoop
from engine.port import PAGE_CACHED, PAGE_SHARED, ChatJob, EngineState, Failed, LoadOptions, Prepared, Turn
from engine.scheduling.events import Finished, Piece, StepReport
from engine.scheduling.request import Request
from tests.fakes import FakeBundle, reply

WAIT_S = 20.0
OPTIONS = LoadOptions("/models/fake.gguf")


class Sink:
    """Collects what the loop reports; ``until`` waits for it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.reports: list[StepReport] = []
        self.states: list[EngineState] = []
        self.prepared: dict[int, Prepared] = {}
        self.failed: dict[int, Failed] = {}
        self.threads: dict[str, set[str]] = {}

    def _add(self, kind: str, add: Callable[[], Any]) -> None:
        with self.changed:
            add()
            self.threads.setdefault(kind, set()).add(threading.current_thread().name)
            self.changed.notify_all()

    def on_step(self, report: StepReport) -> None:
        self._add("step", lambda: self.reports.append(report))

    def on_state(self, state: EngineState) -> None:
        self._add("state", lambda: self.states.append(state))

    def on_prepared(self, prepared: Prepared) -> None:
        self._add("prepared", lambda: self.prepared.__setitem__(prepared.stream, prepared))

    def on_failed(self, failed: Failed) -> None:
        self._add("failed", lambda: self.failed.__setitem__(failed.stream, failed))

    def until(self, condition: Callable[[], Any]) -> None:
        with self.changed:
            assert self.changed.wait_for(condition, WAIT_S), "it did not happen in time"

    def events(self, stream: int) -> list[Piece | Finished]:
        return [event for report in self.reports for event in report.events if event.stream == stream]

    def text(self, stream: int) -> str:
        return "".join(event.text for event in self.events(stream) if isinstance(event, Piece))

    def finished(self, stream: int) -> Finished | None:
        return next((event for event in self.events(stream) if isinstance(event, Finished)), None)


class Garage:
    """A loader whose models the test parks beforehand; loading waits while ``gate`` is closed."""

    def __init__(self) -> None:
        self.bundles: dict[str, FakeBundle] = {}
        self.errors: dict[str, Exception] = {}
        self.gate = threading.Event()
        self.gate.set()
        self.loading = threading.Event()
        self.heeds_cancel = True

    def __call__(self, options: LoadOptions, progress: LoadProgress) -> FakeBundle:
        self.loading.set()
        progress.report("compiling", 0.5, "kernels")
        while not self.gate.wait(0.005):
            if self.heeds_cancel:
                progress.check()
        if options.path in self.errors:
            raise self.errors[options.path]
        if self.heeds_cancel:
            progress.report("loading", 1.0)
        return self.bundles.setdefault(options.path, FakeBundle(options.path))


class Engine:
    """A running loop with its sink and its loader."""

    def __init__(self) -> None:
        self.sink, self.garage = Sink(), Garage()
        self.loop = EngineLoop(self.sink, self.garage)
        self.thread = threading.Thread(target=self.loop.run, name="test-engine")
        self.thread.start()

    def load(self, path: str = "/models/fake.gguf", **options: Any) -> FakeBundle:
        info = self.loop.load(LoadOptions(path, **options)).result(WAIT_S)
        assert info.path == path
        return self.garage.bundles[path]

    def chat(self, id: int, *texts: str, max_new: int = 8, chat: str = "a", **fields: Any) -> None:
        roles = ("user", "assistant")
        turns = tuple(Turn(roles[i % 2], text) for i, text in enumerate(texts))  # type: ignore[arg-type]
        self.loop.chat(ChatJob(id, chat, turns, max_new=max_new, **fields))

    def wait_finished(self, id: int) -> Finished:
        self.sink.until(lambda: self.sink.finished(id))
        finished = self.sink.finished(id)
        assert finished is not None
        return finished

    def close(self) -> float:
        """Seconds until the engine's thread has ended."""
        start = time.perf_counter()
        self.loop.close()
        self.thread.join(WAIT_S)
        assert not self.thread.is_alive()
        return time.perf_counter() - start


@pytest.fixture
def engine() -> Iterator[Engine]:
    others = set(threading.enumerate())  # a model that other tests share has threads of its own
    made = Engine()
    yield made
    made.garage.gate.set()
    made.close()
    for thread in threading.enumerate():
        if thread not in others and thread.name.startswith("kvscope-"):
            thread.join(WAIT_S)
            assert not thread.is_alive()


def test_a_chat_becomes_a_prompt_then_pieces_then_a_last_event(engine: Engine) -> None:
    bundle = engine.load()
    engine.chat(1, "Hello there", max_new=6)
    finished = engine.wait_finished(1)
    prompt = engine.sink.prepared[1].prompt
    assert prompt == bundle.renderer.render_prompt([Turn("user", "Hello there")]).ids
    generated = reply(prompt, 6, 128, low=32)
    assert (finished.reason, finished.n_gen, finished.n_prompt) == ("length", 6, len(prompt))
    assert engine.sink.text(1) == bundle.tokenizer.decode(generated)
    assert engine.sink.threads == {
        "state": {"test-engine"},
        "step": {"test-engine"},
        "prepared": {"kvscope-text"},
    }


def test_the_next_turn_of_a_chat_reuses_the_first(engine: Engine) -> None:
    engine.load()
    engine.chat(1, "Hello there, this is a longer message", max_new=20)
    engine.wait_finished(1)
    tokens = tuple(event.token for event in engine.sink.events(1) if isinstance(event, Piece))
    turns = (Turn("user", "Hello there, this is a longer message"), Turn("assistant", "", tokens), Turn("user", "And?"))
    job = ChatJob(2, "a", turns, max_new=3)  # type: ignore[arg-type]
    forecast = engine.loop.forecast(job).result(WAIT_S)
    engine.loop.chat(job)
    finished = engine.wait_finished(2)
    history = len(engine.sink.prepared[1].prompt) + 20 + 2
    assert finished.n_cached == history // 16 * 16
    assert (forecast.n_prompt, forecast.n_cached) == (finished.n_prompt, finished.n_cached)
    assert forecast.spans == engine.sink.prepared[2].spans
    (chain,) = engine.loop.snapshot().result(WAIT_S).chains
    assert (chain.label, chain.chat) == ("And?", "a")


def test_labels_are_one_line_of_the_last_question(engine: Engine) -> None:
    engine.load()
    engine.chat(1, "first\n  line " + "x" * 200, max_new=1)
    engine.chat(2, "hello, this one is named", max_new=1, label="mine", chat="b")
    engine.wait_finished(1)
    engine.wait_finished(2)
    labels = {chain.label for chain in engine.loop.snapshot().result(WAIT_S).chains}
    assert labels == {"first line " + "x" * 68 + "…", "mine"}


def test_requests_can_be_submitted_without_a_chat(engine: Engine) -> None:
    arrived, go = hold_steps(engine.load())
    engine.loop.submit(Request(7, (65, 66, 67), max_new=200)).result(WAIT_S)
    assert arrived.wait(WAIT_S)
    again = engine.loop.submit(Request(7, (65,)))
    engine.loop.cancel(7)
    go.set()
    with pytest.raises(DuplicateRequestError):
        again.result(WAIT_S)
    assert engine.wait_finished(7).reason == "cancelled"


def test_jobs_that_cannot_run_fail_in_words(engine: Engine) -> None:
    engine.chat(1, "no model yet")
    engine.sink.until(lambda: 1 in engine.sink.failed)
    assert engine.sink.failed[1].error_code == "not_loaded"
    bundle = engine.load()
    engine.chat(2, "x" * 600)
    engine.sink.until(lambda: 2 in engine.sink.failed)
    assert engine.sink.failed[2].error_code == "prompt_too_long" and "600" not in engine.sink.failed[2].error

    def refuse() -> None:
        raise TemplateError("The template wants alternating roles.")

    bundle.renderer.before_render = refuse
    engine.chat(3, "hi")
    engine.sink.until(lambda: 3 in engine.sink.failed)
    assert engine.sink.failed[3] == Failed(3, "template", "The template wants alternating roles.")
    with pytest.raises(TemplateError):
        engine.loop.forecast(ChatJob(4, "a", (Turn("user", "hi"),))).result(WAIT_S)


def test_questions_without_a_model_fail(engine: Engine) -> None:
    loop = engine.loop
    asked: list[Future[Any]] = [
        loop.snapshot(), loop.page_detail(0), loop.release(1), loop.release_all(), loop.pin(1), loop.set_threads(1),
        loop.count_tokens("a"), loop.decode((1,)), loop.submit(Request(1, (1,))), loop.embed(((1,),)),
        loop.forecast(ChatJob(1, "a", (Turn("user", "x"),))),
    ]  # fmt: skip
    for future in asked:
        with pytest.raises(NotLoadedError):
            future.result(WAIT_S)
    assert loop.bundle is None


def test_small_questions(engine: Engine) -> None:
    bundle = engine.load()
    loop = engine.loop
    assert loop.count_tokens("four").result(WAIT_S) == 4
    assert loop.decode((1, 72, 105)).result(WAIT_S) == "«1»Hi"
    loop.set_threads(5).result(WAIT_S)
    assert bundle.threads == 5
    vectors = loop.embed(((1, 2), (3,))).result(WAIT_S)
    assert np.array_equal(vectors, np.array([[2, 3], [1, 3]], dtype=np.float32))
    with pytest.raises(BadRequestValueError):
        loop.embed(()).result(WAIT_S)
    assert loop.bundle is bundle


def test_snapshot_page_and_release_tell_the_same_story(engine: Engine) -> None:
    engine.load()
    engine.chat(1, "a question of some length, so that it fills pages", max_new=4)
    engine.wait_finished(1)
    shot = engine.loop.snapshot().result(WAIT_S)
    (chain,) = shot.chains
    assert shot.integrity == "" and shot.pool.cached == len(chain.pages) == sum(shot.refcounts)
    assert all(shot.page_states[page] == PAGE_CACHED for page in chain.pages)
    assert np.count_nonzero(shot.page_states) == len(chain.pages)
    assert [segment.pages for segment in shot.segments] == [chain.pages]
    assert shot.segments[0].text.startswith("«1»user\na question")
    detail = engine.loop.page_detail(chain.pages[0]).result(WAIT_S)
    assert (detail.state, detail.refcount, detail.chats, detail.chains) == ("cached", 1, ("a",), (chain.id,))
    assert detail.text == "«1»user\na question"[: len(detail.text)] and len(detail.tokens) == 16
    assert engine.loop.page_detail(63).result(WAIT_S).state == "free"
    with pytest.raises(BadRequestValueError):
        engine.loop.page_detail(64).result(WAIT_S)
    engine.loop.pin(chain.id).result(WAIT_S)
    assert engine.loop.snapshot().result(WAIT_S).chains[0].pinned
    plan = engine.loop.release(chain.id, dry_run=True).result(WAIT_S)
    assert plan.freed == len(chain.pages) and plan.dry_run
    assert engine.loop.release(chain.id).result(WAIT_S).freed == plan.freed
    with pytest.raises(UnknownChainError):
        engine.loop.release(chain.id).result(WAIT_S)
    assert engine.loop.release_all().result(WAIT_S).freed == 0
    assert engine.loop.snapshot().result(WAIT_S).pool.free == 64


def hold_steps(bundle: FakeBundle, n: int = 20) -> tuple[threading.Event, threading.Event]:
    """The model stops in its ``n``-th call from now (first event) until the second event is set."""
    arrived, go = threading.Event(), threading.Event()
    calls = itertools.count(1)

    def wait(_name: str, _sessions: Any) -> None:
        if next(calls) == n:
            arrived.set()
            assert go.wait(WAIT_S)

    bundle.evaluator.on_call = wait
    return arrived, go


def test_pages_of_running_streams_are_shown_with_their_holders(engine: Engine) -> None:
    arrived, go = hold_steps(engine.load())
    engine.chat(1, "a first question that is long enough", max_new=300)
    assert arrived.wait(WAIT_S)
    shot_future = engine.loop.snapshot()
    first_page = engine.loop.page_detail(0)
    engine.loop.cancel(1)
    go.set()
    shot = shot_future.result(WAIT_S)
    assert shot.stream_pages.keys() == {1} and shot.streams[0].phase == "decoding"
    assert {int(shot.page_states[page]) for page in shot.stream_pages[1][:2]} == {PAGE_SHARED}
    detail = first_page.result(WAIT_S)
    assert (detail.streams, detail.chats, detail.refcount) == ((1,), ("a",), 2)
    engine.wait_finished(1)


def test_cancel_reaches_a_job_that_is_still_being_rendered(engine: Engine) -> None:
    bundle = engine.load()
    rendering, go = threading.Event(), threading.Event()

    def wait() -> None:
        rendering.set()
        assert go.wait(WAIT_S)

    bundle.renderer.before_render = wait
    engine.chat(1, "never to be answered", max_new=100)
    assert rendering.wait(WAIT_S)
    engine.loop.cancel(1)
    engine.loop.snapshot().result(WAIT_S)  # the cancellation has arrived
    go.set()
    finished = engine.wait_finished(1)
    assert (finished.reason, finished.n_gen) == ("cancelled", 0)


def test_text_work_does_not_hold_up_running_streams(engine: Engine) -> None:
    bundle = engine.load()
    go = threading.Event()
    engine.chat(1, "running", max_new=40)
    engine.sink.until(lambda: engine.sink.text(1))
    bundle.renderer.before_render = lambda: go.wait(WAIT_S) and None
    engine.chat(2, "slow to render", max_new=1)
    assert engine.wait_finished(1).n_gen == 40
    assert 2 not in engine.sink.prepared
    go.set()
    engine.wait_finished(2)


def test_loading_reports_its_stages(engine: Engine) -> None:
    engine.load()
    seen = [(state.stage, state.progress, state.detail) for state in engine.sink.states]
    assert seen == [("loading", 0.0, ""), ("compiling", 0.5, "kernels"), ("loading", 1.0, ""), ("ready", 0.0, "")]
    assert engine.sink.states[-1].model is not None


def test_a_failed_load_leaves_the_old_model_running(engine: Engine) -> None:
    engine.load()
    engine.chat(1, "a long answer please", max_new=300)
    engine.sink.until(lambda: engine.sink.text(1))
    engine.garage.errors["/models/bad.gguf"] = ModelFileError("The file is cut off.", field="tensors")
    with pytest.raises(ModelFileError):
        engine.loop.load(LoadOptions("/models/bad.gguf")).result(WAIT_S)
    assert engine.wait_finished(1).n_gen > 0
    engine.sink.until(lambda: engine.sink.states[-1].stage == "ready")
    last = engine.sink.states[-1]
    assert (last.error, last.error_code) == ("The file is cut off.", "model_file")
    assert last.model is not None and last.model.path == "/models/fake.gguf"


def test_a_failed_first_load_says_so_and_can_be_repeated(engine: Engine) -> None:
    engine.garage.errors["/models/fake.gguf"] = ModelFileError("The file is cut off.")
    with pytest.raises(ModelFileError):
        engine.loop.load(OPTIONS).result(WAIT_S)
    engine.sink.until(lambda: engine.sink.states[-1].stage == "failed")
    assert engine.sink.states[-1].model is None
    del engine.garage.errors["/models/fake.gguf"]
    engine.load()


def test_an_unexpected_error_of_the_loader_is_logged_and_told(engine: Engine, caplog: Any) -> None:
    engine.garage.errors["/models/fake.gguf"] = ZeroDivisionError("division by zero")
    with pytest.raises(ZeroDivisionError):
        engine.loop.load(OPTIONS).result(WAIT_S)
    engine.sink.until(lambda: engine.sink.states[-1].stage == "failed")
    assert engine.sink.states[-1].error_code == "internal" and "unexpectedly" in caplog.text


def test_a_load_can_be_cancelled_and_the_old_model_stays(engine: Engine) -> None:
    old = engine.load()
    engine.garage.gate.clear()
    engine.garage.loading.clear()
    future = engine.loop.load(LoadOptions("/models/other.gguf"))
    assert engine.garage.loading.wait(WAIT_S)
    engine.chat(1, "meanwhile", max_new=3)
    assert engine.wait_finished(1).n_gen == 3
    engine.loop.cancel_load()
    with pytest.raises(CancelledError):
        future.result(WAIT_S)
    engine.sink.until(lambda: engine.sink.states[-1].stage == "ready")
    assert engine.sink.states[-1].error == "" and engine.loop.bundle is old
    engine.loop.cancel_load()  # nothing to cancel


def test_a_newer_load_takes_the_place_of_an_older_one(engine: Engine) -> None:
    engine.garage.gate.clear()
    first = engine.loop.load(LoadOptions("/models/one.gguf"))
    assert engine.garage.loading.wait(WAIT_S)
    second = engine.loop.load(LoadOptions("/models/two.gguf"))
    with pytest.raises(CancelledError):
        first.result(WAIT_S)
    engine.garage.gate.set()
    assert second.result(WAIT_S).path == "/models/two.gguf"


def test_a_model_that_arrives_after_it_was_cancelled_is_closed(engine: Engine) -> None:
    engine.garage.heeds_cancel = False
    engine.garage.gate.clear()
    parked = engine.garage.bundles["/models/late.gguf"] = FakeBundle("/models/late.gguf")
    future = engine.loop.load(LoadOptions("/models/late.gguf"))
    assert engine.garage.loading.wait(WAIT_S)
    engine.loop.cancel_load()
    engine.garage.gate.set()
    with pytest.raises(CancelledError):
        future.result(WAIT_S)
    assert engine.loop.bundle is None and parked.closed


def test_another_model_ends_what_runs_and_explains_the_next_miss(engine: Engine) -> None:
    old = engine.load(chunk=16)
    engine.chat(1, "a question that fills more than a page", max_new=2)
    engine.wait_finished(1)
    arrived, go = hold_steps(old)
    engine.chat(2, "running when the model goes", max_new=400, chat="b")
    assert arrived.wait(WAIT_S)
    future = engine.loop.load(LoadOptions("/models/other.gguf"))
    go.set()
    future.result(WAIT_S)
    assert engine.wait_finished(2).reason in ("cancelled", "length")
    engine.chat(3, "a question that fills more than a page", max_new=2)
    miss = engine.wait_finished(3).miss
    assert miss is not None and miss.cause == "other_model"
    engine.loop.count_tokens("x").result(WAIT_S)  # the text thread has closed the old model by now
    assert old.closed


def test_unload_ends_the_streams_and_gives_the_model_back(engine: Engine) -> None:
    bundle = engine.load()
    arrived, go = hold_steps(bundle)
    engine.chat(1, "running", max_new=400)
    assert arrived.wait(WAIT_S)
    unloaded = engine.loop.unload()
    go.set()
    unloaded.result(WAIT_S)
    assert engine.wait_finished(1).reason == "cancelled"
    engine.sink.until(lambda: engine.sink.states[-1].stage == "empty")
    assert engine.loop.bundle is None
    engine.close()
    assert bundle.closed


def test_without_a_prefix_cache_the_loop_answers_as_well(engine: Engine) -> None:
    engine.load(prefix_cache=False)
    engine.chat(1, "a question that fills more than a page", max_new=2)
    assert engine.wait_finished(1).chain is None
    shot = engine.loop.snapshot().result(WAIT_S)
    assert (shot.chains, shot.segments, shot.pool.free) == ((), (), 64)
    assert engine.loop.release_all().result(WAIT_S).freed == 0
    with pytest.raises(UnknownChainError):
        engine.loop.release(1).result(WAIT_S)
    assert engine.loop.forecast(ChatJob(2, "a", (Turn("user", "x"),))).result(WAIT_S).n_cached == 0


def test_a_defect_in_a_step_ends_the_streams_and_the_engine_starts_anew(engine: Engine, caplog: Any) -> None:
    bundle = engine.load()
    arrived, go = hold_steps(bundle)
    engine.chat(1, "running", max_new=400)
    assert arrived.wait(WAIT_S)
    runtime = engine.loop._runtime
    assert runtime is not None

    def broken() -> None:
        raise AssertionError("the books are wrong")

    runtime.scheduler._reap = broken  # type: ignore[method-assign]
    go.set()
    finished = engine.wait_finished(1)
    assert (finished.reason, finished.error) == ("error", "the books are wrong")
    engine.sink.until(lambda: engine.sink.states[-1].error)
    assert engine.sink.states[-1].stage == "ready" and "An engine step failed." in caplog.text
    engine.chat(2, "again", max_new=2)
    assert engine.wait_finished(2).n_gen == 2
    assert engine.loop.bundle is bundle


def test_a_sink_that_fails_does_not_stop_the_engine(engine: Engine, caplog: Any) -> None:
    engine.load()
    healthy = engine.sink.on_step
    calls = []

    def fail_once(report: StepReport) -> None:
        calls.append(report)
        if len(calls) == 1:
            raise RuntimeError("the window is gone")
        healthy(report)

    engine.sink.on_step = fail_once  # type: ignore[method-assign]
    engine.chat(1, "hello", max_new=5)
    engine.wait_finished(1)
    assert "sink failed" in caplog.text


def test_an_idle_loop_sleeps(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float | None] = []
    entered = threading.Condition()
    wait = Mailbox.wait

    def counted(self: Mailbox, timeout: float | None = None) -> bool:
        if self is engine.loop._mailbox:
            with entered:
                waits.append(timeout)
                entered.notify_all()
        return wait(self, timeout)

    monkeypatch.setattr(Mailbox, "wait", counted)
    engine.load()
    engine.chat(1, "hello", max_new=5)
    engine.wait_finished(1)
    engine.loop.snapshot().result(WAIT_S)
    with entered:
        assert entered.wait_for(lambda: waits and waits[-1] is not None, WAIT_S)
        n = len(waits)
        entered.wait_for(lambda: len(waits) > n, 0.3)
        assert len(waits) == n  # nobody has woken it


def test_a_rest_gives_free_memory_back(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    trimmed = threading.Event()
    monkeypatch.setattr("engine.loop.TRIM_AFTER_S", 0.01)
    monkeypatch.setattr(KVPool, "trim", lambda self: trimmed.set())
    engine.load()
    engine.chat(1, "hello", max_new=5)
    engine.wait_finished(1)
    assert trimmed.wait(WAIT_S)


def idle(engine: Engine) -> None:
    """Nothing is loaded."""


def loaded(engine: Engine) -> None:
    engine.load()


def loading(engine: Engine) -> None:
    engine.garage.gate.clear()
    engine.loop.load(OPTIONS)
    assert engine.garage.loading.wait(WAIT_S)


def loading_stubbornly(engine: Engine) -> None:
    engine.garage.heeds_cancel = False
    loading(engine)


def decoding(engine: Engine) -> None:
    engine.load()
    for id in range(4):
        engine.chat(id, "on and on", max_new=450)
    engine.sink.until(lambda: engine.sink.text(3))


def reading(engine: Engine) -> None:
    engine.load(chunk=1)
    engine.chat(1, "x" * 400)
    engine.sink.until(lambda: engine.sink.reports)


def rendering(engine: Engine) -> None:
    bundle = engine.load()
    started, never = threading.Event(), threading.Event()

    def slowly() -> None:
        started.set()
        never.wait(0.2)

    bundle.renderer.before_render = slowly
    for id in range(3):
        engine.chat(id, "slow")
    assert started.wait(WAIT_S)


@pytest.mark.parametrize("state", [idle, loaded, loading, loading_stubbornly, decoding, reading, rendering])
def test_closing_ends_within_two_seconds_in_every_state(
    engine: Engine, state: Callable[[Engine], None], caplog: Any
) -> None:
    state(engine)
    assert engine.close() < 2.0
    assert engine.sink.states[-1].stage == "closed"
    assert engine.loop.bundle is None
    assert all(bundle.closed for bundle in engine.garage.bundles.values())
    for future in (engine.loop.snapshot(), engine.loop.count_tokens("x"), engine.loop.load(OPTIONS)):
        with pytest.raises(EngineError):
            future.result(WAIT_S)
    engine.chat(99, "too late")
    assert engine.sink.failed[99].error_code == "cancelled"
    if state is rendering:
        ended = engine.sink.failed.keys() | {event.stream for r in engine.sink.reports for event in r.events}
        assert {0, 1, 2} <= ended
    if state is loading_stubbornly:
        assert "load thread has not ended yet" in caplog.text


def test_everything_that_runs_at_the_end_gets_a_last_event(engine: Engine) -> None:
    decoding(engine)
    engine.close()
    reasons = {id: finished.reason for id in range(4) if (finished := engine.sink.finished(id)) is not None}
    assert len(reasons) == 4 and set(reasons.values()) <= {"cancelled", "length"}


def test_importing_the_loop_does_not_import_numba() -> None:
    code = "import sys, engine.loop, engine.trace.jsonl; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
