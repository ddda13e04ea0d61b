"""LanguageModel on tiny models, by either executor: evaluation, reservation, errors, scores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import engine.model.language_model as lm
from engine.cache.pool import KVSpec
from engine.cache.session import Session
from engine.errors import BadRequestValueError, EmptyPromptError, ModelFileError, PoolExhaustedError, SessionError
from engine.model.language_model import LanguageModel, load_model, sample
from engine.scheduling.request import SamplingParams

TINY = Path(__file__).parents[1] / "data" / "tiny"
TEXT = [(7 * i * i + 3 * i + 11) % 258 for i in range(150)]


@pytest.fixture(scope="module", params=["numpy", "compiled"])
def model(request: pytest.FixtureRequest) -> Iterator[LanguageModel]:
    with load_model(TINY / "llama.gguf", backend=request.param, kv_dtype="float32") as model:
        yield model


def test_facts(model: LanguageModel) -> None:
    assert (model.n_ctx, model.n_vocab) == (512, 260)
    assert model.kv_spec.row_bytes == 2 * 3 * 2 * 16 * 4
    info = model.info()
    assert info["parameters"] == 260 * 64 + 64 + 3 * (64 * (64 + 32 + 32 + 64 + 3 * 96) + 2 * 64)
    assert info["memory"]["kv_bytes_per_token"] == model.kv_spec.row_bytes
    assert info["tensor_types"] == {"F32": 29}
    assert info["metadata"]["tokenizer.ggml.tokens"] == "list of 260"


def test_context_is_cut_to_what_the_model_has() -> None:
    with load_model(TINY / "llama.gguf", backend="numpy", n_ctx=100_000) as model:
        assert model.n_ctx == 512
    with load_model(TINY / "llama.gguf", backend="numpy", n_ctx=48) as model:
        assert model.n_ctx == 48


def test_chunks_batches_and_page_layouts_agree(model: LanguageModel) -> None:
    whole = model.logits(TEXT)
    pool = model.new_pool(capacity_pages=40, page_rows=16)
    with model.new_session(pool) as a, model.new_session(pool) as b, model.new_session(pool) as c:
        model.eval(a, TEXT[:7])
        model.eval(b, TEXT[:90])
        model.eval(c, TEXT[:149])
        model.eval(a, TEXT[7:149], logits=False)
        assert a.logits is None
        model.eval(b, TEXT[90:149])
        model.eval_batch([a, b, c], [TEXT[149]] * 3)
        for session in (a, b, c):
            assert session.tokens == TEXT and session.n_past == 150
            assert np.abs(session.logits - whole).max() < 1e-4
    pool.close()


def test_flat_session_and_pool_sessions_share_a_batch(model: LanguageModel) -> None:
    pool = model.new_pool(capacity_pages=8, page_rows=32)
    with (
        Session(None, spec=model.kv_spec, n_ctx=64) as flat,
        model.new_session(pool) as paged,
        model.new_session() as own,
    ):
        for session in (flat, paged, own):
            model.eval(session, TEXT[:20])
        model.eval_batch([flat, paged, own], TEXT[20:23])
        for session, token in zip((flat, paged, own), TEXT[20:23], strict=True):
            assert np.abs(session.logits - model.logits([*TEXT[:20], token])).max() < 1e-4
    pool.close()


def test_a_prompt_in_the_same_pass_as_generated_rows(model: LanguageModel) -> None:
    """Every row has the bits that it has apart (the interpreter's: nearly), whether the reader's logits are wanted or
    not."""
    tolerance = 0.0 if hasattr(model.executor, "tiles") else 1e-4
    pool = model.new_pool(capacity_pages=40)
    with model.new_session(pool) as a, model.new_session(pool) as b, model.new_session(pool) as reader:
        model.eval(a, TEXT[:7])
        model.eval(b, TEXT[:40])
        model.eval_together([a, b], [TEXT[7], TEXT[40]], reader, TEXT[:30], logits=False)
        assert reader.logits is None and reader.tokens == TEXT[:30]
        model.eval_together([b, a], [TEXT[41], TEXT[8]], reader, TEXT[30:33], logits=True)
        for session, n in ((a, 9), (b, 42)):
            assert session.tokens == TEXT[:n]
            with model.new_session() as apart:
                model.eval(apart, TEXT[: n - 2])
                model.eval_batch([apart], [TEXT[n - 2]])
                model.eval_batch([apart], [TEXT[n - 1]])
                assert np.abs(apart.logits - session.logits).max() <= tolerance
        assert reader.tokens == TEXT[:33]
        assert np.abs(model.logits(TEXT[:33]) - reader.logits).max() <= tolerance
        before = [session.n_past for session in (a, b, reader)]
        for error, tokens, part in (
            (BadRequestValueError, [1, 2], [1] * model.shared_rows),
            (BadRequestValueError, [1, 2], []),
            (BadRequestValueError, [1], [1]),
            (BadRequestValueError, [1, 260], [1]),
            (BadRequestValueError, [1, 2], [-1]),
        ):
            with pytest.raises(error):
                model.eval_together([a, b], tokens, reader, part, logits=True)
        with pytest.raises(SessionError):
            model.eval_together([a, reader], [1, 2], reader, [1], logits=True)
        assert [session.n_past for session in (a, b, reader)] == before
    pool.close()


def test_reservation_is_all_or_nothing(model: LanguageModel) -> None:
    pool = model.new_pool(capacity_pages=3)
    with model.new_session(pool) as a, model.new_session(pool) as b:
        model.eval(a, TEXT[:16])
        model.eval(b, TEXT[:16])
        before = a.logits.copy()
        with pytest.raises(PoolExhaustedError):
            model.eval_batch([a, b], [1, 2])
        with pytest.raises(PoolExhaustedError):
            model.eval(a, TEXT[:17])
        assert (a.n_past, b.n_past, pool.n_free) == (16, 16, 1)
        assert np.array_equal(a.logits, before)
        pool.check_integrity()
    pool.close()


def test_errors(model: LanguageModel) -> None:
    with model.new_session() as session:
        with pytest.raises(EmptyPromptError):
            model.eval(session, [])
        with pytest.raises(BadRequestValueError) as caught:
            model.eval(session, [0, 260])
        assert caught.value.field == "tokens"
        with pytest.raises(BadRequestValueError):
            model.eval(session, [-1])
        with pytest.raises(SessionError, match="512"):
            model.eval(session, [1] * 513)
        with pytest.raises(SessionError):
            model.eval_batch([session], [1, 2])
        with pytest.raises(SessionError, match="twice"):
            model.eval_batch([session, session], [1, 2])
        with pytest.raises(SessionError, match="logits"):
            model.sample_batch([session], [SamplingParams()])
        assert session.n_past == 0
    with pytest.raises(SessionError, match="released"):
        model.eval(session, [1])


def test_score_is_the_surprise_of_each_token(model: LanguageModel) -> None:
    nll = model.score(TEXT[:70])
    assert nll.shape == (69,)
    for n in (1, 40, 69):
        x = model.logits(TEXT[:n]).astype(np.float64)
        assert nll[n - 1] == pytest.approx(np.log(np.exp(x - x.max()).sum()) + x.max() - x[TEXT[n]], abs=1e-5)
    assert model.score(TEXT[:1]).shape == (0,)


def test_hidden_is_the_mean_of_final_states(model: LanguageModel) -> None:
    states = model.hidden(TEXT[:30])
    assert states.shape == (64,)
    one = model.hidden(TEXT[:1])
    table = model.program.head[1].weight.data.view(np.float32).reshape(260, 64)
    assert np.allclose(table @ one, model.logits(TEXT[:1]), atol=1e-4)
    assert np.abs(states - one).max() > 1e-3


def test_module_functions_and_greedy_sampling(model: LanguageModel) -> None:
    with model.new_session() as session:
        lm.eval(model, session, TEXT[:9])
        first = lm.sample(session, SamplingParams())
        assert first == int(session.logits.argmax())
        lm.eval_batch(model, [session], [first])
        assert session.tokens == [*TEXT[:9], first]
        mask = np.zeros(260, bool)
        mask[[17, 200]] = True
        assert model.sample_batch([session], [SamplingParams()], masks=[mask])[0] in (17, 200)
        assert session.n_drawn == 2


def test_fresh_sessions_have_seeds_of_their_own(model: LanguageModel) -> None:
    with model.new_session() as a, model.new_session() as b, model.new_session(seed=5) as c:
        assert a.seed != b.seed and c.seed == 5


def test_profile_counts_the_work_alone(model: LanguageModel) -> None:
    model.logits(TEXT[:100])
    times = model.profile(lambda: model.logits(TEXT[:3]))
    assert all(seconds >= 0 for seconds in times.values())
    assert {kind.lower() for kind, ns in times.items() if ns > 0} >= {"matmul"}
    assert sum(times.values()) < 1e9


def test_close_gives_everything_back() -> None:
    model = load_model(TINY / "llama.gguf", backend="numpy")
    with model.new_session() as session:
        model.eval(session, TEXT[:40])
    model.close()
    assert model.file.tensors == {}


def test_sessions_of_another_shape_are_refused_before_a_kernel_sees_them(model: LanguageModel) -> None:
    spec = model.kv_spec
    other = KVSpec(spec.layers + 1, spec.kv_heads, spec.head_size, spec.dtype)
    halved = KVSpec(spec.layers, spec.kv_heads, spec.head_size, "float16")
    with (
        Session(spec=other, n_ctx=32) as foreign,
        Session(spec=halved, n_ctx=32) as narrow,
        Session(spec=spec, n_ctx=model.n_ctx + 16) as long,
        model.new_session(seed=0) as own,
    ):
        for session in (foreign, narrow, long):
            with pytest.raises(SessionError):
                model.eval(session, [1, 2])
            with pytest.raises(SessionError):
                model.eval_batch([own, session], [1, 2])
            assert session.n_past == own.n_past == 0


@pytest.mark.parametrize("page_rows", [1, 8, 24])
def test_pages_must_suit_the_kernels(model: LanguageModel, page_rows: int) -> None:
    with pytest.raises(BadRequestValueError, match="multiple of 16"):
        model.new_pool(capacity_pages=4, page_rows=page_rows)
    with (
        Session(spec=model.kv_spec, n_ctx=24, page_rows=page_rows) as session,
        pytest.raises(BadRequestValueError, match="multiple of 16"),
    ):
        model.eval(session, [1, 2])


@pytest.mark.parametrize("tokens", [[1.5], "12", [None], [float("nan")]])
def test_tokens_must_be_whole_numbers(model: LanguageModel, tokens: Sequence[int]) -> None:
    with model.new_session(seed=0) as session, pytest.raises(BadRequestValueError, match="whole numbers"):
        model.eval(session, tokens)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=float("nan")),
        SamplingParams(temperature=1e300),
        SamplingParams(temperature=1.0, top_p=0.0),
        SamplingParams(repetition_penalty=0.0),
        SamplingParams(presence_penalty=1e300),
        SamplingParams(logit_bias=((10**9, 1.0),)),
    ],
)
def test_sampling_without_a_scheduler_refuses_what_it_would_refuse(
    model: LanguageModel, params: SamplingParams
) -> None:
    with model.new_session(seed=0) as session:
        model.eval(session, [1, 2, 3])
        with pytest.raises(BadRequestValueError):
            sample(session, params)
        assert session.n_drawn == 0


def test_the_coldest_temperatures_are_greedy(model: LanguageModel) -> None:
    with model.new_session(seed=0) as session:
        model.eval(session, [1, 2, 3])
        assert session.logits is not None
        best = int(session.logits.argmax())
        assert [sample(session, SamplingParams(temperature=t)) for t in (1e-5, 1e-20, 1e-44, 1e-300)] == [best] * 4


def test_a_mask_that_allows_nothing_is_an_error(model: LanguageModel) -> None:
    with model.new_session(seed=0) as session:
        model.eval(session, [1, 2, 3])
        for mask in (np.zeros(model.n_vocab, bool), np.ones(3, bool)):
            with pytest.raises(BadRequestValueError):
                model.sample_batch([session], [SamplingParams()], masks=[mask])


@pytest.mark.parametrize("options", [{"threads": 0}, {"n_ctx": 0}, {"n_ctx": -5}, {"kv_dtype": "float8"}])
def test_options_out_of_range_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(BadRequestValueError):
        load_model(TINY / "llama.gguf", **options)


def test_logits_that_are_no_numbers_are_an_error(model: LanguageModel) -> None:
    with model.new_session(seed=0) as session:
        model.eval(session, [1, 2, 3])
        assert session.logits is not None
        session.logits[5:] = np.nan
        assert sample(session, SamplingParams()) < 5
        session.logits[:] = np.nan
        for temperature in (0.0, 1.0):
            with pytest.raises(ModelFileError, match="no numbers"):
                sample(session, SamplingParams(temperature=temperature))
