"""What a fleet learns, beside single machines with the same data; see README.md."""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from tests.bench.progress import say
from tests.bench.project import CHECKOUT
from tests.bench.quality.data import FILES, shared
from tests.bench.quality.processes import clear
from tests.bench.quality.runs import CORES, Job, Trained, alone, fleet
from tests.bench.results import Results, Target, machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.bench.quality.data import Shared

FLEET, SAME_TOKENS, SAME_TIME = "the fleet", "one machine, same tokens", "the fastest, same time"
ROUNDS, TOKENS = "rounds", "tokens"
WALL = "a seed, all runs"
USUAL = Job(
    model={"layers": 1, "width": 32, "heads": 2, "context": 64},
    training={
        "round_seconds": 1.0,
        "batch_size": 16,
        "learning_rate": 0.005,
        "outer_learning_rate": 0.7,
        "outer_momentum": 0.9,
    },
    target_tokens=48_000_000,
    validation_bytes=131_072,
)
"""So small a model that minutes take it through a hundred rounds; see README.md."""
QUICK = replace(USUAL, target_tokens=12_000_000, validation_bytes=65_536)
_FASTEST = max(CORES, key=CORES.__getitem__)


def own(node: str) -> str:
    """What the model is called that a node makes of its own share."""
    return f"{node}, own share"


def measured(seeds: Sequence[int], job: Job) -> Results:
    """All runs of all seeds, on one machine."""
    results = Results(facts=machine())
    folder = CHECKOUT / ".tailtrain" / "bench-quality"
    data = shared(CHECKOUT / ".tailtrain" / "demo", folder / "data", CORES)
    try:
        for seed in seeds:
            _one_seed(results, seed, job, data, folder / f"seed-{seed}")
    finally:
        clear()
    return results


def _one_seed(results: Results, seed: int, job: Job, data: Shared, place: Path) -> None:
    began = time.monotonic()
    say(f"seed {seed}: the fleet")
    together = fleet(job, data, seed, place / "fleet")
    _keep(results, seed, FLEET, together)
    results.add(FLEET, together.seconds)
    # The same wall-clock at the speed that each had: a single machine loses nothing to averagings.
    tokens = {node: int(speed * together.seconds) for node, speed in together.speeds.items()}
    runs = {
        SAME_TOKENS: (data.all_of(_FASTEST), _FASTEST, together.tokens),
        SAME_TIME: (data.all_of(_FASTEST), _FASTEST, tokens[_FASTEST]),
        **{own(node): (data.own_of(node), node, tokens[node]) for node in CORES},
    }
    # Each has one thread; what they are given is counted in tokens, so they do not disturb each other.
    with ThreadPoolExecutor(max_workers=2) as pool:
        say(f"seed {seed}: {len(runs)} single machines, two at a time")
        singles = {
            name: pool.submit(alone, job, of, seed, place / f"single-{at}", node=node, tokens=max(1, count))
            for at, (name, (of, node, count)) in enumerate(runs.items())
        }
        for name, single in singles.items():
            _keep(results, seed, name, single.result())
    results.add(WALL, time.monotonic() - began)


def _keep(results: Results, seed: int, name: str, found: Trained) -> None:
    for domain, loss in found.losses.items():
        results.figures[f"{seed}, {domain}: {name}"] = loss
    results.figures[f"{seed}, {TOKENS}: {name}"] = found.tokens
    results.figures[f"{seed}, {ROUNDS}: {name}"] = found.rounds


def seeds_of(results: Results) -> list[int]:
    """Those that were measured."""
    return sorted({int(name.partition(",")[0]) for name in results.figures})


def loss(results: Results, domain: str, name: str) -> float:
    """The mean of the seeds, in nats per byte."""
    return statistics.mean(results.figures[f"{seed}, {domain}: {name}"] for seed in seeds_of(results))


def above(results: Results, domain: str, name: str) -> list[float]:
    """By how many per cent the fleet's loss is above another's, by seed; below 0 where it is better."""
    return [
        (results.figures[f"{seed}, {domain}: {FLEET}"] / results.figures[f"{seed}, {domain}: {name}"] - 1)
        * 100
        for seed in seeds_of(results)
    ]


def names_of(results: Results) -> list[str]:
    """All that are compared, the fleet first."""
    return [FLEET, SAME_TOKENS, SAME_TIME, *(own(node) for node in CORES)]


def ratios(results: Results) -> str:
    """Losses and differences by domain, as means of the seeds."""
    lines = [f"{'':26}" + "".join(f"{domain:>20}" for domain in FILES)]
    for name in names_of(results):
        cells = [
            f"{loss(results, domain, name):.4f} ({statistics.mean(above(results, domain, name)):+.2f} %)"
            for domain in FILES
        ]
        lines.append(f"{name:26}" + "".join(f"{cell:>20}" for cell in cells))
    lines.append("in brackets: the fleet's loss against it; below 0 the fleet is better")
    for seed in seeds_of(results):
        tokens = ", ".join(
            f"{name} {results.figures[f'{seed}, {TOKENS}: {name}']:,.0f}" for name in names_of(results)
        )
        rounds = results.figures[f"{seed}, {ROUNDS}: {FLEET}"]
        lines.append(f"seed {seed}: {rounds:.0f} rounds; tokens: {tokens}")
    return "\n".join(lines)


def targets(results: Results) -> Iterator[Target]:
    """What was promised: better than others in the worst seed, close to the same tokens in the mean."""
    for domain in FILES:
        worst = max(max(above(results, domain, own(node))) for node in CORES)
        yield Target(f"{domain}: loss above the best of the nodes' own", worst, 0, "%")
        same = statistics.mean(above(results, domain, SAME_TOKENS))
        yield Target(f"{domain}: loss above one machine's, same tokens", same, 1, "%")
        time_ = max(above(results, domain, SAME_TIME))
        yield Target(f"{domain}: loss above the fastest's, same time", time_, 0, "%")
