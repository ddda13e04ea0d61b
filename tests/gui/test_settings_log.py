"""The log and the crash reports: written, shown, and offered once."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from PySide6.QtWidgets import QApplication, QPushButton

from app import crash, logs
from app.log_view import LogDialog

ROOT = Path(__file__).parents[2]
LOG = """\
2026-11-29 12:00:00,001 INFO    app.a: opened
2026-11-29 12:00:01,001 WARNING app.b: the disk is nearly full
2026-11-29 12:00:02,001 ERROR   app.c: it broke
Traceback (most recent call last):
  File "x.py", line 1
2026-11-29 12:00:03,001 CRITICAL app.d: an error that nobody handled
2026-11-29 12:00:04,001 INFO    app.a: goes on
"""


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    """A data folder with a log and two reports."""
    monkeypatch.setenv("KVSCOPE_DATA_DIR", str(tmp_path))
    (tmp_path / "kvscope.log").write_text(LOG)
    (tmp_path / "crashes").mkdir()
    for name, text, at in (("old-error.txt", "the old one", 1e9), ("new-fault.txt", "the new one", 2e9)):
        (tmp_path / "crashes" / name).write_text(text)
        os.utime(tmp_path / "crashes" / name, (at, at))
    (tmp_path / "crashes" / "empty-fault.txt").touch()
    return tmp_path


@pytest.fixture
def dialog(qtbot, installed_theme, data) -> LogDialog:
    made = LogDialog()
    qtbot.addWidget(made)
    made.show()
    return made


def test_the_log_is_shown_and_grows(qtbot, dialog, data):
    assert dialog.view.toPlainText() == LOG.rstrip("\n")
    with (data / "kvscope.log").open("a") as file:
        file.write("2026-11-29 12:00:05,001 INFO    app.a: one more\n")
    qtbot.waitUntil(lambda: "one more" in dialog.view.toPlainText(), timeout=5000)


def test_only_errors_with_what_belongs_to_them(dialog):
    dialog.level.setCurrentIndex(2)
    shown = dialog.view.toPlainText().splitlines()
    assert [line[24:30].strip() for line in shown if line.startswith("2026")] == ["ERROR", "CRITIC"]
    assert "Traceback (most recent call last):" in shown
    dialog.level.setCurrentIndex(1)
    assert "nearly full" in dialog.view.toPlainText()
    assert "opened" not in dialog.view.toPlainText()


def test_only_lines_with_some_words(dialog):
    dialog.search.setText("DISK")
    assert dialog.view.toPlainText().endswith("the disk is nearly full")
    assert dialog.view.blockCount() == 1


def test_reports_are_listed_newest_first(dialog, data):
    words = [dialog.source.itemText(row) for row in range(dialog.source.count())]
    assert len(words) == 3
    assert words[1].startswith("Report of 2033")
    dialog.source.setCurrentIndex(1)
    assert dialog.view.toPlainText() == "the new one"
    assert not dialog.level.isVisible()
    dialog.list_sources(data / "crashes" / "old-error.txt")
    assert dialog.view.toPlainText() == "the old one"


def test_a_log_that_is_not_there_is_said(qtbot, installed_theme, tmp_path, monkeypatch):
    monkeypatch.setenv("KVSCOPE_DATA_DIR", str(tmp_path / "nowhere"))
    made = LogDialog()
    qtbot.addWidget(made)
    assert "cannot be read" in made.view.toPlainText()


def test_copy_takes_what_is_shown(dialog):
    dialog.search.setText("goes on")
    next(button for button in dialog.findChildren(QPushButton) if button.text() == "Copy").click()
    assert QApplication.clipboard().text().endswith("goes on")


def test_a_report_of_the_last_run_is_offered_once(make_window, data):
    first = make_window()
    first.window.dialogs.offer_crash_report()
    notice = first.window.notices.shown["crash"]
    assert "did not end well" in notice.words.text()
    notice.action.click()
    log = first.window.dialogs._log
    assert log.view.toPlainText() == "the new one"
    log.close()
    notice.close_button.click()
    assert not first.window.notices.isVisible()
    first.window.dialogs.offer_crash_report()
    assert first.window.notices.shown == {}
    first.close()
    again = make_window()
    again.window.dialogs.offer_crash_report()
    assert again.window.notices.shown == {}


def test_an_error_that_nobody_caught_leaves_a_report_and_is_told(monkeypatch, tmp_path):
    monkeypatch.setenv("KVSCOPE_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(crash, "_written", 0)
    hooks = sys.excepthook, threading.excepthook
    told: list[str] = []
    crash.install(told.append)
    try:
        try:
            raise ValueError("the reason")
        except ValueError as error:
            sys.excepthook(ValueError, error, error.__traceback__)
        thread = threading.Thread(target=lambda: 1 // 0)
        thread.start()
        thread.join()
    finally:
        crash.uninstall()
        sys.excepthook, threading.excepthook = hooks
    texts = [Path(path).read_text() for path in told]
    assert "ValueError: the reason" in texts[0]
    assert "ZeroDivisionError" in texts[1]
    assert {str(path) for path in crash.reports()} == set(told)


def test_errors_in_every_frame_do_not_fill_the_disk(monkeypatch, tmp_path):
    monkeypatch.setenv("KVSCOPE_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(crash, "_written", 0)
    for number in range(3 * crash.KEPT):
        error = ValueError(str(number))
        crash._on_exception(ValueError, error, None)
    assert len(crash.reports()) == crash.KEPT


FAULT = """
import ctypes
from app import crash
crash.install()
ctypes.string_at(0)
"""


def test_a_fault_inside_compiled_code_leaves_a_report(monkeypatch, tmp_path):
    monkeypatch.setenv("KVSCOPE_DATA_DIR", str(tmp_path))
    ended = subprocess.run([sys.executable, "-c", FAULT], cwd=ROOT, capture_output=True)
    assert ended.returncode != 0
    reports = crash.reports()
    assert len(reports) == 1
    assert "string_at" in reports[0].read_text()


def test_messages_go_to_the_log(monkeypatch, tmp_path):
    script = "from app import logs; import logging; logs.set_up(); logging.getLogger('x').warning('hello %s', 'log')"
    environment = {**os.environ, "KVSCOPE_DATA_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, env=environment, check=True, capture_output=True)
    monkeypatch.setenv("KVSCOPE_DATA_DIR", str(tmp_path))
    assert "WARNING x: hello log" in logs.log_file().read_text()
    assert logging.getLogger("x").level == logging.NOTSET
