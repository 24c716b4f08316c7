"""From a plan's topology to what its document says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.documents.topology import RoundEntry, TopologyEntry, Work
from tailtrain.planning.topology.offers import Role
from tailtrain.planning.topology.text import share_line, topology_lines

if TYPE_CHECKING:
    from tailtrain.planning.topology.offers import Prediction
    from tailtrain.planning.topology.planned import PlannedTopology


def topology_entry(planned: PlannedTopology | None) -> TopologyEntry | None:
    """The topology; None where there is none, such as where the model is divided."""
    topology = planned.topology if planned else None
    if planned is None or topology is None:
        return None
    return TopologyEntry(
        chosen=planned.chosen,
        way=topology.way.value,
        all_each=topology.all_each,
        compression=topology.compression.value,
        expected=_round(topology.prediction),
        by_cores=_round(topology.by_cores),
        equal=_round(topology.equal),
        ideal=topology.ideal,
        speedup=topology.speedup,
        guessed=topology.guessed,
        warning=topology.warning,
        words=topology_lines(topology, chosen=planned.chosen),
    )


def work_of(planned: PlannedTopology | None, node: str) -> Work | None:
    """A node's part in it; None where there is no topology."""
    topology = planned.topology if planned else None
    if topology is None:
        return None
    return Work(
        trains=topology.roles[node] is Role.TRAINS,
        share=topology.shares[node],
        steps=topology.steps.get(node, 0),
        averages=topology.reducers[node],
        tokens_per_second=topology.speeds[node],
        words=share_line(topology, node),
    )


def _round(said: Prediction) -> RoundEntry:
    return RoundEntry(
        training_seconds=said.training_seconds,
        averaging_seconds=said.averaging_seconds,
        seconds=said.seconds,
        tokens=said.tokens,
        tokens_per_second=said.tokens_per_second,
        utilisation=said.utilisation,
    )
