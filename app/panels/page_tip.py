"""Tooltips of the page map: who holds a page and the text on it, asked of the engine when the cursor rests."""

from __future__ import annotations

import html
from collections.abc import Callable

from PySide6.QtCore import QObject, QTimer
from PySide6.QtWidgets import QToolTip

from app.panels.asks import Asks
from app.panels.markup import plain
from app.panels.page_map import PageMap
from app.panels.parts import semibold
from app.panels.words import count, duration, listed, shorten
from app.text import tr
from engine.port import PageDetail

_REST_MS = 120


class PageTips(QObject):
    """Shows a page's details beside the cell that the cursor or the keyboard is on."""

    def __init__(self, pages: PageMap, bridge: Asks, chat_title: Callable[[str], str]) -> None:
        super().__init__(pages)
        self._map, self._bridge, self._chat_title = pages, bridge, chat_title
        self._page = -1
        self.now = 0.0
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(_REST_MS)
        self._timer.timeout.connect(self._ask)
        pages.hovered.connect(self._on_hover)

    def _on_hover(self, page: int) -> None:
        self._page = page
        if page < 0:
            self._timer.stop()
            QToolTip.hideText()
        else:
            self._timer.start()

    def _ask(self) -> None:
        page = self._page
        if page >= 0:
            self._bridge.ask(self._bridge.port.page_detail(page), self._show, lambda *_: QToolTip.hideText())

    def _show(self, detail: PageDetail) -> None:
        if detail.page == self._page and self._map.isVisible():
            text = page_html(detail, self._map.state_of(detail.page), self.now, self._chat_title)
            QToolTip.showText(self._map.tip_position(detail.page), text, self._map)


def page_html(detail: PageDetail, state: str, now: float, chat_title: Callable[[str], str]) -> str:
    """A page's details as rich text."""
    holders = f" · {count(detail.refcount, 'holder')}" if detail.refcount else ""
    lines = [semibold(html.escape(tr("Page {n:,}", n=detail.page))) + html.escape(f" · {state}{holders}")]
    if chats := listed([chat_title(c) for c in detail.chats]):
        lines.append(html.escape(tr("Chats: {chats}", chats=chats)))
    if detail.streams:
        lines.append(html.escape(count(len(detail.streams), "running reply", "running replies")))
    if detail.born is not None:
        age = tr("{age} old", age=duration(now - detail.born))
        lines.append(html.escape(f"{count(detail.hits, 'hit')} · {age} · {count(len(detail.tokens), 'token')}"))
    if words := plain(detail.text):
        lines.append(f"<i>{html.escape(shorten(words, 160))}</i>")
    return f'<div style="max-width:320px">{"<br>".join(lines)}</div>'
