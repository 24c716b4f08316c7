"""The results of pushing as a picture, in the style of the other chart.

python -m tests.bench.push.chart docs/bench/push.json > docs/bench/push.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench.chart import BAR, GAP, RIGHT, STYLE, WIDTH
from tests.bench.push.measure import DEPLOY, MAIN, NARROW, ONE, SIX
from tests.bench.push.senders import ANSIBLE, FEW, OURS, PYINFRA, RSYNC, SCP, TAR
from tests.bench.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterator

LEFT = 216
# What is longer is cut off, so that the others can be told apart.
LONGEST = 1.5
PANELS = (
    (ONE, "All of it to one host"),
    (SIX, "To six hosts, each its share"),
    (f"{ONE}, {NARROW}", f"To one host over links of {NARROW}"),
    (f"{SIX}, {NARROW}", f"To six hosts over links of {NARROW}"),
)
NAMES = (
    (OURS, "tailtrain"),
    (DEPLOY, "tailtrain, whole deploy"),
    (SCP, "scp -r"),
    (RSYNC, "rsync -a"),
    (TAR, "tar over ssh"),
    (PYINFRA, "pyinfra files.put"),
    (ANSIBLE, "Ansible copy¹"),
)


def draw(results: Results) -> str:
    """The chart as an SVG document."""
    body, height = [], 64
    for case, title in PANELS:
        there = [(name, shown) for name, shown in NAMES if f"{case}: {name}" in results.seconds]
        longest = LONGEST * max(results.median(f"{case}: {name}") for name in MAIN)
        scale = (WIDTH - LEFT - RIGHT) / longest
        body.append(f'<text class="panel" x="16" y="{height + 14}">{title}</text>')
        height += 26
        top = height
        for name, shown in there:
            body += _bar(shown, _seconds(results, case, name), height, scale, ours=name in (OURS, DEPLOY))
            height += BAR + GAP
        body.append(f'<line class="axis" x1="{LEFT}" y1="{top - 4}" x2="{LEFT}" y2="{height - 6}"/>')
        height += 14
    for note in _notes(results):
        body.append(f'<text class="small" x="16" y="{height + 8}">{note}</text>')
        height += 18
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + 10}" role="img"'
        f' aria-label="{_spoken(results)}">\n<style>{STYLE}</style>\n'
        f'<text class="title" x="16" y="32">Pushing {_megabytes(results)} MB of data</text>\n'
        + "\n".join(body)
        + "\n</svg>\n"
    )


def _seconds(results: Results, case: str, name: str) -> float:
    """The median; Ansible's is of a few chunks, and told as if the others took as long each."""
    seconds = results.median(f"{case}: {name}")
    if name == ANSIBLE:
        seconds *= results.figures[f"{case.partition(',')[0]}, most chunks of a host"] / FEW
    return seconds


def _bar(shown: str, seconds: float, top: int, scale: float, *, ours: bool) -> Iterator[str]:
    most = WIDTH - LEFT - RIGHT
    length, middle = min(seconds * scale, most), top + BAR / 2 + 5
    yield f'<text x="{LEFT - 10}" y="{middle}" text-anchor="end">{shown}</text>'
    kind = "ours" if ours else "other"
    yield f'<rect class="{kind}" x="{LEFT}" y="{top}" width="{length:.1f}" height="{BAR}" rx="3"/>'
    text = f"{seconds:.1f} s" if seconds < 100 else f"{seconds:.0f} s"
    if length < seconds * scale:
        text = f"→ {text}"
    yield f'<text class="value" x="{LEFT + length + 8:.1f}" y="{middle}">{text}</text>'


def _notes(results: Results) -> Iterator[str]:
    chunks = results.figures[f"{ONE}, chunks"]
    rounds, narrow = (len(results.seconds[f"{case}: {OURS}"]) for case in (ONE, f"{ONE}, {NARROW}"))
    yield f"Seconds for {chunks:.0f} chunks, median of {rounds} alternating rounds ({narrow} at {NARROW})."
    yield "tailtrain hashes every chunk on the host and flushes it to the disk; the others do neither."
    yield f"pyinfra and Ansible: one round. ¹ As long for each as for the first {FEW} chunks."
    facts = results.facts
    yield (
        f"Six lab hosts over Tailscale SSH; {facts.get('cpu_count', '?')} processors,"
        f" load {float(facts.get('load_avg_1min', 0)):.1f} at the start,"
        f" {str(facts.get('date', '')).partition(' ')[0]}."
    )


def _megabytes(results: Results) -> int:
    return round(results.figures[f"{ONE}, bytes"] / 1e6)


def _spoken(results: Results) -> str:
    parts = []
    for case, title in PANELS:
        there = [(name, shown) for name, shown in NAMES if f"{case}: {name}" in results.seconds]
        bars = (f"{shown} {_seconds(results, case, name):.1f} s" for name, shown in there)
        parts.append(f"{title}: {', '.join(bars)}")
    return ". ".join(parts)


if __name__ == "__main__":
    sys.stdout.write(draw(Results.load(Path(sys.argv[1]))))
