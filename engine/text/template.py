"""Chat templates: jinja2 in its sandbox, with the names and rules that model files expect (those of Hugging Face).

A template gets its messages as ``Marked`` text, so the result says which part of the prompt came from whom.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.environment import Environment, Template
from jinja2.exceptions import TemplateError as JinjaError
from jinja2.ext import Extension, loopcontrols
from jinja2.filters import make_attrgetter
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import pass_environment

from engine.errors import TemplateError
from engine.text import marked
from engine.text.marked import Marked

Segment = tuple[str, int, int]
"""(text, message number or -1 for the template's own, offset in that message or -1)."""

MAX_OUTPUT = 8 * 1024 * 1024
"""Characters that a template may produce."""

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>\\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The template of last resort, for files that have none and for templates that fail."""


class _MarkedCode(CodeGenerator):
    """Compiles ``a ~ b`` so that it keeps marks; all else keeps them by itself."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:
        self.write("environment.concat((")
        for part in node.nodes:
            self.write("str(")
            self.visit(part, frame)
            self.write("), ")
        self.write("))")


class _Generation(Extension):
    """``{% generation %}…{% endgeneration %}`` marks replies for training: here it is only its body."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    code_generator_class = _MarkedCode
    concat = staticmethod(marked.join)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """As ever, but ``"".join(…)`` of a text in the template keeps marks too."""
        return super().getattr(Marked(obj) if type(obj) is str else obj, attribute)


class _Refusal(JinjaError):
    """The template itself refused the conversation."""


def _raise_exception(message: str) -> None:
    raise _Refusal(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


@pass_environment
def _join(environment: Environment, value: Iterable[Any], d: str = "", attribute: str | int | None = None) -> Marked:
    if attribute is not None:
        value = map(make_attrgetter(environment, attribute), value)
    return Marked(d).join([str(part) for part in value])


def _environment() -> Environment:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    environment.filters["tojson"] = _to_json
    environment.filters["join"] = _join
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


@lru_cache(maxsize=8)
def _compiled(source: str) -> Template:
    return _environment().from_string(source)


def render(
    source: str,
    messages: Sequence[tuple[str, str]],
    *,
    add_generation_prompt: bool,
    names: Mapping[str, str],
) -> list[Segment]:
    """Run a template in this process over (role, text) messages.

    ``names`` are further texts for the template, such as ``bos_token``. Errors: ``TemplateError`` with a sentence, also
    where the template itself refuses the conversation.
    """
    values = [{"role": role, "content": Marked.message(text, number)} for number, (role, text) in enumerate(messages)]
    try:
        result = _compiled(source).render(
            messages=values,
            add_generation_prompt=add_generation_prompt,
            tools=None,
            documents=None,
            **names,
        )
    except _Refusal as error:
        raise TemplateError(f"The model's chat template refuses this conversation: {error}") from error
    except MemoryError as error:
        raise TemplateError("The model's chat template needs too much memory.") from error
    except Exception as error:  # a template can raise whatever Python can
        kind = type(error).__name__
        raise TemplateError(f"The model's chat template failed: {error} ({kind}).") from error
    if len(result) > MAX_OUTPUT:
        raise TemplateError("The model's chat template made a prompt that is too large.")
    return list(Marked(result).segments())
