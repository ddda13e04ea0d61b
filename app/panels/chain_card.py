"""The card of the selected chain: what it is, what a release would do, Release and Pin."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QPushButton, QVBoxLayout

from app.panels.parts import label, strong, tool_button
from app.panels.words import chain_name, clock, count, duration, release_button, release_preview, release_result
from app.text import tr
from app.theme import icon
from engine.port import ChainInfo, ReleaseReport


class ChainCard(QFrame):
    """Shows one of: a chain with its dry run, the dry run of releasing all, or the outcome of a release.

    Signals:
        release_asked: the person confirmed the release that the card describes.
        pin_asked(pinned): pin or unpin the chain shown.
        chat_asked: show the chat that the chain comes from.
        dismissed: the card was closed.
    """

    release_asked = Signal()
    pin_asked = Signal(bool)
    chat_asked = Signal()
    dismissed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.setProperty("surface", "card")
        self.setAccessibleName(tr("Selected chain"))
        self.title = label(role="heading", wrap=True)
        self.facts = label(role="muted", wrap=True)
        self.sentence = label(wrap=True)
        self.sentence.setTextFormat(Qt.TextFormat.RichText)
        self.release = QPushButton(tr("Release"))
        self.release.setProperty("variant", "primary")
        self.pin = QPushButton(icon("pin", "muted"), tr("Pin"))
        self.pin.setCheckable(True)
        self.chat = tool_button("chat", tr("Show this chain's chat"))
        self.dismiss = QPushButton(tr("Close"))
        self.dismiss.setProperty("variant", "ghost")
        column = QVBoxLayout(self)
        column.setContentsMargins(12, 10, 12, 12)
        column.setSpacing(4)
        column.addWidget(self.title)
        row = QHBoxLayout()
        row.setContentsMargins(0, 4, 0, 4)
        row.setSpacing(6)
        self.pin.setText(tr("Unpin"))
        self.pin.setMinimumWidth(self.pin.sizeHint().width())
        self.pin.setText(tr("Pin"))
        for button in (self.release, self.pin, self.dismiss):
            button.setAccessibleName(button.text())
        for part in (self.pin, self.chat, self.dismiss, self.release):  # what changes its width comes last
            row.addWidget(part)
        row.addStretch(1)
        column.addLayout(row)  # above the texts that change while one looks: the buttons stay under the pointer
        for words in (self.sentence, self.facts):
            column.addWidget(words)
        self.release.clicked.connect(self.release_asked)
        self.pin.clicked.connect(self.pin_asked)
        self.chat.clicked.connect(self.chat_asked)
        self.dismiss.clicked.connect(self.dismissed)
        self._pinned = 0
        self.hide()

    def show_chain(self, chain: ChainInfo, chat: str, own_tokens: int, now: float) -> None:
        """Describe a chain; its dry run follows with ``show_preview``."""
        self.title.setText(chain_name(chat, chain.label) or tr("Chain {n}", n=chain.id))
        here = tr("{own} here, {all:,} with its prefix", own=count(own_tokens, "token"), all=chain.n_tokens)
        if not own_tokens:
            here = tr("{all}, all of them shared with other chains", all=count(chain.n_tokens, "token"))
        used = tr("never hit")
        if chain.last_hit:
            used = tr("hit {n:,} × · last {ago} ago", n=chain.hits, ago=duration(now - chain.last_hit))
        self._set_facts(f"{here}\n{used} · " + tr("born {time}", time=clock(chain.born)))
        self._pinned = int(chain.pinned)
        self.pin.setChecked(chain.pinned)
        self.pin.setText(tr("Unpin") if chain.pinned else tr("Pin"))
        self.pin.setAccessibleName(self.pin.text())
        self._buttons(release=True, pin=True, chat=bool(chain.chat), dismiss=False)
        self.show()

    def show_all(self, n_chains: int, n_pinned: int = 0) -> None:
        """Describe the release of all chains, ``n_pinned`` of them pinned."""
        self._pinned = n_pinned
        self.title.setText(tr("Release all chains"))
        self._set_facts(tr("{chains} would leave the prefix cache", chains=count(n_chains, "chain")))
        self._buttons(release=True, pin=False, chat=False, dismiss=True)
        self.dismiss.setText(tr("Cancel"))
        self.show()

    def show_preview(self, report: ReleaseReport | None) -> None:
        """The dry run of what the card describes; None while it is being worked out."""
        self.release.setEnabled(report is not None)
        if report is None:
            self.sentence.setText(tr("Working out what a release would free …"))
            self.release.setText(tr("Release"))
        else:
            self.sentence.setText(strong(release_preview(report, self._pinned)))
            self.release.setText(release_button(report))
        self.release.setAccessibleName(self.release.text())

    def show_outcome(self, title: str, report: ReleaseReport) -> None:
        """What a release did."""
        self.title.setText(title)
        self._set_facts("")
        self.sentence.setText(strong(release_result(report)))
        self._buttons(release=False, pin=False, chat=False, dismiss=True)
        self.dismiss.setText(tr("Close"))
        self.show()

    def show_error(self, sentence: str) -> None:
        """Why the engine refused."""
        self._set_facts("")
        self.sentence.setText(strong(sentence))
        self._buttons(release=False, pin=False, chat=False, dismiss=True)
        self.dismiss.setText(tr("Close"))
        self.show()

    def _set_facts(self, text: str) -> None:
        self.facts.setText(text)
        self.facts.setVisible(bool(text))

    def _buttons(self, *, release: bool, pin: bool, chat: bool, dismiss: bool) -> None:
        wanted = ((self.release, release), (self.pin, pin), (self.chat, chat), (self.dismiss, dismiss))
        for button, shown in wanted:
            button.setVisible(shown)
