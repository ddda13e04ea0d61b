"""The Cache dock: the page map, the prefix tree and the chains, with release, pin and "why not all?".

The dock shows snapshots; it holds no engine memory. Everything it does goes through the port, and each answer is
shown in words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QDockWidget, QWidget

from app.panels import miss
from app.panels.asks import Bridge
from app.panels.cache_view import CacheView
from app.panels.page_tip import PageTips
from app.panels.parts import DockTitleBar, Lamp, QuietText
from app.panels.snapshot_feed import SnapshotFeed
from app.panels.words import books_sentence, chain_name, count, release_brief, size
from app.text import tr
from engine.port import ChainInfo, EngineState, ModelInfo, Prepared, ReleaseReport, Snapshot, Turn
from engine.scheduling.events import Finished, StepReport

_AGES_MS = 10_000


class CacheDock(QDockWidget):
    """The instrument on the cache.

    ``chat_title`` turns a chat's id, as the engine knows it, into the name that people see.

    Signals:
        chat_activated(chat): a page or chain was chosen; show its chat.
        said(sentence): the outcome of a release, for a status line or a screen reader.
    """

    chat_activated = Signal(str)
    said = Signal(str)

    def __init__(
        self, bridge: Bridge, parent: QWidget | None = None, *, chat_title: Callable[[str], str] = str
    ) -> None:
        super().__init__(tr("Cache"), parent)
        self.setObjectName("CacheDock")
        self._bridge = bridge
        self._chat_title = chat_title
        self._snapshot: Snapshot | None = None
        self._chain: int | None = None
        self._page = -1
        self._model: ModelInfo | None = None
        self._aged_at = 0.0
        self._all = False
        self._previewed: tuple[object, ...] = ()
        self.view = CacheView(bridge, chat_title)
        self.setWidget(self.view)
        self.bar = DockTitleBar(self, tr("Cache"))
        self.lamp, self.summary = Lamp(), QuietText("", Qt.AlignmentFlag.AlignRight)
        self.bar.middle.addWidget(self.summary, 1)
        self.bar.middle.addWidget(self.lamp)
        self.setTitleBarWidget(self.bar)
        self.tips = PageTips(self.view.pages, bridge, chat_title)
        self.feed = SnapshotFeed(bridge, self)
        self._ages = QTimer(self)
        self._ages.setInterval(_AGES_MS)
        self._connect()
        self._clear()
        self.view.show_evictions()

    def _connect(self) -> None:
        view = self.view
        self.feed.arrived.connect(self._on_snapshot)
        self.feed.unavailable.connect(self._clear)
        self._bridge.step.connect(self.feed.mark)
        self._bridge.state.connect(self.feed.on_state)
        self._bridge.step.connect(self._on_step)
        self._bridge.finished.connect(self._on_finished)
        self._bridge.state.connect(self._on_state)
        self._ages.timeout.connect(self.feed.mark)
        view.pages.clicked.connect(self._on_page)
        view.tree.chain_selected.connect(self.select_chain)
        view.chains.chain_selected.connect(self.select_chain)
        view.chains.release_asked.connect(self._on_release_key)
        view.chains.pin_asked.connect(self._pin)
        view.chains.chat_asked.connect(self.chat_activated)
        view.release_all.clicked.connect(self.ask_release_all)
        view.card.release_asked.connect(self._release)
        view.card.pin_asked.connect(self.pin_selected)
        view.card.chat_asked.connect(self._show_chat)
        view.why.grown.connect(self._reveal_why)
        view.card.dismissed.connect(lambda: self.select_chain(None))

    # What the window calls

    def reveal_chain(self, chain: int) -> None:
        """Show the dock with a chain selected (for "reused 412 of 460" under a reply)."""
        self.show()
        self.raise_()
        self.select_chain(chain)
        self.view.reveal(self.view.card)

    def show_miss(
        self, finished: Finished, prepared: Prepared | None, turns: Sequence[Turn], *, chat: str = "", whose: str = ""
    ) -> None:
        """Explain what a reply did not reuse; ``whose`` names the reply, such as "Invoice email, last reply"."""
        chain = self._chain_info(finished.miss.chain) if finished.miss is not None else None
        rows = self._snapshot.page_rows if self._snapshot is not None else 16
        explanation = miss.explain(
            finished, prepared, turns, chat=chat, chain=chain, page_rows=rows, chat_title=self._chat_title
        )
        self.show()
        self.raise_()
        self.view.why.show_explanation(explanation, whose or self._chat_title(chat))
        if chain is not None:
            self.select_chain(chain.id)
        self._reveal_why()

    def _reveal_why(self) -> None:
        """Scroll to the explanation once the layout knows its height."""
        QTimer.singleShot(0, self, lambda: self.view.reveal(self.view.why))

    def select_chain(self, chain: int | None) -> None:
        """Select a chain everywhere: its pages, its place in the tree, its row, its card. None: no chain."""
        info = self._chain_info(chain)
        self._chain, self._page, self._all = (info.id if info else None), -1, False
        self._previewed = ()
        self._mark([info] if info else [], () if info else None)
        if info is None:
            self.view.card.hide()
        else:
            self._describe(info)

    @property
    def selected_chain(self) -> int | None:
        """The chain that is selected, None without one."""
        return self._chain

    # Snapshots

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.feed.set_active(True)
        self._ages.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.feed.set_active(False)
        self._ages.stop()

    def _on_state(self, state: EngineState) -> None:
        if state.model is not None and state.model is not self._model:  # not when the old one runs on
            self._model = state.model
            self._previewed = ()
            self.view.ledger.clear()
            self.view.show_evictions()

    def _on_step(self, report: StepReport) -> None:
        if report.evictions:
            self.view.ledger.add(report.evictions)
            self.view.show_evictions()

    def _on_finished(self, finished: Finished) -> None:
        if finished.miss is not None and finished.miss.cause == "evicted":
            self.view.ledger.regret(finished)
            self.view.show_evictions()

    def _clear(self) -> None:
        """There is no model, so there is nothing to show."""
        self._snapshot = None
        self.lamp.set_state(None)
        self.summary.setText(tr("no model loaded"))
        self.view.pages_header.figures.setText("")
        self.view.model.update((), 0.0)
        self.view.show_stored(0, model=False)
        self.select_chain(None)

    def _on_snapshot(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        pool, view = snapshot.pool, self.view
        total = size(pool.capacity * snapshot.page_bytes)
        self.summary.setText(f"{count(pool.capacity, 'page')} × {snapshot.page_rows} · {total}")
        self.summary.setToolTip(
            tr(
                "{pages} of {rows} tokens, {each} each: up to {total}, taken from the system when first used",
                pages=count(pool.capacity, "page"),
                rows=snapshot.page_rows,
                each=size(snapshot.page_bytes),
                total=total,
            )
        )
        self.lamp.set_state(_problem(snapshot))
        view.pages_header.figures.setText(
            tr(
                "{referenced:,} referenced · {cached:,} cached · {free:,} free",
                referenced=pool.referenced,
                cached=pool.cached,
                free=pool.free,
            )
        )
        self.tips.now = snapshot.at
        view.pages.set_snapshot(snapshot)
        view.show_folded()
        view.tree.set_snapshot(snapshot)
        view.model.update(snapshot.chains, snapshot.at)
        if snapshot.at - self._aged_at >= _AGES_MS / 1000:
            self._aged_at = snapshot.at
            view.model.refresh_ages(snapshot.at)
        n = len(snapshot.chains)
        view.chains_header.figures.setText(f"{n:,}")
        view.show_stored(n)
        self._follow_selection()

    def _follow_selection(self) -> None:
        """Keep what is selected up to date, and let it go when it is gone."""
        if self._chain is not None:
            info = self._chain_info(self._chain)
            if info is None:
                self.select_chain(None)
            else:
                self._describe(info)
                if self._page < 0:
                    self.view.pages.light(info.pages)
        elif self._all:
            self._preview_all()

    # Selection

    def _chain_info(self, chain: int | None) -> ChainInfo | None:
        known = self._snapshot.chains if self._snapshot is not None else ()
        return next((c for c in known if c.id == chain), None)

    def _mark(self, chains: Sequence[ChainInfo], pages: Sequence[int] | None) -> None:
        """Light chains (and more pages) in the map, the tree and the list; ``pages`` None: light nothing."""
        lit = None if pages is None else {*pages, *(p for c in chains for p in c.pages)}
        self.view.pages.light(lit)
        if self._page < 0:
            self.view.pages.set_current(-1)
        self.view.tree.select([c.id for c in chains])
        self.view.chains.select(self._chain)

    def _on_page(self, page: int) -> None:
        """A page was chosen: light every chain and stream it belongs to, describe the chain used last."""
        snapshot = self._snapshot
        if page < 0 or snapshot is None:
            self.select_chain(None)
            return
        chains = sorted(
            (c for c in snapshot.chains if page in c.pages), key=lambda c: (c.last_hit or c.born, c.id), reverse=True
        )
        streams = [s for s, pages in snapshot.stream_pages.items() if page in pages]
        if not chains and not streams:
            self.select_chain(None)
            return
        self._chain, self._page, self._all = (chains[0].id if chains else None), page, False
        self._previewed = ()
        self._mark(chains, [p for s in streams for p in snapshot.stream_pages[s]])
        if chains:
            self._describe(chains[0])
        else:
            self.view.card.hide()
        running = [s.chat for s in snapshot.streams if s.stream in streams]
        if chat := next((c for c in (*running, *(c.chat for c in chains)) if c), ""):
            self.chat_activated.emit(chat)

    def _describe(self, chain: ChainInfo) -> None:
        assert self._snapshot is not None
        segments = self._snapshot.segments
        own = sum(s.n_tokens for s in segments if s.chains == (chain.id,))
        self.view.card.show_chain(chain, self._chat_title(chain.chat), own, self._snapshot.at)
        in_use = tuple(s.in_use for s in segments if chain.id in s.chains)
        state = (chain.id, chain.pages, chain.n_own, chain.pinned, in_use)
        if state != self._previewed:
            if self._previewed[:1] != state[:1]:
                self.view.card.show_preview(None)
            self._previewed = state
            self._preview(chain.id)

    def _show_chat(self) -> None:
        if (info := self._chain_info(self._chain)) is not None:
            self.chat_activated.emit(info.chat)

    # Release and pin

    def _preview(self, chain: int) -> None:
        def show(report: ReleaseReport) -> None:
            if self._chain == chain:
                self.view.card.show_preview(report)

        self._bridge.ask(self._bridge.port.release(chain, dry_run=True), show, self._failed)

    def _on_release_key(self, chain: int) -> None:
        """Delete in the list: show what it would do and put the keyboard on the button that does it."""
        self.select_chain(chain)
        self.view.reveal(self.view.card)
        self.view.card.release.setFocus()

    def ask_release_all(self) -> None:
        """Show what releasing all chains would do; the card's button does it."""
        if self._snapshot is None or not self._snapshot.chains:
            return
        self.show()
        self.select_chain(None)
        self._all = True
        self._previewed = ()
        self.view.card.show_preview(None)
        self._preview_all()

    def _preview_all(self) -> None:
        assert self._snapshot is not None
        chains = self._snapshot.chains
        state = tuple((c.id, c.pages, c.pinned) for c in chains)
        if state == self._previewed:
            return
        self._previewed = state

        def show(report: ReleaseReport) -> None:
            if self._all:
                self.view.card.show_preview(report)

        self.view.card.show_all(len(chains), sum(c.pinned for c in chains))
        self._bridge.ask(self._bridge.port.release_all(dry_run=True), show, self._failed)

    def _release(self) -> None:
        """Carry out what the card describes."""
        port = self._bridge.port
        if self._all:
            self._bridge.ask(port.release_all(), lambda r: self._released(tr("All chains released"), r), self._failed)
        elif (info := self._chain_info(self._chain)) is not None:
            title = tr("{name} released", name=chain_name(self._chat_title(info.chat), info.label))
            self._bridge.ask(port.release(info.id), lambda r: self._released(title, r), self._failed)

    def _released(self, title: str, report: ReleaseReport) -> None:
        self.select_chain(None)
        self.view.card.show_outcome(title, report)
        self.view.card.dismiss.setFocus()
        self.said.emit(release_brief(report))
        self.feed.mark()

    def pin_selected(self, pinned: bool) -> None:
        """Keep the selected chain, or no longer."""
        if self._chain is not None:
            self._pin(self._chain, pinned)

    def _pin(self, chain: int, pinned: bool) -> None:
        self._bridge.ask(self._bridge.port.pin(chain, pinned), lambda _: self.feed.mark(), self._failed)

    def _failed(self, error: BaseException) -> None:
        self.view.card.show_error(str(error))


def _problem(snapshot: Snapshot) -> str:
    """What is wrong with the pool's books, empty when they balance."""
    pool = snapshot.pool
    if snapshot.integrity:
        return snapshot.integrity
    if pool.free + pool.cached + pool.referenced != pool.capacity:
        return books_sentence(snapshot.step, pool)
    return ""
