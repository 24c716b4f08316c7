"""Plans for the strategies that divide the model: stages of a pipeline, and parts of each layer.

Work is counted in multiplications per token: 12 W^2 + T W a layer (its matrices, and causal attention over T
positions on average half), 256 W for the head. A node's speed is in tokens per second of the whole model.

Memory of a stage with P parameters and b windows of T bytes in a batch, B in a microbatch:

    430 MiB                 Python and torch: in the agent, in what ranks are forked from, and in the rank
    24 P bytes              weights, gradients, two moments, room for the update, room for a transfer
    8 b T W bytes           what comes from the neighbours, for all microbatches
    4 B T (22 W a layer, 8 W, and 3 x 256 for the logits on the last stage), per microbatch in flight

The terms are those of planning/memory.py; measured, as anonymous memory of all of a node's processes at their
fullest, no stage of three models was off by more than 12 %.

Predicted time of a step of m microbatches under 1F1B: the first microbatch passes all stages and links,
forward and back; the m - 1 others follow at the pace of the slowest of (a) a stage with its transfers and
(b) a loop from a stage to the last and back, over the microbatches that it keeps in flight. The tied
embedding's gradient and the gradients' norm then cross the links once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from tailtrain.errors import DeclarationError, UnsupportedError
from tailtrain.partition import Costs, Stage, StageNode, cut
from tailtrain.planning.memory import VOCABULARY

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tailtrain.planning.settings import LoopSettings, ModelSettings

_FLOAT_BYTES = 4
_BASE_BYTES = 430 << 20
_COPIES = 6
_SAVED_IN_A_LAYER, _SAVED_AT_ONCE, _LOGITS = 22, 8, 3
_INSTEAD = 'Set distribution_strategy = "pipelineParallel" in group_data/all.py'
_ALL_THE_SAME = 'engine = {"allow_wan": True}'
MOST_ROUND_TRIP = 0.002
"""Above this round trip (seconds) tensor parallelism waits for the network more than it computes."""
MOST_UNEQUAL = 2.0
"""Tensor parallelism gives all ranks equal parts, so all wait for the slowest."""


@dataclass(frozen=True)
class Link:
    """The path between two nodes: round trip in seconds, bytes per second."""

    round_trip: float
    bandwidth: float


@dataclass(frozen=True)
class PipelinePlan:
    """A cut, and what it is predicted to do.

    Attributes:
        stages: the nodes' layers, first to last.
        standby: nodes that hold none, and take over when one is lost.
        bubble: the share of a step in which an equal stage would wait: (S - 1) / (m + S - 1).
        step_seconds: predicted time of a step.
        tokens_per_second: predicted speed of the fleet.
    """

    stages: tuple[Stage, ...]
    standby: tuple[str, ...]
    bubble: float
    step_seconds: float
    tokens_per_second: float


def stage_costs(model: ModelSettings, loop: LoopSettings, *, microbatches: int) -> Costs:
    """What the model's layers cost.

    Raises:
        DeclarationError: a batch cannot be divided into that many equal microbatches.
    """
    if microbatches < 1 or loop.batch_size % microbatches:
        raise DeclarationError(
            "a batch is not a whole number of microbatches",
            field="training.batch_size",
            found=f"{loop.batch_size} windows in {microbatches} microbatches",
            expected="a multiple of the microbatches",
            fix="Set batch_size in group_data/all.py",
        )
    width, context = model.width, model.context
    positions = loop.batch_size // microbatches * context
    weight = _FLOAT_BYTES * _COPIES * width
    return Costs(
        layer_work=12 * width * width + context * width,
        head_work=VOCABULARY * width,
        base_bytes=_BASE_BYTES + 2 * _FLOAT_BYTES * loop.batch_size * context * width,
        layer_bytes=weight * (12 * width + 2),
        first_bytes=weight * (VOCABULARY + context),
        last_bytes=weight * (VOCABULARY + 1),
        flight_bytes=_FLOAT_BYTES * positions * width * _SAVED_AT_ONCE,
        layer_flight_bytes=_FLOAT_BYTES * positions * width * _SAVED_IN_A_LAYER,
        last_flight_bytes=_FLOAT_BYTES * positions * VOCABULARY * _LOGITS,
    )


def plan_pipeline(
    model: ModelSettings,
    loop: LoopSettings,
    nodes: Sequence[StageNode],
    links: Mapping[tuple[str, str], Link],
    *,
    microbatches: int,
    primary: str | None = None,
) -> PipelinePlan:
    """The best cut for these nodes, and its predicted speed.

    Args:
        model: its sizes.
        loop: the training's batch size.
        nodes: in the order that stages follow; speeds in tokens per second of the whole model.
        links: between nodes, by their names in either order; one that is missing costs nothing.
        microbatches: of a step.
        primary: the node that has a stage in any case.

    Raises:
        DeclarationError: a batch cannot be divided so, or there are no nodes.
        UnsupportedError: nothing fits into the nodes' memory, or no part into the primary's.
    """
    costs = stage_costs(model, loop, microbatches=microbatches)
    stages = cut(model.layers, nodes, costs, microbatches=microbatches, keep=primary)
    whole = costs.layer_work * model.layers + costs.head_work
    speeds = {node.name: node.speed for node in nodes}
    per_microbatch = loop.batch_size // microbatches * model.context
    seconds = [per_microbatch * stage.work / whole / speeds[stage.node] for stage in stages]
    activation = _FLOAT_BYTES * per_microbatch * model.width
    hops = [_link(links, one.node, other.node) for one, other in pairwise(stages)]
    step = step_seconds(seconds, hops, activation, microbatches=microbatches)
    if hops:
        ends = _link(links, stages[0].node, stages[-1].node)
        step += ends.round_trip + 2 * _FLOAT_BYTES * VOCABULARY * model.width / ends.bandwidth
        step += sum(hop.round_trip for hop in hops)
    used = {stage.node for stage in stages}
    return PipelinePlan(
        stages=stages,
        standby=tuple(node.name for node in nodes if node.name not in used),
        bubble=bubble(len(stages), microbatches),
        step_seconds=step,
        tokens_per_second=loop.batch_size * model.context / step,
    )


def bubble(stages: int, microbatches: int) -> float:
    """The share of a step that equal stages wait: (S - 1) / (m + S - 1) (GPipe, arXiv 1811.06965)."""
    return (stages - 1) / (microbatches + stages - 1)


def step_seconds(
    stages: Sequence[float], hops: Sequence[Link], activation_bytes: float, *, microbatches: int
) -> float:
    """Predicted seconds of the forward and backward passes of a step (see the module's text).

    Args:
        stages: seconds that each stage computes for one microbatch, forward and back.
        hops: the links between neighbours, one fewer than stages.
        activation_bytes: what crosses a link for one microbatch, in each direction.
        microbatches: how many a step has.
    """
    transfers = [activation_bytes / hop.bandwidth for hop in hops]
    crossings = [hop.round_trip + 2 * sent for hop, sent in zip(hops, transfers, strict=True)]
    pace = 0.0
    for index, own in enumerate(stages):
        near = sum(transfers[max(0, index - 1) : index + 1])
        loop = sum(stages[index:]) + sum(crossings[index:])
        pace = max(pace, own + near, loop / min(microbatches, len(stages) - index))
    return sum(stages) + sum(crossings) + (microbatches - 1) * pace


def require_tensor_parallel(
    model: ModelSettings,
    nodes: Sequence[StageNode],
    links: Mapping[tuple[str, str], Link],
    *,
    allow_wan: bool,
) -> float:
    """The seconds per step that the network's latency alone costs: 4 L x the longest round trip.

    Each layer has two sums over all ranks on the way forward and two on the way back (Megatron-LM,
    arXiv 1909.08053).

    Raises:
        UnsupportedError: the heads cannot be divided among the nodes; or, without `allow_wan`, a round trip
            is above 2 ms or speeds differ by more than a factor of 2.
    """
    names = [node.name for node in nodes]
    if model.heads % len(nodes):
        fits = max(count for count in range(1, len(nodes) + 1) if model.heads % count == 0)
        raise UnsupportedError(
            "the attention heads cannot be divided equally among the nodes",
            field="model.heads",
            found=f"{model.heads} heads for {len(nodes)} nodes",
            expected=f"a multiple of {len(nodes)}, or {fits} nodes",
            fix="Set model.heads in group_data/all.py",
        )
    pairs = [(one, other) for index, one in enumerate(names) for other in names[index + 1 :]]
    one, other = max(pairs, key=lambda pair: _link(links, *pair).round_trip, default=("", ""))
    longest = _link(links, one, other).round_trip
    estimate = 4 * model.layers * longest
    costs = (
        f"4 x {model.layers} layers x {1000 * longest:.1f} ms = {1000 * estimate:.0f} ms of waiting per step"
    )
    if allow_wan:
        return estimate
    if longest > MOST_ROUND_TRIP:
        raise UnsupportedError(
            f"modelParallel sums over all nodes four times a layer: {costs}",
            host=f"{one} and {other}",
            field="distribution_strategy",
            found=f"a round trip of {1000 * longest:.1f} ms",
            expected=f"at most {1000 * MOST_ROUND_TRIP:.0f} ms",
            fix=f"{_INSTEAD}, or {_ALL_THE_SAME} to accept the wait",
        )
    slowest, fastest = (choose(nodes, key=lambda node: node.speed) for choose in (min, max))
    if fastest.speed > MOST_UNEQUAL * slowest.speed:
        raise UnsupportedError(
            f"modelParallel gives all nodes equal parts, so all wait for the slowest; besides, {costs}",
            host=f"{fastest.name} and {slowest.name}",
            field="distribution_strategy",
            found=f"speeds that differ by a factor of {fastest.speed / slowest.speed:.1f}",
            expected=f"at most {MOST_UNEQUAL:g}",
            fix=f"{_INSTEAD}, which cuts by speed, or {_ALL_THE_SAME}",
        )
    return estimate


def tensor_seconds(
    model: ModelSettings,
    loop: LoopSettings,
    nodes: Sequence[StageNode],
    links: Mapping[tuple[str, str], Link],
) -> float:
    """Predicted seconds of a step where every node has an equal part of each layer.

    All wait for the slowest, then 4 times a layer for the slowest link: its round trip, and the activations
    of a batch around a ring (2 (n - 1) / n of them in each direction).
    """
    count, activations = len(nodes), _FLOAT_BYTES * loop.batch_size * model.context * model.width
    names = [node.name for node in nodes]
    slowest = max(
        (
            link.round_trip + 2 * (count - 1) / count * activations / link.bandwidth
            for index, one in enumerate(names)
            for other in names[index + 1 :]
            for link in (_link(links, one, other),)
        ),
        default=0.0,
    )
    computing = loop.batch_size * model.context / (count * min(node.speed for node in nodes))
    return computing + 4 * model.layers * slowest


def _link(links: Mapping[tuple[str, str], Link], one: str, other: str) -> Link:
    return links.get((one, other)) or links.get((other, one)) or Link(0.0, float("inf"))
