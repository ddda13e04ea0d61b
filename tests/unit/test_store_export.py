"""Exported files: everything in them, and whole or not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from app.state.document import Conversation
from app.state.export import to_json, to_markdown, write_export


def chat() -> Conversation:
    made = Conversation("c", "Tides 👋", 1.0, 2.0)
    question = made.add("user", "Why?\r\n“$5”", parent=None)
    reply = made.add("assistant", "```c\nint x;\n```\n", parent=question.id)
    reply.ids = [1, 2]
    made.add("assistant", "another", parent=question.id)
    made.choose(reply.id)
    return made


def test_markdown_holds_the_shown_branch_as_it_was_written(tmp_path: Path) -> None:
    write_export(tmp_path / "a.md", to_markdown(chat()))
    text = (tmp_path / "a.md").read_bytes().decode()
    assert text.startswith("# Tides 👋\n")
    assert "Why?\r\n“$5”" in text
    assert "```c\nint x;\n```\n" in text
    assert "another" not in text


def test_json_holds_all_branches_and_ids(tmp_path: Path) -> None:
    write_export(tmp_path / "a.json", to_json(chat()))
    found = json.loads((tmp_path / "a.json").read_text(encoding="utf-8"))
    texts = {message["text"]: message["ids"] for message in found["messages"].values()}
    assert texts == {"Why?\r\n“$5”": [], "```c\nint x;\n```\n": [1, 2], "another": []}
    assert found["title"] == "Tides 👋"


def test_a_failed_export_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_export(tmp_path / "a.md", "old")

    def refuse(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    with pytest.raises(OSError, match="No space"):
        write_export(tmp_path / "a.md", "new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.md"]
    assert (tmp_path / "a.md").read_text() == "old"
