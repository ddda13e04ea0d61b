"""Per-chat settings: the system prompt, how the next token is chosen, and named presets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from app.text import tr
from engine.scheduling.request import SamplingParams

Overflow = Literal["stop", "drop_oldest"]
DEFAULT_SAMPLING = SamplingParams(temperature=0.7, top_p=0.95, min_p=0.05)


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """What a person may set for one chat. An empty system prompt leaves it to the model's template.

    ``max_new`` limits one reply, in tokens. A ``seed`` inside ``sampling`` is used for every reply except one that is
    regenerated, which always draws anew. ``overflow`` says what happens when the chat outgrows the context: stop and
    ask, or leave the oldest turns out of the prompt. ``plain_template``: ChatML in place of the model's own chat
    template, for a conversation that this one refused.
    """

    system_prompt: str = ""
    sampling: SamplingParams = DEFAULT_SAMPLING
    max_new: int = 1024
    overflow: Overflow = "stop"
    plain_template: bool = False


@dataclass(frozen=True, slots=True)
class Preset:
    """A named set of sampling values; ``own_name`` is the name of one that a person kept."""

    key: str
    sampling: SamplingParams
    own_name: str = ""

    @property
    def is_own(self) -> bool:
        """Whether a person kept it."""
        return bool(self.own_name)

    @property
    def name(self) -> str:
        """The name that a person sees."""
        return self.own_name or {
            "balanced": tr("Balanced"),
            "precise": tr("Precise"),
            "creative": tr("Creative"),
            "greedy": tr("Always the likeliest"),
        }.get(self.key, self.key)


PRESETS = (
    Preset("balanced", DEFAULT_SAMPLING),
    Preset("precise", SamplingParams(temperature=0.3, top_p=0.9, min_p=0.1)),
    Preset("creative", SamplingParams(temperature=1.1, top_p=0.98, min_p=0.03)),
    Preset("greedy", SamplingParams()),
)


def preset_of(sampling: SamplingParams, presets: Sequence[Preset] = PRESETS) -> Preset | None:
    """The preset with these values (the seed aside), or None when they were set by hand."""
    plain = replace(sampling, seed=None)
    return next((preset for preset in presets if preset.sampling == plain), None)
