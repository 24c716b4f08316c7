"""`swarm_topology_optimizer`: shares, round, averaging and roles with the least predicted time per token.

What is chosen, and how:

1. **Roles.** A node whose memory cannot hold the training keeps data and validates; one that cannot do that
   either is refused by name.
2. **Shares** follow the speeds, so that all finish together: with shares w_i of a round's work the round
   takes max w_i / r_i, which is least, 1 / sum r, for w_i = r_i / sum r. Where a disk cannot hold its part of
   the records the rest goes to the others, again in proportion to their speeds.
3. **Averaging.** For every way that the protocol has (all, star, pairs with all every k rounds) and every
   compression that is allowed: the reducers' parts (a linear program), the seconds of an averaging, the
   training of a round that is best for it within the limits, and the time per token that follows
   (`round_time` has the formulas). These are a dozen candidates, and all are looked at. Something less simple
   or less exact has to be faster by `least_gain` to be taken.

Beside the prediction stand two others for the same tokens a round: shared out by cores, and equally, both
averaged by all, uncompressed and in equal parts. An equal split is bound by the slowest node: its round takes
max_i (sum r / n) / r_i times as long.

A pure function of its arguments: two operators get the same answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError
from tailtrain.planning.topology import round_time
from tailtrain.planning.topology.offers import (
    Compression,
    Limits,
    Offer,
    Overheads,
    Prediction,
    Role,
    Topology,
    Way,
)
from tailtrain.planning.topology.roles import roles_of, shares_of
from tailtrain.spec import CoordinationProtocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.topology.offers import Job
    from tailtrain.planning.topology.round_time import Links

_MOST_LEFT_OUT = 8
_LEFT_OUT_GAIN = 0.05
_WAYS = {
    CoordinationProtocol.CENTRALIZED: (Way.STAR,),
    CoordinationProtocol.DECENTRALIZED: (Way.GROUP,),
    CoordinationProtocol.ENE_GOSSIP: (Way.GROUP, Way.PAIRS),
}


@dataclass(frozen=True)
class _Choice:
    """One candidate: how the trainers average, and what follows."""

    trainers: tuple[Offer, ...]
    way: Way
    all_each: int
    compression: Compression
    reducers: Mapping[str, float]
    training: float
    averaging: float
    longest: float
    cost: float


def ways_of(protocol: CoordinationProtocol) -> tuple[Way, ...]:
    """How a protocol can average, the simplest way first."""
    return _WAYS[protocol]


def optimize(
    offers: Sequence[Offer],
    links: Links,
    job: Job,
    limits: Limits | None = None,
    overheads: Overheads | None = None,
) -> Topology:
    """The topology with the least predicted time per token.

    Args:
        offers: what every node has; names differ.
        links: paths that are not as the offers say, by pair in alphabetical order.
        job: what is to be trained.
        limits: within what to choose.
        overheads: of an averaging, as measured.

    Raises:
        DeclarationError: naming each node that can have no role, or what the whole fleet lacks.
    """
    limits, overheads = limits or Limits(), overheads or Overheads()
    roles, reasons = roles_of(offers, job)
    able = tuple(offer for offer in offers if roles[offer.node] is Role.TRAINS)
    shares, rates = shares_of(able, job)
    choice = _best(able, rates, links, job, limits, overheads)
    if not limits.keep_all:
        choice = _without_the_slowest(choice, able, links, job, limits, overheads)
    if len(choice.trainers) < len(able):
        left_out = {offer.node for offer in able} - {offer.node for offer in choice.trainers}
        for node in left_out:
            roles[node] = Role.DATA
            reasons[node] = "its link would hold the others up more than it adds"
        shares, rates = shares_of(choice.trainers, job)
    speeds = {offer.node: offer.tokens_per_second for offer in choice.trainers}
    tokens = choice.training * sum(rates.values())
    prediction = Prediction(choice.training, choice.averaging, tokens, sum(speeds.values()))
    every = {offer.node: 0.0 for offer in offers}
    cores = [float(offer.cores) for offer in choice.trainers]
    return Topology(
        roles=roles,
        reasons=reasons,
        shares={**every, **shares},
        reducers={**every, **choice.reducers},
        way=choice.way,
        all_each=choice.all_each,
        compression=choice.compression,
        steps={
            node: max(1, math.floor(choice.training * rate / job.batch_tokens))
            for node, rate in rates.items()
        },
        prediction=prediction,
        by_cores=plain(choice.trainers, cores, tokens, links, job, limits, overheads),
        equal=plain(choice.trainers, [1.0] * len(cores), tokens, links, job, limits, overheads),
        fastest=max(speeds.values()),
        warning=_too_long(choice, limits),
        longest_averaging=choice.longest,
        speeds={offer.node: offer.tokens_per_second for offer in offers},
    )


def _too_long(choice: _Choice, limits: Limits) -> str:
    if choice.longest <= limits.most_averaging_seconds:
        return ""
    slowest = min(choice.trainers, key=lambda offer: offer.bytes_per_second)
    return (
        f"an averaging of {choice.longest:.0f} s is longer than connections last"
        f" ({limits.most_averaging_seconds:.0f} s): the link of {slowest.node} is too slow for this model"
    )


def _best(
    trainers: tuple[Offer, ...],
    rates: Mapping[str, float],
    links: Links,
    job: Job,
    limits: Limits,
    overheads: Overheads,
) -> _Choice:
    """The cheapest way and compression; what is less simple or less exact has to be worth it."""
    rate, fastest = sum(rates.values()), max(offer.tokens_per_second for offer in trainers)
    whole_run = job.target_tokens / rate
    # Equal parts can win where the first part of all takes long.
    parts = {Way.GROUP: [round_time.best_reducers(trainers, links), equal_parts(trainers)]}
    if Way.STAR in limits.ways:
        parts[Way.STAR] = [primary_alone(trainers, job)]
    found: list[_Choice] = []
    for compression, way in product(limits.compressions, limits.ways):
        volume = round_time.weight_bytes(job.parameters, compression)
        kind = Way.GROUP if way is Way.PAIRS else way
        together, reducers = min(
            (
                (round_time.averaging_seconds(kind, each, trainers, links, volume, overheads), each)
                for each in parts[kind]
            ),
            key=lambda timed: timed[0],
        )
        alone = together
        if way is Way.PAIRS:
            alone = round_time.averaging_seconds(way, reducers, trainers, links, volume, overheads)
        for each in limits.all_each if way is Way.PAIRS else (1,):
            averaging = (alone * (each - 1) + together) / each
            most = limits.most_steps * job.batch_tokens / fastest
            most /= round_time.drift(way, len(trainers), each)
            most = min(most, limits.most_round_seconds, whole_run / limits.least_averagings)
            training = round_time.best_round_seconds(averaging, limits, most)
            cost = round_time.cost_per_token(training, averaging, rate, limits)
            found.append(
                _Choice(trainers, way, each, compression, reducers, training, averaging, together, cost)
            )
    if not found:
        raise DeclarationError("nothing to choose from", field="ways, compressions")
    works = [choice for choice in found if choice.longest <= limits.most_averaging_seconds]
    if not works:
        return min(found, key=lambda choice: choice.longest)
    best = works[0]
    for choice in works[1:]:
        if choice.cost < best.cost * (1 - limits.least_gain):
            best = choice
    return best


def _without_the_slowest(
    with_all: _Choice,
    able: tuple[Offer, ...],
    links: Links,
    job: Job,
    limits: Limits,
    overheads: Overheads,
) -> _Choice:
    """Leave out nodes with the slowest links, a third of all at most, where that is clearly faster."""
    by_link = sorted(able, key=lambda offer: offer.bytes_per_second)
    best = with_all
    for count in range(1, min(_MOST_LEFT_OUT, len(able) // 3) + 1):
        gone = {offer.node for offer in by_link[:count]}
        if job.primary in gone:
            break
        trainers = tuple(offer for offer in able if offer.node not in gone)
        try:
            _, rates = shares_of(trainers, job)
        except DeclarationError:  # the rest has no room for the data
            break
        choice = _best(trainers, rates, links, job, limits, overheads)
        if choice.cost < with_all.cost * (1 - _LEFT_OUT_GAIN) and choice.cost < best.cost:
            best = choice
    return best


def equal_parts(trainers: Sequence[Offer]) -> dict[str, float]:
    """The same part of the weights for everybody."""
    return {offer.node: 1 / len(trainers) for offer in trainers}


def primary_alone(trainers: Sequence[Offer], job: Job) -> dict[str, float]:
    """The parts of the weights where the primary averages all of them.

    Raises:
        DeclarationError: the primary cannot train.
    """
    if job.primary not in {offer.node for offer in trainers}:
        raise DeclarationError(
            "the primary reduces for all in centralized coordination, but cannot train",
            host=job.primary,
            fix='Set coordination_protocol = "decentralized", or make the model smaller',
        )
    return {offer.node: float(offer.node == job.primary) for offer in trainers}


def plain(
    trainers: Sequence[Offer],
    weights: Sequence[float],
    tokens: float,
    links: Links,
    job: Job,
    limits: Limits,
    overheads: Overheads,
) -> Prediction:
    """The same tokens in fixed shares, averaged by all, uncompressed and in equal parts (or in the star)."""
    way = Way.GROUP if limits.ways != (Way.STAR,) else Way.STAR
    reducers = primary_alone(trainers, job) if way is Way.STAR else equal_parts(trainers)
    volume = round_time.weight_bytes(job.parameters, Compression.NONE)
    total = sum(weights)
    return Prediction(
        training_seconds=max(
            tokens * weight / total / offer.tokens_per_second
            for offer, weight in zip(trainers, weights, strict=True)
        ),
        averaging_seconds=round_time.averaging_seconds(way, reducers, trainers, links, volume, overheads),
        tokens=tokens,
        ideal_tokens_per_second=sum(offer.tokens_per_second for offer in trainers),
    )
