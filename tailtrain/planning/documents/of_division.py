"""From a plan's division of the model to what its document says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.planning.documents.division import DivisionEntry, PartEntry
from tailtrain.planning.documents.of_host import said

if TYPE_CHECKING:
    from tailtrain.planning.plan import Plan


def division_entry(plan: Plan) -> DivisionEntry | None:
    """The entry of a plan's division; None where every node has the whole model."""
    division = plan.division
    if division is None:
        return None
    speeds = {node.name: node.speed for node in division.nodes}
    training = plan.settings.training
    note = "each step's batch passes all nodes, so all have all data: data_sharding has no effect"
    return DivisionEntry(
        strategy=training.distribution_strategy.value,
        parts=tuple(
            PartEntry(
                node=said(part.node),
                layers=(part.start, part.stop),
                parameter_bytes=part.parameter_bytes,
                memory_bytes=part.memory_bytes,
                speed=speeds[part.node],
            )
            for part in division.parts
        ),
        standby=tuple(said(node) for node in division.standby),
        whole_bytes=division.whole_bytes,
        microbatches=division.microbatches,
        steps=division.steps,
        step_seconds=division.step_seconds,
        tokens_per_second=division.tokens_per_second,
        bubble=division.bubble,
        latency_seconds=division.latency_seconds,
        links_known=division.links_known,
        data_note=note if training.data_sharding else "",
    )
