"""`declared_cores`: what is to be expected of rounds as they are declared, in the form that is chosen in."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.topology import round_time
from tailtrain.planning.topology.offers import Compression, Prediction, Role, Topology, Way
from tailtrain.planning.topology.optimizer import equal_parts, plain, primary_alone

if TYPE_CHECKING:
    from tailtrain.planning.choices import Choices
    from tailtrain.planning.topology.basis import Basis


def declared_topology(basis: Basis, choices: Choices) -> Topology:
    """The topology that the declaration amounts to: shares by cores, rounds and averagings as declared.

    Rounds go by the clock, so that every node trains all the time, at its own speed; where steps are counted
    (`Limits` has the seconds that the largest share takes) a round waits for the slowest.

    Args:
        basis: what is known of the fleet.
        choices: rounds and averagings as declared.
    """
    offers, job = basis.offers, basis.job
    cores = sum(offer.cores for offer in offers)
    shares = {offer.node: offer.cores / cores for offer in offers}
    speeds = {offer.node: offer.tokens_per_second for offer in offers}
    star = basis.limits.ways == (Way.STAR,)
    way = Way.STAR if star else Way.PAIRS if choices.all_each > 1 else Way.GROUP
    reducers = primary_alone(offers, job) if star else equal_parts(offers)
    compression = Compression(choices.compression)
    volume = round_time.weight_bytes(job.parameters, compression)
    together, alone = (
        round_time.averaging_seconds(each, reducers, offers, basis.links, volume, basis.overheads)
        for each in (Way.GROUP if way is Way.PAIRS else way, way)
    )
    tokens = choices.round_seconds * sum(speeds.values())
    weights = [float(offer.cores) for offer in offers]
    by_cores, equal = (
        plain(offers, each, tokens, basis.links, job, basis.limits, basis.overheads)
        for each in (weights, [1.0] * len(offers))
    )
    return Topology(
        roles=dict.fromkeys(speeds, Role.TRAINS),
        reasons={},
        shares=shares,
        reducers=reducers,
        way=way,
        all_each=choices.all_each,
        compression=compression,
        steps={
            node: max(1, int(choices.round_seconds * speed / job.batch_tokens))
            for node, speed in speeds.items()
        },
        prediction=Prediction(
            choices.round_seconds,
            (alone * (choices.all_each - 1) + together) / choices.all_each,
            tokens,
            sum(speeds.values()),
        ),
        by_cores=by_cores,
        equal=equal,
        fastest=max(speeds.values()),
        longest_averaging=together,
        speeds=speeds,
        guessed=basis.guessed,
    )
