"""`make bench`: what a no-op costs, how fast data is pushed, how fast and how well a fleet trains.

    python -m tests.bench --lab NAME --ansible FOLDER [--only no-op|push|train|quality]

Needs a lab of that name, up; see README.md for what is measured and how.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lab.lab import Lab
from lab.settings import Settings
from tests.bench import chart, no_op
from tests.bench.project import CHECKOUT
from tests.bench.push import measure as push
from tests.bench.push.chart import draw as draw_push
from tests.bench.quality import measure as quality
from tests.bench.quality.chart import draw as draw_quality
from tests.bench.train import measure as train
from tests.bench.train.chart import draw as draw_train

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from tests.bench.results import Results, Target

KEPT = CHECKOUT / "docs" / "bench"
PARTS = ("no-op", "push", "train", "quality")


@dataclass(frozen=True)
class Part:
    """One part of the benchmark: how it is measured, drawn, compared and judged."""

    measured: Callable[[], Results]
    draw: Callable[[Results], str]
    ratios: Callable[[Results], str]
    targets: Callable[[Results], Iterator[Target]]


def main() -> int:
    """Measure, keep, draw, print; exit code 1 if a target is missed."""
    given = _parser().parse_args()
    parts, met = _parts(given), True
    for name in [given.only] if given.only else PARTS:
        began = time.monotonic()
        part = parts[name]
        results = part.measured()
        results.save(given.keep / f"{name}.json")
        (given.keep / f"{name}.svg").write_text(part.draw(results))
        met &= told(results, part.ratios(results), part.targets(results), began)
    print(f"\nKept in {given.keep}.")
    return 0 if met else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.bench")
    parser.add_argument("--lab", required=True, help="name of a lab that is up; its hosts are deployed to")
    parser.add_argument("--ansible", required=True, type=Path, help="folder with ansible-playbook")
    parser.add_argument("--only", choices=PARTS, help="one part instead of all")
    parser.add_argument("--rounds", type=int, default=5, help="of the no-op, and of pushing")
    parser.add_argument("--far-rounds", type=int, default=2, help="of the no-op over a slow link")
    parser.add_argument("--large-rounds", type=int, default=3, help="of the plan for 1,000 hosts")
    parser.add_argument("--narrow-rounds", type=int, default=2, help="of pushing over narrow links")
    parser.add_argument("--megabytes", type=int, default=150, help="of the data set that is pushed")
    parser.add_argument("--quick", action="store_true", help="training: short rounds, one seed, few tokens")
    parser.add_argument("--protocols", nargs="+", default=["decentralized", "eneGossip"], help="of training")
    parser.add_argument("--seeds", nargs="+", type=int, default=[17, 18, 19], help="of what is learned")
    parser.add_argument("--keep", type=Path, default=KEPT, help="folder for results and charts")
    return parser


def _parts(given: argparse.Namespace) -> dict[str, Part]:
    lab, quick = Lab(Settings(name=given.lab)), given.quick
    rounds = push.Rounds(given.rounds, given.narrow_rounds)
    seeds = given.seeds[:1] if quick else given.seeds
    return {
        "no-op": Part(
            lambda: no_op.measured(lab, given.ansible, given.rounds, given.far_rounds, given.large_rounds),
            *(chart.draw, no_op.ratios, no_op.targets),
        ),
        "push": Part(
            lambda: push.measured(lab, given.ansible, rounds, given.megabytes),
            *(draw_push, push.ratios, push.targets),
        ),
        "train": Part(
            lambda: train.measured(lab, given.protocols, train.QUICK if quick else train.USUAL),
            *(draw_train, train.ratios, train.targets),
        ),
        "quality": Part(
            lambda: quality.measured(seeds, quality.QUICK if quick else quality.USUAL),
            *(draw_quality, quality.ratios, quality.targets),
        ),
    }


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
