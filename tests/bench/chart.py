"""A bar chart of ``bench --json`` results as SVG: ours beside the peer's, by kind of work.

``python -m tests.bench.chart OUT.svg NAME=RESULT.json …``
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

WIDTH, BAR, GAP, LEFT = 760, 9, 16, 190
OURS, PEER, TEXT, MUTED = "#2f6fe4", "#98a0ad", "#1d2330", "#667085"


def rows(results: dict[str, dict]) -> list[tuple[str, float, float | None, float | None]]:
    """(label, ours, peer, ratio) for every measured row."""
    found = []
    for name, result in results.items():
        for kind in ("prefill", "decode"):
            for size, rate in result["ours"][kind].items():
                label = f"{name}, {kind} {'B=' if kind == 'decode' else ''}{size}"
                peer = result["peer"][kind][size] if result["peer"] else None
                ratio = result["ratio"][kind][size] if result["ratio"] else None
                found.append((label, rate, peer, ratio))
    return found


def chart(results: dict[str, dict]) -> str:
    """The whole SVG; each row's bars are relative to the larger of its two, the figures stand beside them."""
    entries = rows(results)
    height = 30 + len(entries) * (2 * BAR + GAP)
    room = WIDTH - LEFT - 170
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        'font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="16" fill="{OURS}">KVScope</text>',
        f'<text x="{LEFT + 60}" y="16" fill="{PEER}">llama.cpp</text>',
        f'<text x="{LEFT + 130}" y="16" fill="{MUTED}">tokens/s, same file and threads, one run</text>',
    ]
    for i, (label, ours, peer, ratio) in enumerate(entries):
        top = 28 + i * (2 * BAR + GAP)
        scale = room / max(ours, peer or 0.0)
        parts.append(f'<text x="{LEFT - 8}" y="{top + BAR + 4}" fill="{TEXT}" text-anchor="end">{label}</text>')
        parts.append(f'<rect x="{LEFT}" y="{top}" width="{ours * scale:.1f}" height="{BAR}" rx="2" fill="{OURS}"/>')
        words = f"{ours:,.0f}"
        if peer is not None and ratio is not None:
            low = top + BAR + 1
            parts.append(f'<rect x="{LEFT}" y="{low}" width="{peer * scale:.1f}" height="{BAR}" rx="2" fill="{PEER}"/>')
            words += f" against {peer:,.0f}: {ratio:.1f} ×"
        parts.append(f'<text x="{WIDTH - 162}" y="{top + BAR + 4}" fill="{TEXT}">{words}</text>')
    return "\n".join([*parts, "</svg>", ""])


def main(arguments: list[str]) -> None:
    """Read the results, write the chart."""
    target, *named = arguments
    results = {}
    for entry in named:
        name, _, path = entry.partition("=")
        results[name] = json.loads(Path(path).read_text(encoding="utf-8"))
    Path(target).write_text(chart(results), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
