"""LanguageModel: a loaded model that evaluates the rows of sessions and samples from their logits.

``eval`` is the prompt lane, ``eval_batch`` the generated lane (one row of each session, one pass over the weights);
``eval_together`` does both in one pass where they share their arithmetic.
All of a model's calls belong on one thread.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from operator import index
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from engine.cache.pool import KVPool, KVSpec
from engine.cache.session import Session, reserve_all
from engine.errors import BadRequestValueError, EmptyPromptError, SessionError
from engine.gguf import GGUFFile, open_gguf
from engine.kernels.ops import Program
from engine.model import registry
from engine.model.checks import PAGE_ROWS, check_options, check_page_rows, check_session
from engine.model.config import ModelConfig
from engine.model.describe import MAX_ROWS, choose_context, describe, describe_file, tensor_types
from engine.model.executor import Backend, Executor, KVDtype, Told, make_executor
from engine.model.passes import Passes
from engine.model.sampling import sample_sessions
from engine.scheduling.request import SamplingParams
from engine.text.tokenizer import Tokenizer

if TYPE_CHECKING:
    from engine.text.chat import ChatRenderer

Lane = Literal["prompt", "generated", "exact"]

__all__ = ["LanguageModel", "describe", "eval", "eval_batch", "load_model", "sample"]

_SCORE_ROWS = 32
_FLAT_SESSIONS = 64


class LanguageModel:
    """A model ready to compute; a context manager. Get one from ``load_model``.

    What a scheduler needs of it is ``engine.scheduling.evaluator.Evaluator``.
    """

    def __init__(
        self, file: GGUFFile, config: ModelConfig, program: Program, executor: Executor, *, kv_dtype: str, exact: bool
    ) -> None:
        self.file = file
        self.config = config
        self.program = program
        self.executor = executor
        self.exact = exact
        self.n_ctx = program.n_ctx
        self.n_vocab = program.n_vocab
        self.kv_spec = KVSpec(program.n_layers, program.kv_heads, program.head_size, kv_dtype)
        self._width = program.hidden.width
        self._passes = Passes(executor)
        self._flat_pool: KVPool | None = None
        self._renderer: ChatRenderer | None = None

    def new_pool(self, *, capacity_pages: int | None = None, page_rows: int = PAGE_ROWS) -> KVPool:
        """A pool for this model's sessions; None takes the default budget."""
        check_page_rows(page_rows)
        capacity = capacity_pages or self.kv_spec.default_capacity(page_rows)
        return KVPool(self.kv_spec, capacity_pages=capacity, page_rows=page_rows)

    def new_session(self, pool: KVPool | None = None, *, seed: int | None = None) -> Session:
        """A session over ``pool``, or over memory that the model keeps for sessions without one.

        ``seed`` None takes a fresh random one (``session.seed``).
        """
        seed = secrets.randbits(63) if seed is None else seed
        return Session(pool or self._own_pool(), n_ctx=self.n_ctx, seed=seed)

    def _own_pool(self) -> KVPool:
        """One pool for all sessions without a pool, so that they can share a step; committed as it is written."""
        if self._flat_pool is None:
            from engine.cache.memory import free_memory

            whole = -(-self.n_ctx // PAGE_ROWS)
            affordable = free_memory() // 2 // self.kv_spec.page_bytes(PAGE_ROWS)
            self._flat_pool = self.new_pool(capacity_pages=max(whole, min(_FLAT_SESSIONS * whole, affordable)))
        return self._flat_pool

    def eval(self, session: Session, tokens: Sequence[int], *, logits: bool = True, lane: Lane = "prompt") -> None:
        """Evaluate ``tokens`` after what the session holds, in chunks of at most ``MAX_ROWS`` rows.

        Pages for all of them are reserved first, or ``PoolExhaustedError`` is raised and nothing changes. Afterwards
        ``session.logits`` are those after the last token (None with ``logits`` False, which saves their product).
        """
        ids = self._checked(tokens)
        if not ids:
            raise EmptyPromptError("There are no tokens to evaluate; give at least one.")
        check_session(session, self.kv_spec, self.n_ctx)
        session.reserve(len(ids))
        row = self._logits_of(session) if logits else None
        for start in range(0, len(ids), MAX_ROWS):
            chunk = ids[start : start + MAX_ROWS]
            at_end = row is not None and start + len(chunk) == len(ids)
            self._read(session, chunk, lane, [row] if row is not None and at_end else [])
        session.logits = row

    def eval_batch(self, sessions: Sequence[Session], tokens: Sequence[int]) -> None:
        """Advance every session by one generated token, all in one pass over the weights.

        Pages are reserved for all sessions or for none (``PoolExhaustedError``). Each session's ``logits`` are written
        in place.
        """
        if len(sessions) != len(tokens):
            raise SessionError(f"A batch of {len(sessions)} sessions needs as many tokens, not {len(tokens)}.")
        ids = self._checked(tokens)
        for session in sessions:
            check_session(session, self.kv_spec, self.n_ctx)
        reserve_all(sessions)
        rows = [self._logits_of(session) for session in sessions]
        groups: dict[int, list[int]] = {}
        for i, session in enumerate(sessions):
            groups.setdefault(id(session.pool), []).append(i)
        for group in groups.values():
            for start in range(0, len(group), MAX_ROWS):
                part = group[start : start + MAX_ROWS]
                self._passes.run([sessions[i] for i in part], [ids[i] for i in part], logits=[rows[i] for i in part])
        for session, token, row in zip(sessions, ids, rows, strict=True):
            session.advance((token,))
            session.logits = row

    @property
    def shared_rows(self) -> int:
        """How many rows prompts and generated tokens may have together in one pass (see ``eval_together``); 0 where
        prompts use another arithmetic."""
        return MAX_ROWS if self.exact or getattr(self.executor, "tiles", None) is None else 0

    def eval_together(
        self, sessions: Sequence[Session], tokens: Sequence[int], reader: Session, part: Sequence[int], *, logits: bool
    ) -> None:
        """``eval_batch`` of ``sessions`` and ``eval`` of ``part`` in one pass over the weights, at most ``shared_rows``
        rows; each row has the bits that it has apart. All sessions share a pool. On an error none has advanced."""
        ids, read = self._checked(tokens), self._checked(part)
        everyone = [*sessions, reader]
        for session in everyone:
            check_session(session, self.kv_spec, self.n_ctx)
        if not read or len(ids) != len(sessions) or len(ids) + len(read) > self.shared_rows:
            raise BadRequestValueError(
                f"One pass takes a token of each session and 1 to {self.shared_rows - len(sessions)} of the prompt.",
                field="tokens",
            )
        if any(session is reader or session.pool is not reader.pool for session in sessions):
            raise SessionError("One pass takes sessions of one pool, and the reader only once.")
        reader.reserve(len(read))
        reserve_all(sessions)
        rows = [self._logits_of(session) for session in (everyone if logits else sessions)]
        self._passes.run(sessions, ids, reader, read, logits=rows, last=int(logits))
        for session, token, row in zip(sessions, ids, rows, strict=False):
            session.advance((token,))
            session.logits = row
        reader.advance(read)
        reader.logits = rows[-1] if logits else None

    def _read(
        self,
        session: Session,
        tokens: list[int],
        lane: Lane,
        logits: Sequence[np.ndarray],
        hidden: np.ndarray | None = None,
    ) -> None:
        """Consecutive rows of one session, pages reserved already; advances it. ``logits`` of the last ones, or their
        ``hidden`` states."""
        generated = self.exact or lane != "prompt"
        self._passes.run(
            (),
            (),
            session,
            tokens,
            logits=logits,
            last=len(logits) if hidden is None else len(hidden),
            hidden=hidden,
            lane="generated" if generated else "prompt",
        )
        session.advance(tokens)

    def _logits_of(self, session: Session) -> np.ndarray:
        """The session's logits array, float32[n_vocab], made at first use."""
        return np.empty(self.n_vocab, np.float32) if session.logits is None else session.logits

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        try:
            ids = [index(token) for token in tokens]
        except TypeError as error:
            raise BadRequestValueError("Tokens are whole numbers: give a list of token ids.", field="tokens") from error
        if ids and not (min(ids) >= 0 and max(ids) < self.n_vocab):
            raise BadRequestValueError(f"Token ids of this model lie between 0 and {self.n_vocab - 1}.", field="tokens")
        return ids

    def sample_batch(
        self,
        sessions: Sequence[Session],
        params: Sequence[SamplingParams],
        *,
        masks: Sequence[np.ndarray | None] | None = None,
    ) -> list[int]:
        """The next token of each session. ``masks`` bool[n_vocab], where given, limit the choice.

        Draw ``session.n_drawn`` of ``session.seed`` decides, so a stream can be replayed; ``n_drawn`` goes up by one.
        Errors: SessionError, BadRequestValueError.
        """
        return sample_sessions(self.executor.sample, sessions, params, masks)

    def logits(self, tokens: Sequence[int], *, lane: Lane = "prompt") -> np.ndarray:
        """The logits after ``tokens`` in a fresh session, float32[n_vocab], with the arithmetic of ``lane``."""
        with self.new_session(seed=0) as session:
            self.eval(session, tokens, lane=lane)
            assert session.logits is not None
            return session.logits

    def score(self, tokens: Sequence[int], *, lane: Lane = "prompt") -> np.ndarray:
        """Negative log-likelihood of each token after the first, nats, float64[len(tokens) - 1]."""
        ids = self._checked(tokens)
        rows = [np.empty(self.n_vocab, np.float32) for _ in range(_SCORE_ROWS)]
        nll = np.empty(max(0, len(ids) - 1))
        with self._reading(ids) as session:
            for start in range(0, len(nll), _SCORE_ROWS):
                chunk = ids[start : min(start + _SCORE_ROWS, len(nll))]
                n = len(chunk)
                self._read(session, chunk, lane, rows[:n])
                for i in range(n):
                    nll[start + i] = _surprise(rows[i], ids[start + i + 1])
        return nll

    def hidden(self, tokens: Sequence[int]) -> np.ndarray:
        """Mean of the final normed states over ``tokens``, float32[n_embd]: an embedding of the text."""
        *_, states = self.hidden_steps(tokens)
        return states.mean(axis=0)

    def hidden_steps(self, tokens: Sequence[int], chunk: int = MAX_ROWS) -> Iterator[np.ndarray]:
        """The final normed states as far as they are known after each ``chunk`` tokens, float32[n, n_embd].

        Others may compute between two steps; closing the iterator gives the session's pages back.
        """
        ids = self._checked(tokens)
        states = np.empty((len(ids), self._width), np.float32)
        with self._reading(ids) as session:
            for start in range(0, len(ids), chunk):
                part = ids[start : start + chunk]
                stop = start + len(part)
                self._read(session, part, "prompt", [], states[start:stop])
                yield states[:stop]

    def _reading(self, tokens: list[int]) -> Session:
        """A fresh session with room reserved for ``tokens``."""
        if not tokens:
            raise EmptyPromptError("There are no tokens to evaluate; give at least one.")
        session = self.new_session(seed=0)
        try:
            session.reserve(len(tokens))
        except BaseException:
            session.release()
            raise
        return session

    @property
    def threads(self) -> int:
        """How many threads compute."""
        return self.executor.threads

    def set_threads(self, threads: int) -> None:
        """Change how many threads compute; results do not change."""
        check_options(threads=threads)
        self.executor.set_threads(threads)

    def profile(self, work: Callable[[], object]) -> dict[str, float]:
        """Do ``work`` and say where the time of its steps went: nanoseconds by kind, summed over threads."""
        self.executor.profile(True)
        try:
            work()
            return {kind: seconds * 1e9 for kind, seconds in self.executor.times().items()}
        finally:
            self.executor.profile(False)

    @cached_property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer, built from the file at first use."""
        return Tokenizer.from_metadata(self.file.metadata)

    def renderer(self) -> ChatRenderer:
        """The renderer of this model's chat template; it ends with the model."""
        from engine.text.chat import ChatRenderer

        if self._renderer is None:
            self._renderer = ChatRenderer.from_metadata(self.tokenizer, self.file.metadata)
        return self._renderer

    def encode_prompt(self, text: str) -> list[int]:
        """Ids of plain ``text``, with a beginning-of-sequence token where the model wants one."""
        return self.tokenizer.with_bos(self.tokenizer.encode(text))

    def info(self) -> dict[str, Any]:
        """What the model is and what it needs, as ``info`` prints it."""
        return describe_file(self.file, self.config, self.program, kv_dtype=self.kv_spec.dtype)

    def close(self) -> None:
        """Give weights, memory, threads and processes back. Raises ``PoolBorrowedError``, when all else is done, if a
        session without a pool was not released."""
        self.executor.close()
        if self._renderer is not None:
            self._renderer.close()
        self.file.close()
        if self._flat_pool is not None:
            self._flat_pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load_model(
    path: str | os.PathLike[str],
    *,
    n_ctx: int | None = None,
    threads: int | None = None,
    kv_dtype: KVDtype = "float16",
    backend: Backend = "compiled",
    progress: Callable[[float], None] | None = None,
    compiling: Callable[[float, str], None] | None = None,
    cancel: Callable[[], bool] | None = None,
    exact: bool = False,
) -> LanguageModel:
    """Open a GGUF file and make it ready to compute.

    ``n_ctx`` None takes min(the model's, 8,192) tokens of context; more than the model's own is cut to that.
    ``threads`` None takes all cores. ``exact`` runs prompts in the generated lane too, so that all results are equal
    bit for bit. ``compiling`` hears of kernels that have to be compiled first (0..1 and a phrase), ``progress`` of the
    weights (0..1); when ``cancel`` returns True, ``CancelledError`` ends the load. ``backend`` "numpy" is the slow
    oracle. Errors: BadRequestValueError, ModelFileError, UnsupportedModelError, ModelMemoryError.
    """
    check_options(threads=threads, n_ctx=n_ctx, kv_dtype=kv_dtype)
    file = open_gguf(path)
    try:
        config = registry.read(file.metadata, file.tensors)
        program = registry.build(config, file.tensors, choose_context(config, n_ctx))
        executor = make_executor(
            program,
            tensor_types(file),
            kv_dtype=kv_dtype,
            threads=threads,
            backend=backend,
            told=Told(compiling, progress, cancel),
        )
        file.advise_dontneed()
        return LanguageModel(file, config, program, executor, kv_dtype=kv_dtype, exact=exact)
    except BaseException:
        file.close()
        raise


def eval(model: LanguageModel, session: Session, tokens: Sequence[int]) -> None:
    """Evaluate prompt tokens: ``LanguageModel.eval``."""
    model.eval(session, tokens)


def eval_batch(model: LanguageModel, sessions: Sequence[Session], tokens: Sequence[int]) -> None:
    """One decode step for all sessions in one pass over the weights: ``LanguageModel.eval_batch``."""
    model.eval_batch(sessions, tokens)


def sample(session: Session, params: SamplingParams) -> int:
    """The next token of one session, from its logits and its own draws."""
    from engine.kernels.sampling import sample_rows

    return sample_sessions(sample_rows, [session], [params])[0]


def _surprise(logits: np.ndarray, token: int) -> float:
    """-log softmax(logits)[token], in float64."""
    high = float(logits.max())
    return high + float(np.log(np.exp(logits - np.float32(high), dtype=np.float64).sum())) - float(logits[token])
