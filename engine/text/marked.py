"""Text that remembers which message it came from, through everything a chat template does with it.

A chat template trims, splits and joins what people wrote. ``Marked`` follows each character, so that afterwards it is
known which part of a prompt is the template's (control tokens may stand there) and which part is someone's message
(where ``<|im_start|>`` is text like any other).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, SupportsIndex

Mark = tuple[int, int, int]
"""(length, message number or -1 for the template, offset in that message or -1 if the text was changed)."""

TEMPLATE = -1


class Marked(str):
    """A ``str`` whose ``marks`` cover it from end to end.

    Changes that it cannot follow keep the message, but lose the offset.
    """

    marks: tuple[Mark, ...]

    def __new__(cls, text: str = "", marks: Iterable[Mark] | None = None) -> Marked:
        made = super().__new__(cls, text)
        if marks is not None:
            made.marks = tuple(marks)
        elif isinstance(text, Marked):
            made.marks = text.marks
        else:
            made.marks = ((len(text), TEMPLATE, -1),) if text else ()
        return made

    @classmethod
    def message(cls, text: str, number: int) -> Marked:
        """The whole of message ``number``."""
        return cls(text, ((len(text), number, 0),) if text else ())

    def segments(self) -> Iterator[tuple[str, int, int]]:
        """(text, message number, offset) in order."""
        position = 0
        for length, number, start in self.marks:
            yield str.__getitem__(self, slice(position, position + length)), number, start
            position += length

    def __str__(self) -> str:
        return self

    def __add__(self, other: str) -> Marked:
        return join((self, other)) if isinstance(other, str) else NotImplemented

    def __radd__(self, other: str) -> Marked:
        return join((other, self)) if isinstance(other, str) else NotImplemented

    def __getitem__(self, key: SupportsIndex | slice) -> Marked:
        if not isinstance(key, slice):
            index = key.__index__()
            index += len(self) if index < 0 else 0
            if not 0 <= index < len(self):
                raise IndexError("string index out of range")
            return self._cut(index, index + 1)
        start, stop, step = key.indices(len(self))
        if step != 1:
            return self._changed(str.__getitem__(self, key))
        return self._cut(start, max(start, stop))

    def __iter__(self) -> Iterator[Marked]:
        return (self._cut(index, index + 1) for index in range(len(self)))

    def __mul__(self, count: SupportsIndex) -> Marked:
        return self._changed(str.__mul__(self, count))

    __rmul__ = __mul__

    def __mod__(self, values: Any) -> Marked:
        return self._changed(str.__mod__(self, values))

    def lstrip(self, chars: str | None = None, /) -> Marked:
        return self._cut(len(self) - len(str.lstrip(self, chars)), len(self))

    def rstrip(self, chars: str | None = None, /) -> Marked:
        return self._cut(0, len(str.rstrip(self, chars)))

    def strip(self, chars: str | None = None, /) -> Marked:
        return self.rstrip(chars).lstrip(chars)

    def removeprefix(self, prefix: str, /) -> Marked:
        return self._cut(len(prefix), len(self)) if self.startswith(prefix) else self

    def removesuffix(self, suffix: str, /) -> Marked:
        return self._cut(0, len(self) - len(suffix)) if suffix and self.endswith(suffix) else self

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return self._find_parts(str.split(self, sep, maxsplit), len(sep or ""))

    def rsplit(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Any]:
        return self._find_parts(str.rsplit(self, sep, maxsplit), len(sep or ""))

    def splitlines(self, keepends: bool = False) -> list[Any]:
        return self._find_parts(str.splitlines(self, keepends), 0)

    def partition(self, sep: str, /) -> tuple[Any, Any, Any]:
        at = self.find(sep)
        if at < 0:
            return self, Marked(), Marked()
        return self._cut(0, at), self._cut(at, at + len(sep)), self._cut(at + len(sep), len(self))

    def rpartition(self, sep: str, /) -> tuple[Any, Any, Any]:
        at = self.rfind(sep)
        if at < 0:
            return Marked(), Marked(), self
        return self._cut(0, at), self._cut(at, at + len(sep)), self._cut(at + len(sep), len(self))

    def replace(self, old: str, new: str, count: SupportsIndex = -1, /) -> Marked:
        if not old or old not in self:
            return self if old else self._changed(str.replace(self, old, new, count))
        parts = self.split(old, count)
        return join([piece for part in parts for piece in (new, part)][1:])

    def join(self, parts: Iterable[str], /) -> Marked:
        return join([piece for part in parts for piece in (self, part)][1:])

    def _cut(self, start: int, stop: int) -> Marked:
        marks: list[Mark] = []
        position = 0
        for length, number, offset in self.marks:
            first, last = max(start, position), min(stop, position + length)
            if first < last:
                marks.append((last - first, number, offset if offset < 0 else offset + first - position))
            position += length
        return Marked(str.__getitem__(self, slice(start, stop)), marks)

    def _find_parts(self, texts: list[str], gap: int) -> list[Any]:
        """The parts that a split gave, one after the other; at least ``gap`` characters lie between two."""
        parts, position = [], 0
        for text in texts:
            at = self.find(text, position)
            parts.append(self._cut(at, at + len(text)))
            position = at + len(text) + gap
        return parts

    def _changed(self, text: str) -> Marked:
        """``text`` made from this one in a way that no offset survives."""
        number = max((number for _, number, _ in self.marks), default=TEMPLATE)
        return Marked(text, ((len(text), number, -1),) if text else ())


def _keeps_message(name: str) -> Any:
    method = getattr(str, name)

    def changed(self: Marked, *values: Any, **options: Any) -> Marked:
        text = method(self, *values, **options)
        return self if text == self else self._changed(text)

    changed.__name__ = name
    return changed


for _name in ("capitalize", "casefold", "center", "expandtabs", "ljust", "lower", "rjust", "swapcase", "title"):
    setattr(Marked, _name, _keeps_message(_name))
for _name in ("translate", "upper", "zfill"):
    setattr(Marked, _name, _keeps_message(_name))


def join(parts: Iterable[str]) -> Marked:
    """``"".join(parts)`` that keeps the marks; neighbours that continue each other become one."""
    texts = list(parts)
    marks: list[Mark] = []
    for text in texts:
        for mark in text.marks if isinstance(text, Marked) else (((len(text), TEMPLATE, -1),) if text else ()):
            marks.append(mark)
            if len(marks) > 1 and _continues(marks[-2], mark):
                length, number, start = marks[-2]
                marks[-2:] = [(length + mark[0], number, start)]
    return Marked("".join(texts), marks)


def _continues(first: Mark, second: Mark) -> bool:
    if first[1] != second[1]:
        return False
    if first[2] < 0 or second[2] < 0:
        return first[2] == second[2]
    return first[2] + first[0] == second[2]
