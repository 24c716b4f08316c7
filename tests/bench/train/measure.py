"""How fast unequal hosts train together, beside what they could do at best and plain DDP; see README.md."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tailtrain.planning import layout
from tailtrain.planning.memory import parameters
from tailtrain.planning.settings import ModelSettings
from tests.bench.progress import say
from tests.bench.project import CHECKOUT
from tests.bench.results import Results, Target, machine
from tests.bench.train import alone_speeds, loss_of_a_node, plain_ddp
from tests.bench.train.fleet import Fleet
from tests.bench.train.hosts import Hosts, Memory

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

    from lab.lab import Lab

ALONE, TOGETHER = "sum of the hosts, one by one", "sum of the hosts, all at once"
EQUAL = "equal shares"
DDP = "DDP"
SPEED, TRAFFIC = "tokens/s", "bytes/token"
PREDICTED, LATEST = "predicted round, s", "last rounds, s"
LOST = "a host loses its power"
PIPELINE = "a pipeline's host loses its power"
BEYOND = "memory beyond model and optimiser, MB"
LIBRARIES = "pages of libraries besides, MB"
ROUND = "round_seconds"
_STATE_BYTES = 16  # of a parameter: weight, gradient, two moments, four bytes each
_SAMPLE_SECONDS = 1.0
_OF_PIPELINES = ("centralized", "eneGossip")
_DIVIDED = {
    "distribution_strategy": "pipelineParallel",
    "resource_allocation": "declared_cores",
    "load_balancing": "static",
}


@dataclass(frozen=True)
class Effort:
    """How long it may take.

    Attributes:
        round_seconds: of training in the rounds that are measured.
        rounds: measured of each protocol, after one that is not.
        alone_seconds: of each measurement of a host alone.
        ddp_seconds: of the measurement of DDP.
        short_round_seconds: of the training in which a host is lost.
    """

    round_seconds: float
    rounds: int
    alone_seconds: float
    ddp_seconds: float
    short_round_seconds: float


USUAL = Effort(60.0, 2, 10.0, 40.0, 10.0)
QUICK = Effort(15.0, 2, 5.0, 15.0, 8.0)


def measured(lab: Lab, protocols: Sequence[str], effort: Effort) -> Results:
    """All of it, in one run on one machine."""
    results = Results(facts=machine())
    folder = CHECKOUT / ".tailtrain" / "bench-train"
    hosts = Hosts(lab)
    fleet = Fleet(lab, hosts, folder / "project")
    fleet.folder.mkdir(parents=True, exist_ok=True)
    results.figures |= {ROUND: effort.round_seconds, "hosts": len(hosts.names)}
    results.figures["cores, all hosts"] = sum(hosts.quotas.values())
    try:
        hosts.lift()
        say("installing, and bringing the data ...")
        fleet.make(protocols[0], effort.round_seconds)
        fleet.distribute()
        _alone(results, hosts, effort, folder)
        found = plain_ddp.measured(hosts, effort.ddp_seconds, folder / "ddp")
        results.figures[f"{DDP}: {SPEED}"] = found.tokens_per_second
        results.figures[f"{DDP}: {TRAFFIC}"] = found.bytes_per_token
        for protocol in protocols:
            fleet.make(protocol, effort.round_seconds)
            with fleet.training():
                _rounds(results, fleet, protocol, effort)
        fleet.make(protocols[-1], effort.short_round_seconds)
        with fleet.training():
            _keep(results, LOST, loss_of_a_node.measured(fleet, hosts.names[len(hosts.names) // 2]))
        fleet.make(protocols[-1] if protocols[-1] in _OF_PIPELINES else _OF_PIPELINES[0], 10.0, **_DIVIDED)
        with fleet.training():
            # Every process starts anew, which takes a minute with a tenth of a processor.
            hosts.lift()
            _keep(results, PIPELINE, loss_of_a_node.of_a_pipeline(fleet, hosts.names[1]))
    finally:
        for host in hosts.by_name.values():
            host.set_cpu_quota(host.state.cpu_quota_cores)
    return results


def _alone(results: Results, hosts: Hosts, effort: Effort, folder: Any) -> None:
    one_by_one, at_once = alone_speeds.measured(hosts, effort.alone_seconds, folder / "alone")
    for name, speed in at_once.items():
        results.figures[f"{name} alone: {SPEED}"] = speed
    results.figures[f"{ALONE}: {SPEED}"] = sum(one_by_one.values())
    results.figures[f"{TOGETHER}: {SPEED}"] = sum(at_once.values())
    # Each the tokens of the slowest, and nothing for averaging: no equal shares can be faster.
    results.figures[f"{EQUAL}: {SPEED}"] = min(at_once.values()) * len(at_once)


def _rounds(results: Results, fleet: Fleet, protocol: str, effort: Effort) -> None:
    """Measure from the end of the first round to the end of the last."""
    hosts = fleet.hosts
    most = int(effort.round_seconds * 3 + 120)
    before = len(fleet.wait_for_rounds(1, most))
    sent = hosts.sent()
    memory: list[Memory] = []
    for number in range(effort.rounds):
        say(f"{protocol}: round {number + 1} of {effort.rounds}, {effort.round_seconds:g} s of training")
        deadline = time.monotonic() + most
        while len(fleet.rounds()) < before + number + 1 and time.monotonic() < deadline:
            memory += map(hosts.worker_memory, (hosts.names[0], hosts.names[-1]))
            time.sleep(_SAMPLE_SECONDS)
    rounds = fleet.wait_for_rounds(before + effort.rounds, 1)[before - 1 : before + effort.rounds]
    sent = hosts.sent() - sent
    for earlier, later in pairwise(rounds):
        results.add(f"{protocol}: round", later["ended_unix"] - earlier["ended_unix"])
        results.add(f"{protocol}: averaging", later["averaging_seconds"])
    first, last = rounds[0]["round"], rounds[-1]["round"]
    tokens, speed = 0, 0.0
    for name in hosts.names:
        own = _own(fleet, name, first, last)
        tokens += own.tokens
        speed += own.tokens_per_second
        results.figures[f"{protocol}, {name}: {SPEED}"] = own.tokens_per_second
    results.figures[f"{protocol}: {SPEED}"] = speed
    results.figures[f"{protocol}: {TRAFFIC}"] = sent / tokens
    document = json.loads(hosts.read(hosts.names[0], layout.CONFIG))
    state = parameters(ModelSettings(**document["model"])) * _STATE_BYTES
    own, files = (max(column) for column in zip(*memory, strict=True))
    for figure, size in ((BEYOND, own - state), (LIBRARIES, files)):
        results.figures[figure] = max(size / 1e6, results.figures.get(figure, 0.0))
    if predicted := _predicted(hosts):
        results.figures[f"{protocol}: {PREDICTED}"] = predicted


@dataclass(frozen=True)
class _Own:
    tokens: int
    tokens_per_second: float


def _own(fleet: Fleet, name: str, first: int, last: int) -> _Own:
    """What a host trained after round `first` and up to `last`, by its own word, averagings included."""
    lines = [entry for entry in fleet.rounds(name) if first <= entry["round"] <= last]
    if len(lines) <= 1:
        return _Own(0, 0.0)
    tokens = sum(
        member["tokens"] for entry in lines[1:] for member in entry["group"] if member["node"] == name
    )
    return _Own(tokens, tokens / (lines[-1]["ended_unix"] - lines[0]["ended_unix"]))


def _predicted(hosts: Hosts) -> float | None:
    """Seconds that the plan expects of a round; None where nothing was predicted."""
    kept, config = (hosts.read(hosts.names[0], path) for path in (layout.TOPOLOGY, layout.CONFIG))
    document = json.loads(kept or "{}")
    if document.get("run_id") != json.loads(config)["run_id"]:
        return None
    said = document["topology"]["prediction"]
    return float(said["training_seconds"] + said["averaging_seconds"])


def _keep(results: Results, what: str, lost: loss_of_a_node.Lost) -> None:
    if lost.detected is not None:
        results.add(f"{what}: detected", lost.detected)
    results.add(f"{what}: went on without it", lost.recovered)
    results.figures[f"{what}: the others waited, s"] = lost.waited


def protocols_of(results: Results) -> list[str]:
    """Those that were measured."""
    return [name.removesuffix(": round") for name in results.seconds if name.endswith(": round")]


def ratios(results: Results) -> str:
    """Each protocol against the hosts alone, equal shares and DDP."""
    figures = results.figures
    crowded = figures[f"{TOGETHER}: {SPEED}"] / figures[f"{ALONE}: {SPEED}"]
    lines = [f"all at once reach {crowded:.1%} of what they reach one by one, because they are one machine"]
    for protocol in protocols_of(results):
        speed = figures[f"{protocol}: {SPEED}"]
        lines.append(
            f"{protocol}: {share(results, protocol):.1%} of the sum of the hosts"
            f" ({speed / figures[f'{ALONE}: {SPEED}']:.1%} of one by one),"
            f" {speed / figures[f'{EQUAL}: {SPEED}']:.1f} times equal shares at best,"
            f" {speed / figures[f'{DDP}: {SPEED}']:.1f} times DDP;"
            f" {figures[f'{protocol}: {TRAFFIC}']:.1f} bytes per token,"
            f" {less(results, protocol):.0f} times less"
        )
    return "\n".join([*lines, *(f"{name}: {value:,.1f}" for name, value in figures.items())])


def share(results: Results, protocol: str) -> float:
    """The fleet's speed as a part of the sum of its hosts', each for itself at the same time."""
    return results.figures[f"{protocol}: {SPEED}"] / results.figures[f"{TOGETHER}: {SPEED}"]


def less(results: Results, protocol: str) -> float:
    """How many times fewer bytes per token than DDP."""
    return results.figures[f"{DDP}: {TRAFFIC}"] / results.figures[f"{protocol}: {TRAFFIC}"]


def targets(results: Results) -> Iterator[Target]:
    """What was promised."""
    for protocol in protocols_of(results):
        parts = f"{protocol}, of the sum of the hosts"
        yield Target(parts, share(results, protocol) * 100, 95, "%", least=True)
        yield Target(f"{protocol}, fewer bytes than DDP", less(results, protocol), 100, "x", least=True)
        if predicted := results.figures.get(f"{protocol}: {PREDICTED}"):
            off = abs(results.median(f"{protocol}: round") / predicted - 1) * 100
            yield Target(f"{protocol}, a round, off the prediction", off, 15, "%")
    yield Target("a lost host, the others waited", results.figures[f"{LOST}: the others waited, s"], 10, "s")
    yield Target(BEYOND.removesuffix(", MB"), results.figures[BEYOND], 400, "MB")
