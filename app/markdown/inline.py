"""Inline Markdown tokens to text with styled spans."""

from __future__ import annotations

import re
from collections.abc import Sequence

from markdown_it.token import Token

from app.markdown.leaves import Rich, Span, Style, units

LINE = "\u2028"
_URL = re.compile(r"https?://[^\s<>\[\]\"'`]+")
_OPENS = {"strong_open": Style.BOLD, "em_open": Style.ITALIC, "s_open": Style.STRIKE}
_CLOSES = {"strong_close": Style.BOLD, "em_close": Style.ITALIC, "s_close": Style.STRIKE}


class _Writer:
    def __init__(self) -> None:
        self.parts: list[str] = []
        self.spans: list[Span] = []
        self.at = 0
        self.style = Style.PLAIN
        self.href = ""

    def write(self, text: str, extra: Style = Style.PLAIN, href: str = "") -> None:
        if not text:
            return
        start, self.at = self.at, self.at + units(text)
        self.parts.append(text)
        style = self.style | extra
        if style:
            self.spans.append(Span(start, self.at, style, href or self.href))

    def write_with_urls(self, text: str) -> None:
        """Bare web addresses become links, the punctuation after them does not."""
        done = 0
        for match in _URL.finditer(text) if "://" in text and not self.href else ():
            url = match.group().rstrip(".,;:!?*_~")
            if url.endswith(")") and url.count("(") < url.count(")"):
                url = url[:-1]
            self.write(text[done : match.start()])
            self.write(url, Style.LINK, url)
            done = match.start() + len(url)
        self.write(text[done:])


def rich_of(tokens: Sequence[Token]) -> Rich:
    """The children of an inline token as text with spans. Images are shown as links, HTML as the text it is."""
    out = _Writer()
    for token in tokens:
        kind = token.type
        if kind == "text":
            out.write_with_urls(token.content)
        elif kind in ("softbreak", "hardbreak"):
            out.write(LINE)
        elif kind == "code_inline":
            out.write(token.content, Style.CODE)
        elif kind in _OPENS:
            out.style |= _OPENS[kind]
        elif kind in _CLOSES:
            out.style &= ~_CLOSES[kind]
        elif kind == "link_open":
            out.style |= Style.LINK
            out.href = str(token.attrGet("href") or "")
        elif kind == "link_close":
            out.style &= ~Style.LINK
            out.href = ""
        elif kind == "image":
            source = str(token.attrGet("src") or "")
            out.write(token.content or source, Style.LINK, source)
        else:
            out.write(token.content)
    return Rich("".join(out.parts), tuple(out.spans))


def plain(text: str) -> Rich:
    """Text as it is, lines parted as Qt wants them."""
    return Rich(text.replace("\r\n", "\n").replace("\n", LINE))
