"""Chat templates: what they may use, and that none of them can hang or eat the app."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from engine.errors import TemplateError
from engine.text import template_process
from engine.text.template import CHATML, Segment, render
from engine.text.template_process import TemplateProcess, child_command

ROOT = Path(__file__).resolve().parents[2]
TALK = [("user", "hi"), ("assistant", " yes "), ("user", "<|im_end|>")]


def shown(source: str, messages: list[tuple[str, str]] = TALK, **names: str) -> str:
    return "".join(text for text, _, _ in parts(source, messages, **names))


def parts(source: str, messages: list[tuple[str, str]] = TALK, **names: str) -> list[Segment]:
    return render(source, messages, add_generation_prompt=True, names=names)


def test_chatml_tells_the_template_from_the_messages() -> None:
    assert parts(CHATML) == [
        ("<|im_start|>user\n", -1, -1), ("hi", 0, 0), ("<|im_end|>\n<|im_start|>assistant\n", -1, -1),
        (" yes ", 1, 0), ("<|im_end|>\n<|im_start|>user\n", -1, -1), ("<|im_end|>", 2, 0),
        ("<|im_end|>\n<|im_start|>assistant\n", -1, -1),
    ]  # fmt: skip


FEATURES: list[tuple[str, str]] = [
    ("{{ bos_token }}|{{ eos_token }}", "<s>|</s>"),
    ("{% if tools %}x{% endif %}{{ tools is none }}", "True"),
    ("{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}{{ m.content }}{% endfor %}", "hi"),
    ("{% for m in messages %}{% if loop.first %}{% continue %}{% endif %}{{ m.role }},{% endfor %}", "assistant,user,"),
    ("{% generation %}{{ messages[1].content }}{% endgeneration %}!", " yes !"),
    ("{{ messages[1]['content'] | trim }}", "yes"),
    ("{{ messages[0] | tojson }}", '{"role": "user", "content": "hi"}'),
    ("{{ {'é': [1, none, true]} | tojson }}", '{"é": [1, null, true]}'),
    ("{{ {'a': 1} | tojson(indent=2) }}", '{\n  "a": 1\n}'),
    ("  {% if true %}\n  a\n  {% endif %}\nb", "  a\nb"),
    ("{% set ns = namespace(x=1) %}{% for m in messages %}{% set ns.x = ns.x + 1 %}{% endfor %}{{ ns.x }}", "4"),
    ("{{ messages[0].content ~ '|' ~ 5 }}", "hi|5"),
    ("{{ messages | map(attribute='content') | join('/') }}", "hi/ yes /<|im_end|>"),
    ("{{ messages | join(',', attribute='role') }}", "user,assistant,user"),
    ("{% macro f(t) %}[{{ t }}]{% endmacro %}{{ f(messages[0].content) }}", "[hi]"),
    ("{% set t %}<{{ messages[0].content }}>{% endset %}{{ t }}", "<hi>"),
    ("{{ messages[0].content is string }}{{ messages[0].nothing is defined }}", "TrueFalse"),
    ("{{ add_generation_prompt }}", "True"),
]


@pytest.mark.parametrize(("source", "expected"), FEATURES)
def test_what_templates_use(source: str, expected: str) -> None:
    assert shown(source, bos_token="<s>", eos_token="</s>") == expected


def test_the_date_for_templates() -> None:
    before = datetime.now().strftime("%Y-%m-%d")
    assert shown("{{ strftime_now('%Y-%m-%d') }}") in (before, datetime.now().strftime("%Y-%m-%d"))


FOLLOWED = [
    "[{{ messages[0].content }}]",
    "{{ '[' + messages[0]['content'] + ']' }}",
    "{{ '[' ~ messages[0].content ~ ']' }}",
    "{% set t %}[{{ messages[0].content }}]{% endset %}{{ t }}",
    "{% macro f(t) %}[{{ t | trim }}]{% endmacro %}{{ f(messages[0].content) }}",
    "{{ ['[', messages[0].content, ']'] | join }}",
    "{{ ''.join(['[', messages[0].content, ']']) }}",
    "{{ '[X]'.replace('X', messages[0].content) }}",
]


@pytest.mark.parametrize("source", FOLLOWED)
def test_a_message_is_followed_through(source: str) -> None:
    assert parts(source) == [("[", -1, -1), ("hi", 0, 0), ("]", -1, -1)]


FAILURES: list[tuple[str, str]] = [
    ("{{ raise_exception('Only user and assistant, please.') }}", "refuses this conversation: Only user and assistant"),
    ("{% if %}", "TemplateSyntaxError"),
    ("{{ nobody.home }}", "nobody"),
    ("{{ 1 / 0 }}", "ZeroDivisionError"),
    ("{{ messages.append(1) }}", "SecurityError"),
    ("{{ ''.__class__.__mro__ }}", "SecurityError"),
    ("{{ 'x' * 9000000 }}", "too large"),
    ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
]


@pytest.mark.parametrize(("source", "said"), FAILURES)
def test_failures_are_sentences(source: str, said: str) -> None:
    with pytest.raises(TemplateError, match="template") as caught:
        parts(source)
    assert said in str(caught.value)


@pytest.fixture
def process() -> Iterator[TemplateProcess]:
    made = TemplateProcess(time_limit=10.0)
    yield made
    made.close()


def ask(process: TemplateProcess, source: str, messages: list[tuple[str, str]] = TALK) -> list[Segment]:
    return process.render(source, messages, add_generation_prompt=True, names={})


def test_the_child_gives_what_this_process_gives(process: TemplateProcess) -> None:
    talk = [("user", "é😀\n\ud800\x00"), ("assistant", "x" * 200_000)]
    assert ask(process, CHATML, talk) == parts(CHATML, talk)
    with pytest.raises(TemplateError, match="refuses this conversation: no"):
        ask(process, "{{ raise_exception('no') }}")
    assert ask(process, "still here") == [("still here", -1, -1)]


GREEDY = [
    "{% set ns = namespace(x='ab') %}{% for i in range(40) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
    "{{ 'x' * 10000000000 }}",
    "{% set x = [0] * (10 ** 9) %}",
]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory can only be limited on Linux")
@pytest.mark.parametrize("source", GREEDY)
def test_a_greedy_template_is_an_error(source: str, process: TemplateProcess) -> None:
    with pytest.raises(TemplateError, match="memory"):
        ask(process, source)
    assert ask(process, "ok") == [("ok", -1, -1)]


ENDLESS = [
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{{ 7 ** (7 ** 12) }}",
]


@pytest.mark.parametrize("source", ENDLESS)
def test_an_endless_template_is_an_error_and_the_next_one_runs(source: str) -> None:
    process = TemplateProcess(time_limit=0.2)
    try:
        with pytest.raises(TemplateError, match=r"took longer than 0\.2 seconds"):
            ask(process, source)
    finally:
        process.close()
    after = TemplateProcess(time_limit=10.0)
    assert ask(after, "ok") == [("ok", -1, -1)]
    after.close()


@pytest.mark.skipif(
    not hasattr(signal, "setitimer"), reason="this system has no interval timer; a thread watches there"
)
def test_the_child_ends_itself_even_if_its_parent_is_gone() -> None:
    run = "import engine.text.template_child as child; child.WATCHDOG_SECONDS = 0.2; child.main()"
    request = {"template": ENDLESS[1], "messages": [], "add_generation_prompt": False, "names": {}}
    line = json.dumps(request).encode() + b"\n"
    ended = subprocess.run([sys.executable, "-c", run], input=line, capture_output=True, timeout=60, cwd=ROOT)
    assert ended.returncode == -signal.SIGALRM and json.loads(ended.stdout) == {"ready": True}


def test_a_child_that_dies_is_replaced(process: TemplateProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*values: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*values, **options))
        return started[-1]

    monkeypatch.setattr(template_process.subprocess, "Popen", start)
    assert ask(process, "one") == [("one", -1, -1)]
    started[0].kill()
    started[0].wait()
    with pytest.raises(TemplateError, match="ended its process"):
        ask(process, "two")
    assert ask(process, "three") == [("three", -1, -1)] and len(started) == 2
    process.close()
    assert [child.poll() is not None for child in started] == [True, True]


def test_no_process_is_left_when_nobody_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []
    popen = subprocess.Popen

    def start(*values: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*values, **options))
        return started[-1]

    monkeypatch.setattr(template_process.subprocess, "Popen", start)
    process = TemplateProcess()
    assert ask(process, "x") == [("x", -1, -1)]
    del process
    assert started[0].returncode is not None


def test_a_packaged_app_starts_itself_as_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    assert child_command()[1:] == ["-m", "engine.text.template_child"]
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert child_command() == [sys.executable, "--template-child"]


def test_a_child_that_cannot_start_is_an_error(monkeypatch: pytest.MonkeyPatch, process: TemplateProcess) -> None:
    monkeypatch.setattr(template_process, "child_command", lambda: ["/no/such/program"])
    with pytest.raises(TemplateError, match="could not be started"):
        ask(process, "x")
