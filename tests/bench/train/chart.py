"""The results of training as a picture, in the style of the other charts.

python -m tests.bench.train.chart docs/bench/train.json > docs/bench/train.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import bars
from tests.bench.bars import Bar, Panel
from tests.bench.results import Results
from tests.bench.train.measure import DDP, EQUAL, ROUND, SPEED, TOGETHER, TRAFFIC, protocols_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def draw(results: Results) -> str:
    """The chart as an SVG document."""
    figures, protocols = results.figures, protocols_of(results)

    def speed(name: str, shown: str, *, ours: bool = False) -> Bar:
        value = figures[f"{name}: {SPEED}"]
        return Bar(shown, value, f"{value:,.0f}", ours)

    def traffic(name: str, shown: str, *, ours: bool = False) -> Bar:
        value = figures[f"{name}: {TRAFFIC}"]
        return Bar(shown, value, f"{value:,.0f} B", ours)

    ours = [(protocol, f"tailtrain, {protocol}") for protocol in protocols]
    panels = [
        Panel(
            "Tokens per second",
            [
                speed(TOGETHER, "the hosts' own speeds, summed¹"),
                *(speed(name, shown, ours=True) for name, shown in ours),
                speed(EQUAL, "equal shares, at best²"),
                speed(DDP, "DDP over gloo"),
            ],
        ),
        Panel(
            "Bytes sent per token",
            [
                *(traffic(name, shown, ours=True) for name, shown in ours),
                traffic(DDP, "DDP over gloo"),
            ],
        ),
    ]
    return bars.draw("How fast unequal hosts train together", panels, list(_notes(results)))


def _notes(results: Results) -> Iterator[str]:
    figures, facts = results.figures, results.facts
    rounds = len(results.seconds[f"{protocols_of(results)[0]}: round"])
    yield f"{figures['hosts']:.0f} unequal lab hosts, {figures['cores, all hosts']:.2f} processors together;"
    yield (
        f"rounds of {figures[ROUND]:.0f} s, {rounds} of each protocol;"
        f" {facts.get('cpu_count', '?')} processors, load {float(facts.get('load_avg_1min', 0)):.1f}"
        f" at the start, {str(facts.get('date', '')).partition(' ')[0]}."
    )
    yield "¹ All at once, each for itself. ² Hosts times the slowest's speed, averaging not counted."


if __name__ == "__main__":
    sys.stdout.write(draw(Results.load(Path(sys.argv[1]))))
