"""Sampling presets: the built-in ones and those that a person kept."""

from __future__ import annotations

from collections.abc import Sequence

from app.settings.keeper import SettingsKeeper
from app.state.sampling import PRESETS, Preset
from engine.scheduling.request import SamplingParams


class Presets:
    """A shelf of presets that lies in the settings."""

    def __init__(self, keeper: SettingsKeeper) -> None:
        self._keeper = keeper

    def all(self) -> Sequence[Preset]:
        """Built-in ones first."""
        return (*PRESETS, *self._keeper.value.presets)

    def keep(self, name: str, sampling: SamplingParams) -> Preset:
        """Keep values under a name; one of the same name is replaced."""
        made = Preset(f"own {name.casefold()}", sampling, name)
        others = tuple(known for known in self._keeper.value.presets if known.key != made.key)
        self._keeper.change(presets=(*others, made))
        return made

    def drop(self, preset: Preset) -> None:
        """Forget one that a person kept."""
        self._keeper.change(presets=tuple(known for known in self._keeper.value.presets if known.key != preset.key))
