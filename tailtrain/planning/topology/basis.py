"""What a fleet's topology is worked out from: each host's offer, the links, the job and its limits.

A node that was measured offers what it measured, scaled to the model at hand: a token costs as much as the
model has parameters. Of one that was not, the speed is guessed from its cores, and where others of the fleet
were measured the guess is taken to be off by as much as theirs. Links are guessed by the path; averagings
that were measured say by which factor all are off (`round_time.calibrated`): one slow link holds up all, so
which one it is cannot be told from the time alone, but for hosts to which the last transfer was slow too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from tailtrain.planning.engine_settings import CHOSEN
from tailtrain.planning.hardware import WORKING_SPACE, declared_limits
from tailtrain.planning.memory import memory_needed, parameters
from tailtrain.planning.shares import usable_cores
from tailtrain.planning.sourcing import RELAYED
from tailtrain.planning.topology.offers import (
    Compression,
    Job,
    Limits,
    Link,
    Offer,
    Overheads,
    Way,
    first_guess,
)
from tailtrain.planning.topology.optimizer import ways_of
from tailtrain.planning.topology.round_time import calibrated

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.actions import Declared
    from tailtrain.planning.datasets import PlannedDataset
    from tailtrain.planning.node_config import NodeLimits
    from tailtrain.planning.observed import Measured, Observation
    from tailtrain.planning.settings import Settings
    from tailtrain.planning.sourcing import Paths
    from tailtrain.planning.topology.round_time import Links

# Until it was measured: a slow home's 100 Mbit/s, and what users of relays report.
_DIRECT, _RELAYED = Link(12e6, 0.02), Link(1e6, 0.1, direct=False)
_LEAST_ROUND_SECONDS = 10.0
"""But for runs so short that they would hardly average: below, a fleet is busy with averaging."""

_CLEARLY_SLOWER = 3.0
"""Rates of transfers to hosts that differ by less say nothing: they are of few files, sent side by side."""

# Python calls some hundred operations one after the other for each step: small models never keep a GPU busy.
_LEAST_STEP_SECONDS = 0.005
_GIB = 2**30
_MEASURED_TOGETHER = 2


@dataclass(frozen=True)
class Basis:
    """What a topology is worked out from.

    Attributes:
        offers: of every node, in inventory order.
        links: paths that are not as the offers say.
        job: what is to be trained.
        limits: within what to choose; what group data says is not chosen.
        overheads: of an averaging.
        guessed: the nodes whose speed nobody has measured.
    """

    offers: tuple[Offer, ...]
    links: Links
    job: Job
    limits: Limits
    overheads: Overheads
    guessed: tuple[str, ...]


def basis_of(
    declared: Declared,
    datasets: Sequence[PlannedDataset],
    answers: Mapping[str, Observation],
    limits: Mapping[str, NodeLimits],
    paths: Paths | None,
) -> Basis:
    """What is known of the fleet.

    Args:
        declared: nodes and settings.
        datasets: what is trained on.
        answers: of the hosts that answered; of the others what is declared counts.
        limits: what the workers of those may use.
        paths: between hosts, None where nobody looked.
    """
    settings = declared.settings
    job = _job(declared, datasets)
    known = {} if settings.engine.deterministic else _known(answers, job.parameters)
    guesses: dict[str, float] = {}
    offers = []
    for node in declared.nodes:
        name = node.hostname
        own = limits.get(name) or declared_limits(node, declared.reserves[name])
        guess = first_guess(own.usable_cores, job.parameters, gpu=own.device == "cuda")
        guesses[name] = min(guess, job.batch_tokens / _LEAST_STEP_SECONDS)
        answer = answers.get(name)
        offers.append(
            Offer(
                node=name,
                cores=usable_cores(node, declared.reserves),
                tokens_per_second=guesses[name],
                memory_bytes=own.memory_bytes,
                disk_bytes=_room(declared, node.storage_gb, answer, datasets),
                bytes_per_second=_DIRECT.bytes_per_second,
                round_trip_seconds=_DIRECT.round_trip_seconds,
                training_bytes=memory_needed(settings.model, settings.loop, device=own.device),
            )
        )
    off = median([speed / guesses[name] for name, speed in known.items()]) if known else 1.0
    offers = [
        replace(each, tokens_per_second=known.get(each.node, guesses[each.node] * off)) for each in offers
    ]
    measured = {name: answer.measured for name, answer in answers.items() if answer.measured}
    found, links, overheads = _calibrated(_with_slow_links(offers, answers), _links(paths), measured)
    return Basis(found, links, job, _limits(settings, job, found), overheads, _unknown(offers, known))


def _unknown(offers: Sequence[Offer], known: Mapping[str, float]) -> tuple[str, ...]:
    return tuple(offer.node for offer in offers if offer.node not in known)


def _job(declared: Declared, datasets: Sequence[PlannedDataset]) -> Job:
    settings = declared.settings
    needed = memory_needed(settings.model, settings.loop)
    return Job(
        parameters=parameters(settings.model),
        batch_tokens=settings.loop.batch_size * settings.model.context,
        target_tokens=settings.loop.target_tokens,
        training_bytes=needed,
        # A host that cannot train has no part in a run: nothing less than training is asked of a worker.
        validation_bytes=needed,
        data_bytes=sum(chunk.bytes for dataset in datasets for chunk in dataset.train),
        primary=declared.primary.hostname,
        sharded=settings.shares_data,
    )


def _known(answers: Mapping[str, Observation], of_model: int) -> dict[str, float]:
    """Tokens per second of the hosts that measured them, for a model of so many parameters."""
    return {
        name: answer.measured.tokens_per_second * answer.measured.parameters / of_model
        for name, answer in answers.items()
        if answer.measured and answer.measured.tokens_per_second > 0
    }


def _room(
    declared: Declared, storage_gb: int, answer: Observation | None, datasets: Sequence[PlannedDataset]
) -> int:
    """Bytes that a host has for its own share of the records, with room for the copies that go with it."""
    room = storage_gb * _GIB
    if answer:
        sizes = {chunk.sha256: chunk.bytes for d in datasets for chunk in (*d.train, *d.heldout)}
        here = sum(sizes.get(sha256, 0) for sha256 in answer.chunks)
        room = min(room, answer.hardware.disk_free_bytes + here)
    held_out = sum(chunk.bytes for dataset in datasets for chunk in dataset.heldout)
    copies = min(declared.settings.replicas, len(declared.nodes)) if declared.settings.shares_data else 1
    return max(0, room - WORKING_SPACE - held_out) // copies


def _with_slow_links(offers: Sequence[Offer], answers: Mapping[str, Observation]) -> list[Offer]:
    """Offers, with links as much slower than the others' as transfers to these hosts were."""
    rates = {
        name: answer.receipt.bytes_per_second
        for name, answer in answers.items()
        if answer.receipt and answer.receipt.bytes_per_second > 0
    }
    usual = median(rates.values()) if rates else 0.0
    found = []
    for offer in offers:
        rate, answer = rates.get(offer.node, usual), answers.get(offer.node)
        relayed = answer is not None and answer.path.startswith(RELAYED)
        link = _RELAYED if relayed else _DIRECT
        slower = usual / rate if rate and usual / rate >= _CLEARLY_SLOWER else 1.0
        found.append(
            replace(
                offer,
                bytes_per_second=min(link.bytes_per_second, _DIRECT.bytes_per_second / slower),
                round_trip_seconds=link.round_trip_seconds,
            )
        )
    return found


def _links(paths: Paths | None) -> dict[tuple[str, str], Link]:
    """The pairs of hosts of which it is known that their path goes over a relay."""
    return {
        (min(host, other), max(host, other)): _RELAYED
        for host, others in (paths or {}).items()
        for other, kind in others.items()
        if kind == RELAYED and host != other
    }


def _calibrated(
    offers: Sequence[Offer], links: Links, measured: Mapping[str, Measured]
) -> tuple[tuple[Offer, ...], Links, Overheads]:
    """What explains the averagings of the run that most nodes measured.

    From what each node moved follow the bytes of the weights, and each one's part of them: with n nodes all
    together move V (2 n - 2) in each direction, and each V (1 + (n - 2) s).
    """
    averaged = {
        name: each
        for name, each in measured.items()
        if each.averaging_seconds > 0 and each.bytes_per_second > 0
    }
    runs = Counter(each.run for each in averaged.values())
    usual = max(runs, key=lambda run: (runs[run], run), default="")
    group = [offer for offer in offers if offer.node in averaged and averaged[offer.node].run == usual]
    among = len(group)
    if among < _MEASURED_TOGETHER:
        return tuple(offers), links, Overheads()
    moved = {
        offer.node: averaged[offer.node].bytes_per_second * averaged[offer.node].averaging_seconds
        for offer in group
    }
    volume = sum(moved.values()) / (2 * among - 2)
    parts = {
        node: max(0.0, (each / volume - 1) / (among - 2)) if among > _MEASURED_TOGETHER else 1 / among
        for node, each in moved.items()
    }
    seconds = median(averaged[offer.node].averaging_seconds for offer in group)
    fitted, near, overheads = calibrated(seconds, Way.GROUP, parts, group, links, volume, Overheads())
    factor = fitted[0].bytes_per_second / group[0].bytes_per_second
    return (
        tuple(replace(offer, bytes_per_second=offer.bytes_per_second * factor) for offer in offers),
        near,
        overheads,
    )


def _limits(settings: Settings, job: Job, offers: Sequence[Offer]) -> Limits:
    """Within what to choose: what group data says is taken as it says it."""
    engine, loop = settings.engine, settings.loop
    limits = Limits(ways=ways_of(settings.training.coordination_protocol))
    whole = job.target_tokens / sum(offer.tokens_per_second for offer in offers)
    least = min(_LEAST_ROUND_SECONDS, whole / limits.least_averagings)
    limits = replace(limits, least_round_seconds=max(limits.least_round_seconds, least))
    if Way.PAIRS in limits.ways and engine.all_each == 1:
        limits = replace(limits, ways=(Way.GROUP,))
    elif Way.PAIRS in limits.ways and engine.all_each:
        limits = replace(limits, ways=(Way.PAIRS,), all_each=(engine.all_each,))
    if engine.compression != CHOSEN:
        limits = replace(limits, compressions=(Compression(engine.compression),))
    elif engine.deterministic:
        limits = replace(limits, compressions=(Compression.NONE,))
    fixed = loop.round_seconds
    if engine.deterministic:
        fastest = max(offer.tokens_per_second for offer in offers)
        fixed = engine.steps_per_round * job.batch_tokens / fastest
    if fixed:
        return replace(limits, least_round_seconds=fixed, most_round_seconds=fixed)
    return limits
