"""Colour tokens of the two palettes. The same state has the same colour everywhere in the window.

The base tokens are chosen by hand; the others are mixed from them, so that a palette stays consistent when one
colour changes. A token is a name from ``TOKEN_NAMES``; its value is an ``#rrggbb`` string.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any


def mix(one: str, other: str, share: float) -> str:
    """Blend two ``#rrggbb`` colours: ``share`` (0..1) of ``one``, the rest of ``other``."""
    pairs = ((int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(a * share + b * (1 - share)):02x}" for a, b in pairs)


@dataclass(frozen=True, slots=True)
class Base:
    """The colours that are chosen by hand, one set per palette."""

    background: str
    panel: str
    raised: str
    line: str
    text: str
    muted: str
    accent: str
    shared: str
    cached: str
    prefill: str
    pinned: str
    diverged: str
    free: str
    ok: str
    accent_fill: str
    dark: bool


@dataclass(frozen=True, slots=True)
class Palette:
    """All tokens of one palette.

    Surfaces: ``background`` (chat area), ``panel`` (docks, sidebar, composer), ``raised`` (cards, code, inputs),
    ``line`` (borders), ``hover`` and ``pressed`` (ghost buttons, rows). Text: ``text``, ``muted``, ``faint``,
    ``on_accent``. States: ``active`` (= ``accent``), ``shared``, ``cached``, ``prefill``, ``pinned``, ``diverged``
    (= evicted, danger), ``free``, ``ok``. ``*_soft`` are the same colours as quiet backgrounds for text,
    ``*_area`` as the filled areas of plots.
    ``accent_fill`` is the face of a primary button, dark enough for white text.
    """

    dark: bool
    background: str
    panel: str
    raised: str
    line: str
    hover: str
    pressed: str
    text: str
    muted: str
    faint: str
    on_accent: str
    accent: str
    accent_fill: str
    accent_fill_hover: str
    accent_fill_pressed: str
    active: str
    shared: str
    cached: str
    prefill: str
    pinned: str
    diverged: str
    free: str
    ok: str
    accent_soft: str
    active_soft: str
    shared_soft: str
    cached_soft: str
    prefill_soft: str
    pinned_soft: str
    diverged_soft: str
    active_area: str
    cached_area: str
    scroll: str
    scroll_hover: str

    def as_dict(self) -> dict[str, Any]:
        """Token name -> value, ``dark`` left out."""
        return {name: getattr(self, name) for name in TOKEN_NAMES}


TOKEN_NAMES: tuple[str, ...] = tuple(f.name for f in fields(Palette) if f.name != "dark")


def _palette(base: Base) -> Palette:
    soft = 0.26 if base.dark else 0.24
    towards = "#ffffff" if base.dark else "#000000"
    return Palette(
        dark=base.dark,
        background=base.background,
        panel=base.panel,
        raised=base.raised,
        line=base.line,
        hover=mix(base.text, base.panel, 0.055),
        pressed=mix(base.text, base.panel, 0.10),
        text=base.text,
        muted=base.muted,
        faint=mix(base.muted, base.panel, 0.62),
        on_accent="#ffffff",
        accent=base.accent,
        accent_fill=base.accent_fill,
        accent_fill_hover=mix(towards, base.accent_fill, 0.08),
        accent_fill_pressed=mix("#000000", base.accent_fill, 0.16),
        active=base.accent,
        shared=base.shared,
        cached=base.cached,
        prefill=base.prefill,
        pinned=base.pinned,
        diverged=base.diverged,
        free=base.free,
        ok=base.ok,
        accent_soft=mix(base.accent, base.panel, 0.16 if base.dark else 0.11),
        active_soft=mix(base.accent, base.panel, soft),
        shared_soft=mix(base.shared, base.panel, soft),
        cached_soft=mix(base.cached, base.panel, soft),
        prefill_soft=mix(base.prefill, base.panel, soft),
        pinned_soft=mix(base.pinned, base.panel, soft),
        diverged_soft=mix(base.diverged, base.panel, soft),
        active_area=mix(base.accent, base.panel, 0.66 if base.dark else 0.74),
        cached_area=mix(base.cached, base.panel, 0.58),
        scroll=mix(base.muted, base.panel, 0.34),
        scroll_hover=mix(base.muted, base.panel, 0.62),
    )


LIGHT = _palette(
    Base(
        background="#f6f7f9",
        panel="#ffffff",
        raised="#f1f3f6",
        line="#dfe3e9",
        text="#1d2330",
        muted="#667085",
        accent="#2f6fe4",
        shared="#7a5ae0",
        cached="#1f8f83",
        prefill="#d9772b",
        pinned="#c98a12",
        diverged="#c9414d",
        free="#e6e9ee",
        ok="#35b26a",
        accent_fill="#2f6fe4",
        dark=False,
    )
)
DARK = _palette(
    Base(
        background="#16181d",
        panel="#1c1f26",
        raised="#22262e",
        line="#2e333d",
        text="#e6e8ec",
        muted="#98a0ad",
        accent="#4f8ef7",
        shared="#9b7bf2",
        cached="#2fa89a",
        prefill="#e08a3c",
        pinned="#e0a52e",
        diverged="#e5646e",
        free="#2a2f38",
        ok="#3fbf78",
        accent_fill="#3273e6",
        dark=True,
    )
)
