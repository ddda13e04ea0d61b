"""The log and the crash reports of this computer, to read, copy and find."""

from __future__ import annotations

import time
from pathlib import Path

from PySide6.QtCore import QTimer, QUrl
from PySide6.QtGui import QDesktopServices, QHideEvent, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QComboBox,
    QDialog,
    QHBoxLayout,
    QLineEdit,
    QPlainTextEdit,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from app import crash, logs
from app.text import tr
from app.theme import Theme
from app.views.parts import label, size_dialog

TAIL_BYTES = 512 * 1024
REFRESH_MS = 1000
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


class LogDialog(QDialog):
    """Shows the log, as it grows, or one report."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(tr("Log and reports"))
        size_dialog(self, 900, 560)
        self._text = ""
        self.source = QComboBox()
        self.source.setAccessibleName(tr("What to show"))
        self.level = QComboBox()
        self.level.setAccessibleName(tr("From which level on"))
        for words, level in (
            (tr("Everything"), "DEBUG"),
            (tr("Warnings and errors"), "WARNING"),
            (tr("Errors only"), "ERROR"),
        ):
            self.level.addItem(words, level)
        self.search = QLineEdit()
        self.search.setPlaceholderText(tr("Only lines with…"))
        self.search.setAccessibleName(tr("Only lines with these words"))
        self.search.setClearButtonEnabled(True)
        self.view = QPlainTextEdit()
        self.view.setReadOnly(True)
        self.view.setAccessibleName(tr("Lines"))
        self.view.setLineWrapMode(QPlainTextEdit.LineWrapMode.NoWrap)
        self.view.setFont(Theme.current().font("mono_small"))
        self.place = label("", "caption")
        self._lay_out()
        self._timer = QTimer(self)
        self._timer.setInterval(REFRESH_MS)
        self._timer.timeout.connect(self._read)
        self.source.currentIndexChanged.connect(self._read)
        self.level.currentIndexChanged.connect(self._show_lines)
        self.search.textChanged.connect(self._show_lines)
        self.list_sources()

    @property
    def path(self) -> Path:
        """The file that is shown."""
        return Path(self.source.currentData())

    def list_sources(self, chosen: Path | None = None) -> None:
        """The log and all reports, newest first; show ``chosen``, or the log."""
        self.source.blockSignals(True)
        self.source.clear()
        self.source.addItem(tr("Log"), str(logs.log_file()))
        for report in crash.reports():
            when = time.strftime("%Y-%m-%d %H:%M", time.localtime(report.stat().st_mtime))
            self.source.addItem(tr("Report of {when}", when=when), str(report))
        self.source.setCurrentIndex(max(self.source.findData(str(chosen)), 0))
        self.source.blockSignals(False)
        self._read()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._read()
        self._timer.start()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._timer.stop()

    def _lay_out(self) -> None:
        top = QHBoxLayout()
        top.setSpacing(8)
        top.addWidget(self.source)
        top.addWidget(self.level)
        top.addWidget(self.search, 1)
        foot = QHBoxLayout()
        foot.setSpacing(8)
        foot.addWidget(self.place, 1)
        for words, run in (
            (tr("Copy"), self._copy),
            (tr("Open the folder"), self._open_folder),
            (tr("Close"), self.close),
        ):
            button = QPushButton(words)
            button.clicked.connect(run)
            foot.addWidget(button)
        box = QVBoxLayout(self)
        box.setContentsMargins(16, 16, 16, 14)
        box.setSpacing(10)
        box.addLayout(top)
        box.addWidget(self.view, 1)
        box.addLayout(foot)

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                file.seek(max(self.path.stat().st_size - TAIL_BYTES, 0))
                text = file.read().decode("utf-8", "replace")
        except OSError as error:
            text = tr("{path} cannot be read: {reason}", path=self.path, reason=error.strerror or str(error))
        is_log = self.source.currentIndex() == 0
        self.level.setVisible(is_log)
        self.place.setText(str(self.path))
        if text != self._text:
            self._text = text
            self._show_lines()

    def _show_lines(self) -> None:
        bar = self.view.verticalScrollBar()
        at_end, place = bar.value() >= bar.maximum() - 2, bar.value()
        self.view.setPlainText("\n".join(self._lines()))
        bar.setValue(bar.maximum() if at_end and self.source.currentIndex() == 0 else place)

    def _lines(self) -> list[str]:
        lines = self._text.splitlines()
        if self.source.currentIndex() == 0:
            lines = _from_level(lines, self.level.currentData())
        words = self.search.text().casefold()
        return [line for line in lines if words in line.casefold()] if words else lines

    def _copy(self) -> None:
        QApplication.clipboard().setText(self.view.toPlainText())

    def _open_folder(self) -> None:
        QDesktopServices.openUrl(QUrl.fromLocalFile(str(self.path.parent)))


def _from_level(lines: list[str], least: str) -> list[str]:
    """Entries of at least this level, with the lines that belong to them (a traceback has no level of its own)."""
    wanted = set(_LEVELS[_LEVELS.index(least) :])
    kept, keeping = [], least == "DEBUG"
    for line in lines:
        level = line[24:33].partition(" ")[0]
        if level in _LEVELS:
            keeping = level in wanted
        if keeping:
            kept.append(line)
    return kept
