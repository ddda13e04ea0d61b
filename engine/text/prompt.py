"""From a rendered template to token ids: control tokens from the template alone, past replies by their exact ids."""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
    """Collects ids with the turn of each; text waits in ``run`` until a token or exact ids end it."""

    tokenizer: Tokenizer
    encode_run: EncodeRun
    ids: list[int] = field(default_factory=list)
    owners: list[int] = field(default_factory=list)
    run: list[tuple[str, int]] = field(default_factory=list)
    after_special: bool = True

    def text(self, text: str, turn: int) -> None:
        if text:
            self.run.append((text, turn))

    def token(self, token: int, turn: int) -> None:
        self.end_run()
        self.ids.append(token)
        self.owners.append(turn)
        self.after_special = True

    def exact(self, ids: Sequence[int], turn: int) -> None:
        self.end_run()
        self.ids += ids
        self.owners += [turn] * len(ids)
        self.after_special = False

    def end_run(self) -> None:
        """Tokenize the waiting text as one, and give each token to the message that has a byte of it."""
        run, self.run = self.run, []
        if self.after_special and self.ids and self.tokenizer.strips_after(self.ids[-1]):
            run = _without_leading_blanks(run)
        if not run:
            return
        found = self.encode_run("".join(text for text, _ in run), self.after_special)
        n_vocab = self.tokenizer.n_vocab
        owners = self._owners_of(found, run)
        self.ids += [token for token in found if token < n_vocab]
        self.owners += [owner for token, owner in zip(found, owners, strict=True) if token < n_vocab]
        self.after_special = False

    def _owners_of(self, found: Sequence[int], run: list[tuple[str, int]]) -> list[int]:
        if len(run) == 1:
            return [run[0][1]] * len(found)
        n_vocab, token_bytes = self.tokenizer.n_vocab, self.tokenizer.token_bytes
        lengths = [len(token_bytes(token, special=True)) if token < n_vocab else 1 for token in found]
        ends = list(accumulate(lengths, initial=-1 if self.after_special and self.tokenizer.add_space_prefix else 0))
        borders = list(accumulate(len(text.encode()) for text, _ in run))
        owners, piece = [], 0
        for start, end in zip(ends, ends[1:], strict=False):
            while piece < len(run) - 1 and borders[piece] <= start:
                piece += 1
            last = piece
            while run[last][1] == TEMPLATE and last < len(run) - 1 and borders[last] < end:
                last += 1
            owners.append(run[last][1])
        return owners


def assemble(
    tokenizer: Tokenizer,
    segments: Sequence[Segment],
    turns: Sequence[Turn],
    encode_run: EncodeRun,
    *,
    after_reply: bool = False,
) -> tuple[list[int], list[int]]:
    """Ids of a rendered prompt and, for each, the number of its turn (-1: the template's).

    ``after_reply``: the segments follow a reply's exact ids, so no sequence begins with them. Errors:
    ``TokenizerError`` for lone surrogates.
    """
    builder = _Builder(tokenizer, encode_run, after_special=not after_reply)
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
    begins = tokenizer.add_bos and tokenizer.bos_id is not None and not after_reply
    if begins and builder.ids[:1] != [tokenizer.bos_id]:
        builder.ids[:0] = tokenizer.with_bos([])
        builder.owners.insert(0, TEMPLATE)
    return builder.ids, builder.owners


def spans_of(owners: Sequence[int]) -> tuple[Span, ...]:
    """Runs of tokens that belong to the same turn."""
    spans: list[Span] = []
    start = 0
    for index in range(1, len(owners) + 1):
        if index == len(owners) or owners[index] != owners[start]:
            spans.append(Span(start, index, owners[start]))
            start = index
    return tuple(spans)


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
    detokenizer = Detokenizer(tokenizer)
    text = "".join(map(detokenizer.push, said.ids))
    if not said.text.startswith(text):
        return None
    if prompt.startswith(said.text, start):
        return _Exact(start, start + len(said.text), turn, said.ids)
    kept = _common_prefix(prompt, start, text)
    if kept <= offset:
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
