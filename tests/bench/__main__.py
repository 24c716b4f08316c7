"""`make bench`: what a no-op costs and how fast data is pushed, beside others who do the same.

    python -m tests.bench --lab NAME --ansible FOLDER [--only no-op|push]

Needs a lab of that name, up; see README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from lab.lab import Lab
from lab.settings import Settings
from tests.bench import chart, no_op
from tests.bench.project import CHECKOUT
from tests.bench.push import measure as push
from tests.bench.push.chart import draw as draw_push

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.bench.results import Results, Target

KEPT = CHECKOUT / "docs" / "bench"


def main() -> int:
    """Measure, keep, draw, print; exit code 1 if a target is missed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--lab", required=True, help="name of a lab that is up; its hosts are deployed to")
    parser.add_argument("--ansible", required=True, type=Path, help="folder with ansible-playbook")
    parser.add_argument("--only", choices=["no-op", "push"], help="one part instead of both")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--far-rounds", type=int, default=2, help="of the no-op over a slow link")
    parser.add_argument("--large-rounds", type=int, default=3, help="of the plan for 1,000 hosts")
    parser.add_argument("--narrow-rounds", type=int, default=2, help="of pushing over narrow links")
    parser.add_argument("--megabytes", type=int, default=150, help="of the data set that is pushed")
    parser.add_argument("--keep", type=Path, default=KEPT, help="folder for results and chart")
    given = parser.parse_args()
    lab, met = Lab(Settings(name=given.lab)), True
    if given.only != "push":
        began = time.monotonic()
        results = no_op.measured(lab, given.ansible, given.rounds, given.far_rounds, given.large_rounds)
        (given.keep / "no-op.svg").write_text(chart.draw(results))
        results.save(given.keep / "no-op.json")
        met &= told(results, no_op.ratios(results), no_op.targets(results), began)
    if given.only != "no-op":
        began = time.monotonic()
        rounds = push.Rounds(given.rounds, given.narrow_rounds)
        results = push.measured(lab, given.ansible, rounds, given.megabytes)
        results.save(given.keep / "push.json")
        (given.keep / "push.svg").write_text(draw_push(results))
        met &= told(results, push.ratios(results), push.targets(results), began)
    print(f"\nKept in {given.keep}.")
    return 0 if met else 1


def told(results: Results, ratios: str, targets: Iterable[Target], began: float) -> bool:
    """Print it all; whether every target is met."""
    print(f"\n{results.table()}\n\n{ratios}\n")
    missed = False
    for target in targets:
        missed |= target.missed
        print(f"  {target}")
    print(f"\nMeasured in {time.monotonic() - began:.0f} s.")
    return not missed


if __name__ == "__main__":
    sys.exit(main())
