"""How a plan divides the model among the nodes: stages of a pipeline, or a part of every layer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tailtrain.errors import UnsupportedError
from tailtrain.partition import part_bytes, stage_bytes
from tailtrain.planning.division.cuts import (
    Link,
    plan_pipeline,
    require_tensor_parallel,
    stage_costs,
    tensor_seconds,
)
from tailtrain.planning.division.stage_nodes import stage_nodes
from tailtrain.planning.memory import VOCABULARY, parameters
from tailtrain.spec import DistributionStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.partition import Costs, Stage, StageNode
    from tailtrain.planning.actions import Declared
    from tailtrain.planning.node_config import Peer
    from tailtrain.planning.observed import Observation
    from tailtrain.planning.settings import ModelSettings, Settings

LEAST_NODES = 2
_FLOAT_BYTES = 4
_MIB = 1 << 20
# Bytes per second of a path of which only the round trip was measured, as for transfers of chunks.
_DIRECT_RATE, _RELAYED_RATE = 12e6, 1e6


@dataclass(frozen=True)
class Part:
    """What one node holds.

    Attributes:
        node: its name.
        start: its first layer.
        stop: the layer after its last.
        parameter_bytes: of its weights.
        memory_bytes: what it needs at its fullest.
    """

    node: str
    start: int
    stop: int
    parameter_bytes: int
    memory_bytes: int


@dataclass(frozen=True)
class Division:
    """Who holds what, and what that is predicted to do.

    Attributes:
        nodes: all nodes, in the order of their stages, with speed (tokens per second of the whole model) and
            memory.
        parts: of the nodes that train, in the same order.
        standby: nodes that hold nothing, and take over when one is lost.
        costs: what layers cost.
        microbatches: in how many parts a batch passes.
        bubble: the share of a step that stages wait for each other; 0 for parts of every layer.
        latency_seconds: what the round trips of modelParallel's sums cost a step; None for a pipeline.
        steps: of the whole run.
        step_seconds: predicted time of a step.
        tokens_per_second: predicted speed of the fleet.
        whole_bytes: of the whole model's weights.
        links_known: whether round trips were measured; otherwise the prediction takes them for nothing.
    """

    nodes: tuple[StageNode, ...]
    parts: tuple[Part, ...]
    standby: tuple[str, ...]
    costs: Costs
    microbatches: int
    bubble: float
    latency_seconds: float | None
    steps: int
    step_seconds: float
    tokens_per_second: float
    whole_bytes: int
    links_known: bool


RoundTrips = dict[tuple[str, str], tuple[float, bool]]
"""Between two nodes: the shortest round trip in seconds, and whether the path is direct."""


def planned_division(
    declared: Declared,
    peers: Sequence[Peer],
    answers: Mapping[str, Observation],
    kept: Mapping[str, StageNode],
    round_trips: RoundTrips | None,
) -> Division | None:
    """The division of the declared model among the nodes that are known; None where each has all of it.

    Args:
        declared: nodes and settings.
        peers: the nodes that can be named, in the order of the stages.
        answers: of the hosts that answered.
        kept: what the run at hand was begun with.
        round_trips: None where nobody asked: for a run that is begun already.

    Raises:
        DeclarationError: as `divide`.
    """
    settings = declared.settings
    if settings.data_parallel:
        return None
    size = parameters(settings.model)
    measured = {
        name: round(answer.measured.tokens_per_second * answer.measured.parameters / size, 1)
        for name, answer in answers.items()
        if answer.measured
    }
    nodes = stage_nodes(declared, peers, answers, measured=measured, kept=kept)
    # What was allowed once stays so: a round trip that varies must not stop a run that is under way.
    begun = kept.keys() == {node.name for node in nodes}
    if begun and settings.training.distribution_strategy is DistributionStrategy.MODEL_PARALLEL:
        settings = replace(settings, engine=replace(settings.engine, allow_wan=True))
    links = None if round_trips is None else _links(round_trips)
    return divide(settings, nodes, links, declared.primary.hostname)


def _links(round_trips: RoundTrips) -> dict[tuple[str, str], Link]:
    return {
        pair: Link(seconds, _DIRECT_RATE if direct else _RELAYED_RATE)
        for pair, (seconds, direct) in round_trips.items()
    }


def divide(
    settings: Settings,
    nodes: Sequence[StageNode],
    links: Mapping[tuple[str, str], Link] | None,
    primary: str,
) -> Division:
    """Divide the model.

    Args:
        settings: what to train, and how.
        nodes: in the order of the stages.
        links: between nodes; None where they were not measured.
        primary: has a part in any case: what it writes becomes the final model.

    Raises:
        DeclarationError: a batch is not a whole number of microbatches.
        UnsupportedError: there are too few nodes, too slow links, too unequal speeds, heads that cannot be
            divided, or too little memory; by name.
    """
    strategy = settings.training.distribution_strategy
    if len(nodes) < LEAST_NODES:
        raise UnsupportedError(
            f"{strategy.value} divides the model among nodes, and there is one",
            field="distribution_strategy",
            found=", ".join(node.name for node in nodes) or "no node",
            expected=f"at least {LEAST_NODES} nodes",
            fix='Set distribution_strategy = "dataParallel" in group_data/all.py, or add a node',
        )
    if strategy is DistributionStrategy.MODEL_PARALLEL:
        return _parts(settings, nodes, links)
    return _stages(settings, nodes, links, primary)


def _stages(
    settings: Settings,
    nodes: Sequence[StageNode],
    links: Mapping[tuple[str, str], Link] | None,
    primary: str,
) -> Division:
    model, loop = settings.model, settings.loop
    microbatches = settings.engine.microbatches
    costs = stage_costs(model, loop, microbatches=microbatches)
    found = plan_pipeline(model, loop, nodes, links or {}, microbatches=microbatches, primary=primary)
    count = len(found.stages)
    return Division(
        nodes=tuple(nodes),
        parts=tuple(
            Part(
                stage.node,
                stage.start,
                stage.stop,
                _FLOAT_BYTES * _stage_parameters(model, stage),
                stage_bytes(costs, model.layers, stage.start, stage.stop, in_flight=count - index),
            )
            for index, stage in enumerate(found.stages)
        ),
        standby=found.standby,
        costs=costs,
        microbatches=microbatches,
        bubble=found.bubble,
        latency_seconds=None,
        steps=_steps(settings),
        step_seconds=found.step_seconds,
        tokens_per_second=found.tokens_per_second,
        whole_bytes=_FLOAT_BYTES * parameters(model),
        links_known=links is not None,
    )


def _parts(
    settings: Settings, nodes: Sequence[StageNode], links: Mapping[tuple[str, str], Link] | None
) -> Division:
    model, loop = settings.model, settings.loop
    # In one piece: every microbatch would wait for the network's round trips anew.
    costs = stage_costs(model, loop, microbatches=1)
    latency = require_tensor_parallel(model, nodes, links or {}, allow_wan=settings.engine.allow_wan)
    whole, divided = parameters(model), 12 * model.layers * model.width**2
    own = whole - divided + divided // len(nodes)
    needed = part_bytes(costs, model.layers, own / whole)
    for node in nodes:
        if needed > node.memory_bytes:
            raise UnsupportedError(
                "its memory cannot hold its part of the model",
                host=node.name,
                field="ram_gb",
                found=f"{node.memory_bytes // _MIB} MiB",
                expected=f"{needed // _MIB} MiB",
                fix="Make model or batch_size smaller in group_data/all.py, or leave the host out",
            )
    seconds = tensor_seconds(model, loop, nodes, links or {})
    return Division(
        nodes=tuple(nodes),
        parts=tuple(Part(node.name, 0, model.layers, _FLOAT_BYTES * own, needed) for node in nodes),
        standby=(),
        costs=costs,
        microbatches=1,
        bubble=0.0,
        latency_seconds=latency,
        steps=_steps(settings),
        step_seconds=seconds,
        tokens_per_second=loop.batch_size * model.context / seconds,
        whole_bytes=_FLOAT_BYTES * whole,
        links_known=links is not None,
    )


def _stage_parameters(model: ModelSettings, stage: Stage) -> int:
    """The tied embedding is on the first and the last stage, the positions on the first."""
    first, last = stage.start == 0, stage.stop == model.layers
    rows = (first or last) * VOCABULARY + first * model.context + last
    return model.width * rows + (stage.stop - stage.start) * (12 * model.width + 2) * model.width


def _steps(settings: Settings) -> int:
    return -(-settings.loop.target_tokens // (settings.loop.batch_size * settings.model.context))
