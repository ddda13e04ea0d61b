"""A language model in a few lines, for tests that need the engine but no weights.

``FakeEvaluator`` keeps its history where a real model keeps K and V: in the pool's pages. Before it goes on from a
page it reads the page back, so that a page that was shared wrongly, written while shared or freed too early is noticed
as soon as it is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from engine.cache.pool import KVSpec
from engine.cache.session import Session, reserve_all
from engine.port import ModelInfo, Span, Turn
from engine.scheduling.request import Request, SamplingParams

SPEC = KVSpec(layers=1, kv_heads=1, head_size=4, dtype="float16")  # 16 bytes a row: two int64


def next_hash(before: int, token: int) -> int:
    """The state after ``token``: any change of history changes all that follows."""
    return (before * 6364136223846793005 + token + 1442695040888963407) % (1 << 63)


def next_token(state: int, n_vocab: int, low: int = 0) -> int:
    """The token that follows a state: one of ``low`` to ``n_vocab`` - 1."""
    return low + (state >> 20) % (n_vocab - low)


def reply(prompt: Sequence[int], n: int, n_vocab: int, low: int = 0) -> list[int]:
    """The first ``n`` tokens that ``FakeEvaluator`` generates for a prompt, stop tokens included."""
    state, tokens = 0, []
    for token in prompt:
        state = next_hash(state, token)
    for _ in range(n):
        tokens.append(next_token(state, n_vocab, low))
        state = next_hash(state, tokens[-1])
    return tokens


class WrongPageError(AssertionError):
    """A page in a block table does not hold the history that it stands for."""


class FakeEvaluator:
    """A deterministic model: the next token is a hash of the whole history, at least ``low``. ``on_call``, if set, is
    called with the name of the method and the sessions before each call, and may raise."""

    kv_spec = SPEC

    def __init__(self, *, n_ctx: int = 64, n_vocab: int = 50, low: int = 0, shared_rows: int = 0) -> None:
        self.n_ctx = n_ctx
        self.n_vocab = n_vocab
        self.low = low
        self.shared_rows = shared_rows
        self.on_call: Callable[[str, Sequence[Session]], None] | None = None
        self.prompt_tokens = 0
        self.generated_rows = 0
        self.passes_shared = 0

    def eval(self, session: Session, tokens: Sequence[int], *, logits: bool = True) -> None:
        """Read prompt tokens."""
        self._called("eval", [session])
        session.reserve(len(tokens))
        self._write(session, tokens)
        self.prompt_tokens += len(tokens)
        session.logits = self._logits(session) if logits else None

    def eval_batch(self, sessions: Sequence[Session], tokens: Sequence[int]) -> None:
        """One token of each session."""
        self._called("eval_batch", sessions)
        reserve_all(sessions)
        for session, token in zip(sessions, tokens, strict=True):
            self._write(session, [token])
            session.logits = self._logits(session)
        self.generated_rows += len(sessions)

    def eval_together(
        self, sessions: Sequence[Session], tokens: Sequence[int], reader: Session, part: Sequence[int], *, logits: bool
    ) -> None:
        """One token of each session and some of the reader's prompt."""
        self._called("eval_together", [*sessions, reader])
        assert part and len(sessions) + len(part) <= self.shared_rows
        reader.reserve(len(part))
        reserve_all(sessions)
        self._write(reader, part)
        reader.logits = self._logits(reader) if logits else None
        for session, token in zip(sessions, tokens, strict=True):
            self._write(session, [token])
            session.logits = self._logits(session)
        self.prompt_tokens += len(part)
        self.generated_rows += len(sessions)
        self.passes_shared += 1

    def sample_batch(
        self,
        sessions: Sequence[Session],
        params: Sequence[SamplingParams],
        *,
        masks: Sequence[np.ndarray | None] | None = None,
    ) -> list[int]:
        """Greedy within the masks."""
        self._called("sample_batch", sessions)
        chosen = []
        for i, session in enumerate(sessions):
            logits = session.logits
            assert logits is not None, "sampled before logits were wanted"
            mask = None if masks is None else masks[i]
            chosen.append(int(np.argmax(logits if mask is None else np.where(mask, logits, -np.inf))))
            session.n_drawn += 1
        return chosen

    def _called(self, name: str, sessions: Sequence[Session]) -> None:
        if self.on_call is not None:
            self.on_call(name, sessions)

    def _rows(self, session: Session, page: int) -> np.ndarray:
        return session.pool.memory[page].view(np.int64).reshape(session.pool.page_rows, 2)

    def _write(self, session: Session, tokens: Sequence[int]) -> None:
        state, rows = self._verified_state(session), session.pool.page_rows
        for position, token in enumerate(tokens, start=session.n_past):
            page = int(session.block_table[position // rows])
            if session.pool.refs[page] != 1:
                raise WrongPageError(f"page {page} is written while {session.pool.refs[page]} share it")
            state = next_hash(state, token)
            self._rows(session, page)[position % rows] = (token, state)
        session.advance(list(tokens))

    def _verified_state(self, session: Session) -> int:
        """The state after the session's tokens, as its pages tell it."""
        state, rows = 0, session.pool.page_rows
        for position, token in enumerate(session.tokens):
            state = next_hash(state, token)
            found = self._rows(session, int(session.block_table[position // rows]))[position % rows]
            if tuple(found) != (token, state):
                raise WrongPageError(f"position {position} should hold token {token}, its page holds {tuple(found)}")
        if len(session.tokens) != session.n_past:
            raise WrongPageError(f"{len(session.tokens)} tokens, but n_past is {session.n_past}")
        return state

    def _logits(self, session: Session) -> np.ndarray:
        state = self._verified_state(session)
        logits = np.zeros(self.n_vocab, dtype=np.float32)
        logits[next_token(state, self.n_vocab, self.low)] = 4.0
        logits[(state >> 40) % self.n_vocab] += 2.0
        return logits


class FakeText:
    """Every token is the text ``<token>``; ``stop_strings`` may name one such token, which is not shown."""

    def __init__(self, request: Request) -> None:
        self._stops = set(request.stop_strings)
        self.n_kept = 0
        self._stopped = False

    def push(self, token: int) -> tuple[str, bool]:
        """The token's text, unless it is a stop string."""
        if f"<{token}>" in self._stops:
            self._stopped = True
            return "", True
        self.n_kept += 1
        return f"<{token}>", False

    def flush(self) -> str:
        """Nothing is held back."""
        return ""


START, END, NEWLINE = 1, 2, 10
"""Control tokens of ``FakeRenderer``: before a role, after a turn, after that."""


class FakeTokenizer:
    """One token for each ASCII character, its code; control tokens are shown as ``«1»`` where they are wanted."""

    def encode(self, text: str) -> list[int]:
        """Codes of the characters."""
        return [ord(char) % 128 for char in text]

    def decode(self, ids: Iterable[int], *, special: bool = False) -> str:
        """Text of the codes."""
        return "".join(chr(i) if i >= 32 or i == NEWLINE else f"«{i}»" if special else "" for i in ids)


@dataclass(frozen=True)
class FakeRendered:
    """What ``FakeRenderer`` makes of a conversation."""

    ids: tuple[int, ...]
    spans: tuple[Span, ...]
    rewritten_at: int | None = None
    used_fallback: bool = False
    template_us: int = 1
    tokenize_us: int = 2
    reasoning_open: bool = False
    stop_strings: tuple[str, ...] = ()


class FakeRenderer:
    """START role NEWLINE text END NEWLINE for each turn, then the start of the reply."""

    stop_ids = frozenset({END})

    def __init__(self) -> None:
        self.tokenizer = FakeTokenizer()
        self.before_render: Callable[[], None] = lambda: None

    def render_prompt(self, turns: Sequence[Turn], *, resume: bool = False, fallback: bool = False) -> FakeRendered:
        """The prompt for the next reply, or with ``resume`` for going on with the last turn."""
        self.before_render()
        ids: list[int] = []
        spans = []
        for i, turn in enumerate(turns):
            ids += [START, *self.tokenizer.encode(turn.role), NEWLINE]
            start = len(ids)
            ids += self.tokenizer.encode(turn.text) if turn.ids is None else turn.ids
            spans.append(Span(start, len(ids), i))
            ids += self.render_close()
        if resume:
            del ids[-2:]
        else:
            ids += [START, *self.tokenizer.encode("assistant"), NEWLINE]
        return FakeRendered(tuple(ids), tuple(spans), used_fallback=fallback)

    def render_close(self, *, fallback: bool = False) -> tuple[int, ...]:
        """What follows a reply."""
        return (END, NEWLINE)


class FakeTextStream(FakeText):
    """Tokens as ``FakeTokenizer`` shows them."""

    def push(self, token: int) -> tuple[str, bool]:
        """The character."""
        super().push(token)
        return FakeTokenizer().decode([token]), False


class FakeBundle:
    """A loaded model for an ``EngineLoop``: ``FakeEvaluator`` with text around it. It writes printable characters, and
    with ``stops`` control tokens too, so that some replies end by themselves."""

    def __init__(
        self,
        path: str = "/models/fake.gguf",
        *,
        n_ctx: int = 512,
        capacity_pages: int = 64,
        stops: bool = False,
    ) -> None:
        self.evaluator = FakeEvaluator(n_ctx=n_ctx, n_vocab=128, low=0 if stops else 32)
        self.renderer = FakeRenderer()
        self.tokenizer = self.renderer.tokenizer
        self.threads = 2
        self.closed = False
        self.info = ModelInfo(
            path=path,
            name="Fake 135M",
            architecture="fake",
            parameters=135_000_000,
            n_ctx=n_ctx,
            n_ctx_train=n_ctx,
            n_vocab=128,
            page_rows=16,
            page_bytes=SPEC.page_bytes(16),
            capacity_pages=capacity_pages,
            weights_bytes=1 << 20,
            kv_bytes_per_token=SPEC.row_bytes,
            max_streams=8,
            threads=2,
        )

    def text_stream(self, request: Request) -> FakeTextStream:
        """The text side of one reply."""
        return FakeTextStream(request)

    def encode_prompt(self, text: str) -> list[int]:
        """Codes of the characters."""
        return self.tokenizer.encode(text)

    def embed(self, tokens: Sequence[int]) -> Iterator[np.ndarray]:
        """Two numbers that depend on the tokens read so far, after each two of them."""
        for stop in [*range(2, len(tokens), 2), len(tokens)]:
            yield np.array([stop, sum(tokens[:stop])], dtype=np.float32)

    def set_threads(self, threads: int) -> None:
        """Remembered only."""
        self.threads = threads

    def close(self) -> None:
        """Remembered only."""
        self.closed = True
