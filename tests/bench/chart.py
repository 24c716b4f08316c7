"""The results as a picture: bars, readable on light and on dark pages, drawn without any library.

python -m tests.bench.chart docs/bench/no-op.json > docs/bench/no-op.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.contenders import ANSIBLE, OURS, PIPELINING, PYINFRA, START_UP
from tests.bench.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterator

WIDTH, BAR, GAP, LEFT, RIGHT = 760, 24, 10, 196, 70
# Suffix of the benchmark's names, what it stands for.
PANELS = (
    ("", "Round trip below 1 ms"),
    (" at 50 ms", "Round trip 50 ms"),
)
NAMES = (
    (OURS, "tailtrain"),
    (PYINFRA, "plain pyinfra operations"),
    (PIPELINING, "Ansible, pipelining¹"),
    (ANSIBLE, "Ansible"),
)
STYLE = """
  text { font: 14px system-ui, -apple-system, "Segoe UI", sans-serif; fill: #24292f; }
  .title { font-size: 18px; font-weight: 600; }
  .panel { font-weight: 600; }
  .small { font-size: 12px; fill: #57606a; }
  .ours { fill: #0969da; } .other { fill: #afb8c1; } .start { fill: #54aeff; }
  .value { font-weight: 600; font-variant-numeric: tabular-nums; }
  .axis { stroke: #d0d7de; stroke-width: 1; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3; } .small { fill: #9198a1; }
    .ours { fill: #4493f8; } .other { fill: #656c76; } .start { fill: #1f6feb; }
    .axis { stroke: #3d444d; }
  }
"""


def draw(results: Results) -> str:
    """The chart as an SVG document."""
    longest = max(results.median(f"{name}{suffix}") for suffix, _ in PANELS for name, _ in NAMES)
    scale = (WIDTH - LEFT - RIGHT) / longest
    body, height = [], 64
    for suffix, title in PANELS:
        body += [f'<text class="panel" x="16" y="{height + 14}">{title}</text>']
        height += 26
        top = height
        for name, shown in NAMES:
            body += _bar(results, f"{name}{suffix}", shown, height, scale, ours=name == OURS)
            height += BAR + GAP
        body.append(f'<line class="axis" x1="{LEFT}" y1="{top - 4}" x2="{LEFT}" y2="{height - 6}"/>')
        height += 14
    facts = f"{results.facts.get('cpu_count', '?')} processors, {_date(results)}"
    rounds = len(results.seconds[OURS])
    far = len(results.seconds[f"{OURS}{PANELS[1][0]}"])
    notes = (
        f"Seconds, median of {rounds} alternating rounds ({far} at 50 ms).",
        f"Six lab hosts over Tailscale SSH; {facts}.",
        f"The lighter part is pyinfra's own start-up: {results.median(START_UP):.2f} s.",
        "¹ With up to ten retries: over Tailscale SSH it loses hosts without.",
    )
    for note in notes:
        body.append(f'<text class="small" x="16" y="{height + 8}">{note}</text>')
        height += 18
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + 10}" role="img"'
        f' aria-label="{_spoken(results)}">\n<style>{STYLE}</style>\n'
        '<text class="title" x="16" y="32">What a deploy costs that finds nothing to do</text>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _bar(results: Results, name: str, shown: str, top: int, scale: float, *, ours: bool) -> Iterator[str]:
    seconds = results.median(name)
    middle = top + BAR / 2 + 5
    yield f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{shown}</text>'
    kind = "ours" if ours else "other"
    yield f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{seconds * scale:.1f}" height="{BAR}" rx="3"/>'
    if ours:
        start = min(results.median(START_UP), seconds) * scale
        yield f'<rect class="start" x="{LEFT}" y="{top}" width="{start:.1f}" height="{BAR}" rx="3"/>'
    yield f'<text class="value" x="{LEFT + seconds * scale + 8:.1f}" y="{middle}">{seconds:.1f} s</text>'


def _spoken(results: Results) -> str:
    parts = [
        f"{title}: " + ", ".join(f"{shown} {results.median(name + suffix):.1f} s" for name, shown in NAMES)
        for suffix, title in PANELS
    ]
    return ". ".join(parts)


def _date(results: Results) -> str:
    return str(results.facts.get("date", "")).partition(" ")[0]


if __name__ == "__main__":
    sys.stdout.write(draw(Results.load(Path(sys.argv[1]))))
