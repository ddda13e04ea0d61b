"""One line at the foot of the sidebar while other programs are served: the address, and a way to copy it."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QSize
from PySide6.QtWidgets import QApplication, QHBoxLayout, QLabel, QSizePolicy, QWidget

from app.state.serving import Serving
from app.text import tr
from app.theme import icon
from app.views.parts import label, tool_button


class ServingStatus(QWidget):
    """Shows where other programs reach the engine; takes no room while the switch is off."""

    def __init__(self, serving: Serving, say: Callable[[str], object], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._serving = serving
        self._say = say
        self._icon = QLabel()
        self.words = label("", "caption")
        self.words.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
        self.copy = tool_button("copy", tr("Copy the address"), self._copy)
        self.off = tool_button("close", tr("Stop serving"), serving.toggle)
        row = QHBoxLayout(self)
        row.setContentsMargins(6, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(self._icon)
        row.addWidget(self.words, 1)
        row.addWidget(self.copy)
        row.addWidget(self.off)
        serving.changed.connect(self._follow)
        serving.failed.connect(say)
        self._follow()

    def _follow(self) -> None:
        stage, url = self._serving.stage, self._serving.url
        words = {
            "off": "",
            "starting": tr("starting to serve …"),
            "on": url.removeprefix("http://"),
            "stopping": tr("stopping: replies may end first"),
        }[stage]
        self.words.setText(words)
        self.words.setToolTip(
            tr("Any OpenAI client on this computer reaches the model at {url}", url=url) if url else ""
        )
        self.setAccessibleName(tr("Serving at {url}", url=url) if url else words)
        self._icon.setPixmap(icon("serve", "accent" if url else "muted").pixmap(QSize(16, 16)))
        self.copy.setVisible(bool(url))
        self.off.setVisible(bool(url))
        self.setVisible(stage != "off")

    def _copy(self) -> None:
        QApplication.clipboard().setText(self._serving.url)
        self._say(tr("The address is on the clipboard. Clients want it as their base URL; any key will do."))
