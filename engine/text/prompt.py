"""From a rendered template to token ids: control tokens from the template alone, past replies by their exact ids."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

from engine.port import Span, Turn
from engine.text.detokenizer import Detokenizer
from engine.text.marked import TEMPLATE
from engine.text.matcher import BLANKS
from engine.text.template import Segment
from engine.text.thinking import MARKER_NAMES
from engine.text.tokenizer import Tokenizer

EncodeRun = Callable[[str, bool], Sequence[int]]


@dataclass(frozen=True, slots=True)
class _Exact:
    """Characters [start, end) of the prompt that stand for these ids of turn ``turn``."""

    start: int
    end: int
    turn: int
    ids: tuple[int, ...]


@dataclass(slots=True)
class _Builder:
    """Collects ids and whose they are; text waits in ``run`` until a token or exact ids end it."""

    tokenizer: Tokenizer
    encode_run: EncodeRun
    after_special: bool
    ids: list[int] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    run: list[tuple[str, int]] = field(default_factory=list)

    def text(self, text: str, turn: int) -> None:
        if text:
            self.run.append((text, turn))

    def token(self, token: int, turn: int) -> None:
        self.end_run()
        self.add((token,), turn)
        self.after_special = True

    def exact(self, ids: Sequence[int], turn: int) -> None:
        self.end_run()
        self.add(ids, turn)
        self.after_special = False

    def end_run(self) -> None:
        """Tokenize the waiting text as one, and give each token to the message that has a byte of it."""
        run, self.run = self.run, []
        if self.after_special and self.ids and self.tokenizer.strips_after(self.ids[-1]):
            run = _without_leading_blanks(run)
        if not run:
            return
        found = self.encode_run("".join(text for text, _ in run), self.after_special)
        done = 0
        for first, last, turn in self._messages_in(found, run) if len(run) > 1 else [(0, len(found), run[0][1])]:
            self.add(found[done:first], TEMPLATE)
            self.add(found[first:last], turn)
            done = last
        self.add(found[done:], TEMPLATE)
        self.after_special = False

    def add(self, ids: Sequence[int], turn: int) -> None:
        """Append ids, but for those that stand for a byte without a token."""
        if ids and max(ids) >= self.tokenizer.n_vocab:
            ids = [token for token in ids if token < self.tokenizer.n_vocab]
        if not ids:
            return
        start = len(self.ids)
        if self.spans and self.spans[-1].turn == turn:
            start = self.spans.pop().start
        self.ids += ids
        self.spans.append(Span(start, len(self.ids), turn))

    def _messages_in(self, found: Sequence[int], run: list[tuple[str, int]]) -> Iterator[tuple[int, int, int]]:
        """(first, last, turn) of the tokens with a byte of each message; the first message that has one gets it."""
        lengths = map(self.tokenizer.n_bytes, found)
        borders = list(accumulate(lengths, initial=-1 if self.after_special and self.tokenizer.add_space_prefix else 0))
        position = done = 0
        for text, turn in run:
            end = position + len(text.encode())
            if turn != TEMPLATE:
                first = max(done, bisect_right(borders, position) - 1)
                done = max(first, bisect_left(borders, end))
                yield first, done, turn
            position = end


def assemble(
    tokenizer: Tokenizer,
    segments: Sequence[Segment],
    turns: Sequence[Turn],
    encode_run: EncodeRun,
    *,
    after_reply: bool = False,
) -> tuple[list[int], list[Span]]:
    """Ids of a rendered prompt, and spans that cover them and say whose they are (-1: the template's).

    ``after_reply``: the segments follow a reply's exact ids, so no sequence begins with them. Errors:
    ``TokenizerError`` for lone surrogates.
    """
    builder = _Builder(tokenizer, encode_run, not after_reply)
    if tokenizer.add_bos and not after_reply and not _begins_with_bos(tokenizer, segments):
        builder.add(tokenizer.with_bos([]), TEMPLATE)
    exact = _exact_regions(tokenizer, segments, turns)
    position = 0
    for text, turn, _ in segments:
        end = position + len(text)
        while position < end:
            region = exact[0] if exact else None
            if region is None or region.start >= end:
                _plain(builder, text[position - end :], turn, turns)
                break
            if position < region.start:
                _plain(builder, text[position - end : region.start - end], turn, turns)
                position = region.start
                continue
            if position == region.start:
                builder.exact(region.ids, region.turn)
            if region.end > end:
                break
            position = region.end
            exact.pop(0)
        position = end
    builder.end_run()
    return builder.ids, builder.spans


def _begins_with_bos(tokenizer: Tokenizer, segments: Sequence[Segment]) -> bool:
    """Whether the template writes the beginning-of-sequence token itself."""
    first = next((text for text, turn, _ in segments[:1] if turn == TEMPLATE), "")
    return tokenizer.control_matcher.split(first)[:1] == [tokenizer.bos_id]


def ids_fit(tokenizer: Tokenizer, turn: Turn) -> bool:
    """Whether ``turn.ids`` give its text, or all of it but the end that a stop string cut off within a token.

    They do not if someone edited the text, or if another model wrote it.
    """
    ids = turn.ids or ()
    if ids and not 0 <= min(ids) <= max(ids) < tokenizer.n_vocab:
        return False
    return turn.text.startswith(Detokenizer(tokenizer).decode(ids))


def _plain(builder: _Builder, text: str, turn: int, turns: Sequence[Turn]) -> None:
    """Text of the template (control tokens count) or of a message (they do not, but for a reply's own markers)."""
    tokenizer = builder.tokenizer
    if turn != TEMPLATE and turns[turn].role != "assistant":
        builder.text(text, turn)
        return
    for piece in tokenizer.control_matcher.split(text):
        if isinstance(piece, str):
            builder.text(piece, turn)
        elif turn == TEMPLATE or tokenizer.vocabulary.tokens[piece] in MARKER_NAMES:
            builder.token(piece, turn)
        else:
            builder.text(tokenizer.vocabulary.tokens[piece], turn)


def _exact_regions(tokenizer: Tokenizer, segments: Sequence[Segment], turns: Sequence[Turn]) -> list[_Exact]:
    """Where replies whose ids are known stand in the prompt, as far as the template kept their text."""
    prompt = "".join(text for text, _, _ in segments)
    regions: list[_Exact] = []
    seen: set[int] = set()
    position = done = 0
    for text, turn, offset in segments:
        if turn != TEMPLATE and turn not in seen and offset >= 0:
            seen.add(turn)
            start = position - offset
            if turns[turn].ids and start >= done:
                region = _region(tokenizer, prompt, start, offset, turn, turns[turn])
                if region:
                    regions.append(region)
                    done = region.end
        position += len(text)
        if turn != TEMPLATE:
            done = max(done, position)
    return regions


def _region(tokenizer: Tokenizer, prompt: str, start: int, offset: int, turn: int, said: Turn) -> _Exact | None:
    """The ids of ``said`` that still stand for the text at ``start``; None where its beginning was changed."""
    assert said.ids is not None
    if prompt.startswith(said.text, start):
        return _Exact(start, start + len(said.text), turn, said.ids)
    text = Detokenizer(tokenizer).decode(said.ids)
    kept = _common_prefix(prompt, start, text)
    if kept <= offset or "\ufffd" in text:  # bytes that are no text cannot be counted in it
        return None
    limit = len(text[:kept].encode())
    sizes = list(accumulate(len(tokenizer.token_bytes(token)) for token in said.ids))
    count = sum(size <= limit for size in sizes)
    # The kept ids must end where a character ends, so that the rest can be tokenized as text.
    while count and not _ends_character(text, sizes[count - 1]):
        count -= 1
    if not count:
        return None
    return _Exact(start, start + len(text.encode()[: sizes[count - 1]].decode()), turn, said.ids[:count])


def _ends_character(text: str, size: int) -> bool:
    encoded = text.encode()
    return size == len(encoded) or encoded[size] & 0xC0 != 0x80


def _common_prefix(prompt: str, start: int, text: str) -> int:
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        if prompt.startswith(text[:middle], start):
            low = middle
        else:
            high = middle - 1
    return low


def _without_leading_blanks(run: list[tuple[str, int]]) -> list[tuple[str, int]]:
    kept: list[tuple[str, int]] = []
    for text, turn in run:
        text = text if kept else text.lstrip(BLANKS)
        if text:
            kept.append((text, turn))
    return kept
