"""What was learned as a picture, in the style of the other charts.

python -m tests.bench.quality.chart docs/bench/quality.json > docs/bench/quality.svg
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.bench import bars
from tests.bench.bars import Bar, Panel
from tests.bench.quality.data import FILES
from tests.bench.quality.measure import FLEET, TOKENS, loss, names_of, seeds_of
from tests.bench.results import Results

if TYPE_CHECKING:
    from collections.abc import Iterator

_AXIS = 0.9  # of the lowest loss: the differences are what is to be seen


def draw(results: Results) -> str:
    """The chart as an SVG document."""
    panels = []
    for domain in FILES:
        those = {name: loss(results, domain, name) for name in names_of(results)}
        shown = [Bar(name, value, f"{value:.3f}", name == FLEET) for name, value in those.items()]
        begins = _AXIS * min(those.values())
        panels.append(Panel(f"{domain}: held-out loss, nats per byte; lower is better", shown, begins))
    return bars.draw("What a fleet of unequal nodes learns", panels, list(_notes(results)))


def _notes(results: Results) -> Iterator[str]:
    seeds, facts = seeds_of(results), results.facts
    tokens = results.figures[f"{seeds[0]}, {TOKENS}: {FLEET}"]
    yield f"Mean of {len(seeds)} seeds, {tokens / 1e6:.1f} million tokens each. The axis does not begin at 0."
    yield (
        f"Nodes with parts of a processor as 8:4:2:2; {facts.get('cpu_count', '?')} processors,"
        f" {str(facts.get('date', '')).partition(' ')[0]}."
    )


if __name__ == "__main__":
    sys.stdout.write(draw(Results.load(Path(sys.argv[1]))))
