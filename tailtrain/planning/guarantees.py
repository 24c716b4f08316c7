"""The specification's six guarantees, each judged by what was measured in a run.

A guarantee is met or not met by a figure, or was not exercised: because nothing happened that would have put
it to the test, or because the run did not use what it promises by name (ENE gossip).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from tailtrain.planning.balance import health_of, idle_shares, imbalances
from tailtrain.planning.plan import quorum_of
from tailtrain.spec import HEALTH_WEIGHTED, CoordinationProtocol, NetworkNode, TrainingConfiguration

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BUSY_TARGET = 0.90
IDLE_TARGET = 0.05
IMBALANCE_TARGET = 0.05


class Verdict(StrEnum):
    """What can be said about a guarantee after a run."""

    MET = "met"
    NOT_MET = "not met"
    NOT_EXERCISED = "not exercised"


@dataclass(frozen=True)
class Guarantee:
    """A guarantee with what was measured for it."""

    name: str
    verdict: Verdict
    measured: str


@dataclass(frozen=True)
class RunRecord:
    """What a run left behind.

    Attributes:
        rounds: the primary's progress, one entry for each averaging of all.
        contributions: by node, as the final model's manifest has them.
        cores: cores that each node's worker was allotted.
        memory_bytes: memory that it was allotted.
        usable_cores: the cores behind each node's threads.
        views: the nodes that each node saw at its last averaging.
        availability: by node, how it fetched a chunk that it does not own, None where it did not try.
        pairs: entries of averagings in pairs, of all nodes' progress, each once.
        members: with gossip, how each node compared its view of the members with all others' at the end.
        deaths: that the primary found by gossip, with the seconds that this took.
    """

    rounds: Sequence[Mapping[str, Any]]
    contributions: Sequence[Mapping[str, Any]]
    cores: Mapping[str, int]
    memory_bytes: Mapping[str, int]
    usable_cores: Mapping[str, float]
    views: Mapping[str, Sequence[str]]
    availability: Mapping[str, Mapping[str, Any] | None]
    pairs: Sequence[Mapping[str, Any]] = ()
    members: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    deaths: Sequence[Mapping[str, Any]] = ()


def judge(
    nodes: Sequence[NetworkNode], training: TrainingConfiguration, record: RunRecord
) -> tuple[Guarantee, ...]:
    """The six guarantees in the specification's order."""
    return (
        _network(nodes, record),
        _resources(nodes, record),
        _faults(nodes, training, record),
        _balance(training, record),
        _data(nodes, training, record),
        _coordination(training, record),
    )


def _verdict(*, met: bool) -> Verdict:
    return Verdict.MET if met else Verdict.NOT_MET


def _took_part(record: RunRecord) -> list[str]:
    """The nodes whose trained tokens are in the final average."""
    return [c["node"] for c in record.contributions if c["tokens"] > 0 and c["in_final_average"]]


def _network(nodes: Sequence[NetworkNode], record: RunRecord) -> Guarantee:
    took_part = _took_part(record)
    absent = [node.hostname for node in nodes if node.hostname not in took_part]
    measured = f"{len(took_part)} of {len(nodes)} nodes trained and are in the final average"
    if absent:
        measured += f"; not {', '.join(absent)}"
    return Guarantee("networkUtilization", _verdict(met=not absent), measured)


def busy_share(record: RunRecord) -> float:
    """Processor time used while training, of what the nodes' cores could have given."""
    used = available = 0.0
    for entry in (*record.rounds, *record.pairs):
        for member in entry["group"]:
            used += member["cpu_seconds"]
            available += member["train_seconds"] * record.usable_cores.get(member["node"], 1.0)
    return used / available if available else 0.0


def _resources(nodes: Sequence[NetworkNode], record: RunRecord) -> Guarantee:
    """What was allocated on nodes that took part, of all that is declared, and how busy it was."""
    cores, memory = sum(node.cores for node in nodes), sum(node.ram_gb for node in nodes)
    took_part = _took_part(record)
    given_cores = sum(record.cores.get(name, 0) for name in took_part)
    given_memory = sum(record.memory_bytes.get(name, 0) for name in took_part) / 2**30
    busy = busy_share(record)
    met = given_cores >= cores and given_memory >= memory and busy >= BUSY_TARGET
    return Guarantee(
        "resourceUtilization",
        _verdict(met=met),
        f"{given_cores} of {cores} cores and {given_memory:.0f} of {memory} GB allocated;"
        f" processors {busy:.0%} busy while training (target {BUSY_TARGET:.0%})",
    )


@dataclass(frozen=True)
class Losses:
    """Who and what was lost in a run.

    Attributes:
        lost: nodes that were in one averaging and not in the next, once for each time.
        regained: those of them that came back, once for each time.
        away: those that did not.
        fewest: members of the smallest averaging.
        rounds: numbers without an averaging on the primary, and averagings that had to be done again.
        tokens: committed once, and taken back later.
        taken_over: records of lost nodes that the others trained, as often as they were.
    """

    lost: tuple[str, ...]
    regained: tuple[str, ...]
    away: tuple[str, ...]
    fewest: int
    rounds: int
    tokens: int
    taken_over: int = 0


def losses(record: RunRecord) -> Losses:
    """What the primary's progress says about losses."""
    lost: list[str] = []
    regained: list[str] = []
    away: set[str] = set()
    present: set[str] = set()
    rounds = tokens = 0
    for entry in record.rounds:
        # Where the model is divided, who stands by is not lost.
        members = set(entry["live"]) if _divided(entry) else {member["node"] for member in entry["group"]}
        gone, back = present - members, members & away
        lost += sorted(gone)
        regained += sorted(back)
        away = (away | gone) - back
        present = members
    for before, entry in pairwise(record.rounds):
        rounds += abs(entry.get("since", entry["round"] - 1) - before["round"])
        tokens += max(0, before["total_tokens"] - entry["total_tokens"])
    fewest = min((len(entry["live" if _divided(entry) else "group"]) for entry in record.rounds), default=0)
    taken_over = sum(
        sum(member.get("for", {}).values())
        for entry in (*record.rounds, *record.pairs)
        for member in entry["group"]
    )
    return Losses(tuple(lost), tuple(regained), tuple(sorted(away)), fewest, rounds, tokens, taken_over)


def _faults(nodes: Sequence[NetworkNode], training: TrainingConfiguration, record: RunRecord) -> Guarantee:
    """Met where training went on within the quorum, to a final model, and kept all that was committed."""
    found = losses(record)
    if not found.lost and not found.rounds and not found.tokens:
        return Guarantee("faultTolerance", Verdict.NOT_EXERCISED, "no node was lost in this run")
    quorum = quorum_of(len(nodes)) if training.fault_tolerance else len(nodes)
    measured = (
        f"{len(found.lost)} lost ({', '.join(found.lost) or 'none'}), {len(found.regained)} regained;"
        f" {found.rounds} rounds and {found.tokens:,} committed tokens lost;"
        f" training went on with {found.fewest} of {len(nodes)} nodes (quorum {quorum})"
    )
    if found.taken_over:
        measured += f"; {found.taken_over:,} records of lost nodes trained by the others"
    if found.away:
        measured += f"; not back: {', '.join(found.away)}"
    met = bool(record.contributions) and found.fewest >= quorum and not found.tokens
    return Guarantee("faultTolerance", _verdict(met=met), measured)


def _divided(entry: Mapping[str, Any]) -> bool:
    """Whether a round is one of a divided model, which counts steps."""
    return "step" in entry


def _balance(training: TrainingConfiguration, record: RunRecord) -> Guarantee:
    """Met where nobody waited for others, and work followed speed and health."""
    idle = idle_shares(record)
    worst = max(idle, key=lambda node: idle[node], default=None)
    if worst is None:
        return Guarantee("loadBalancing", Verdict.NOT_EXERCISED, "fewer than two rounds, nothing to compare")
    imbalance = max(imbalances(record).values(), default=0.0)
    weighed = training.load_balancing == HEALTH_WEIGHTED
    healths = [health_of(member) for entry in record.rounds for member in entry["group"]]
    measured = (
        f"largest idle share {idle[worst]:.1%} ({worst}, target {IDLE_TARGET:.0%}); work share and"
        f" speed{' x health' if weighed else ''} share at most {imbalance:.1%} apart"
        f" (target {IMBALANCE_TARGET:.0%})"
    )
    if weighed:
        measured += f"; lowest health {min(healths):.2f}"
    met = idle[worst] <= IDLE_TARGET and imbalance <= IMBALANCE_TARGET
    return Guarantee("loadBalancing", _verdict(met=met), measured)


def _data(nodes: Sequence[NetworkNode], training: TrainingConfiguration, record: RunRecord) -> Guarantee:
    """Met where every node fetched and verified a chunk that it does not own, after the training."""
    name = "dataAvailability"
    tried = {node: each for node, each in record.availability.items() if each}
    asked = {node: each for node, each in tried.items() if each["chunk"]}
    if not asked:
        why = "every node owns rows of every chunk" if tried else "no node tried to fetch another's chunk"
        return Guarantee(name, Verdict.NOT_EXERCISED, why)
    failed = {node: str(each["error"]) for node, each in asked.items() if each["error"]}
    got = [each for each in asked.values() if not each["error"]]
    # A node that owns rows of every chunk has them all: there is nothing that it would have to get.
    needed = [node.hostname for node in nodes if node.hostname in asked or node.hostname not in tried]
    measured = f"{len(got)} of {len(needed)} nodes fetched and verified a random chunk that they do not own"
    if got:
        places = sorted({str(each["source"]) for each in got})
        whence = training.storage_backend.value if places == ["remote"] else ", ".join(places)
        measured += f", from {whence}; the slowest took {max(float(each['seconds']) for each in got):.1f} s"
    for why in dict.fromkeys(failed.values()):
        measured += f"; not {', '.join(sorted(node for node in failed if failed[node] == why))}: {why}"
    untried = [node for node in needed if node not in asked]
    if untried:
        measured += f"; not tried on {', '.join(untried)}"
    return Guarantee(name, _verdict(met=len(got) == len(needed)), measured)


def _coordination(training: TrainingConfiguration, record: RunRecord) -> Guarantee:
    if not record.views:
        return Guarantee("coordination", Verdict.NOT_MET, "no node said whom it saw at the end")
    views = {tuple(sorted(view)) for view in record.views.values()}
    measured = (
        f"all {len(record.views)} nodes saw the same {len(next(iter(views)))} members at the end"
        if len(views) == 1
        else f"{len(views)} different views of the members at the end"
    )
    if training.coordination_protocol is not CoordinationProtocol.ENE_GOSSIP:
        protocol = training.coordination_protocol.value
        return Guarantee(
            "coordination", Verdict.NOT_EXERCISED, f"needs eneGossip; with {protocol}, {measured}"
        )
    if record.members:
        return _gossip(record)
    return Guarantee("coordination", _verdict(met=len(views) == 1), measured)


def _gossip(record: RunRecord) -> Guarantee:
    """Met where all nodes that were left saw exactly the same members at the end, each having asked all."""
    differing = sorted(node for node, seen in record.members.items() if not seen["equal"])
    views = {tuple(sorted(seen["live"])) for seen in record.members.values()}
    met = not differing and len(views) == 1
    measured = (
        f"all {len(record.members)} nodes asked all others, and saw the same {len(next(iter(views)))} members"
        if met
        else f"{len(views)} different views of the members at the end"
    )
    for node in differing:
        seen = record.members[node]
        parts = [f"{other} sees {how}" for other, how in sorted(seen["differing"].items())]
        parts += [f"{other} did not answer" for other in seen["silent"]]
        measured += f"; by {node}, {', '.join(parts)}"
    known = [float(death["seconds"]) for death in record.deaths if death["seconds"] is not None]
    if record.deaths:
        measured += f"; {len(record.deaths)} found dead ({', '.join(d['node'] for d in record.deaths)})"
    if known:
        measured += f", at most {max(known):.1f} s after the last sign of life"
    return Guarantee("coordination", _verdict(met=met), measured)
