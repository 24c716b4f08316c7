"""Which layers each node of a pipeline holds: the cut whose slowest stage is fastest, within memory limits.

The control machine plans the first cut with it, and the nodes make every later one, when one is lost or comes
back. All see the same numbers in the same order, so all make the same cut without asking.

The primary has a stage whatever that costs, since the final model is made of its checkpoint.

The cut is exact: dynamic programming over nodes in their order, layers, and stages still to come (these
decide how many microbatches a stage holds under 1F1B, arXiv 2104.04473). Of the cuts with the same slowest
stage, the one with the least time of all stages together is taken, then the one that leaves out later nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from tailtrain.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MIB = 1 << 20
_NEVER = (float("inf"), float("inf"), 0)


@dataclass(frozen=True)
class Costs:
    """What layers cost, in work (any unit, per token) and in bytes.

    Attributes:
        layer_work: work of one layer.
        head_work: work of the head, on the last stage.
        base_bytes: what each process needs before it holds anything.
        layer_bytes: parameters, gradients and optimiser state of one layer.
        first_bytes: the same of the embedding and the positions, on the first stage.
        last_bytes: the same of the head and the last norm, on the last stage.
        flight_bytes: what a stage keeps for each microbatch in flight, whatever it holds.
        layer_flight_bytes: the same for each of its layers.
        last_flight_bytes: the same for the head, on the last stage.
    """

    layer_work: float
    head_work: float
    base_bytes: int
    layer_bytes: int
    first_bytes: int
    last_bytes: int
    flight_bytes: int
    layer_flight_bytes: int
    last_flight_bytes: int


@dataclass(frozen=True)
class StageNode:
    """A node that could hold a stage: `speed` in any unit that all share, and the bytes it may use."""

    name: str
    speed: float
    memory_bytes: int


@dataclass(frozen=True)
class Stage:
    """A node's layers, `start` to `stop` (not included), and the work that they are per token."""

    node: str
    start: int
    stop: int
    work: float


def stage_work(costs: Costs, layers: int, start: int, stop: int) -> float:
    """Work per token of a stage."""
    return costs.layer_work * (stop - start) + (costs.head_work if stop == layers else 0.0)


def stage_bytes(costs: Costs, layers: int, start: int, stop: int, *, in_flight: int) -> int:
    """Bytes that a stage needs with `in_flight` microbatches in flight."""
    held, last = stop - start, stop == layers
    flight = costs.flight_bytes + held * costs.layer_flight_bytes + last * costs.last_flight_bytes
    fixed = costs.base_bytes + held * costs.layer_bytes
    return fixed + (start == 0) * costs.first_bytes + last * costs.last_bytes + in_flight * flight


def part_bytes(costs: Costs, layers: int, held: float) -> int:
    """Bytes that a node needs which has a part of every layer; `held` is its share of all parameters."""
    whole = costs.first_bytes + costs.last_bytes + layers * costs.layer_bytes
    flight = costs.flight_bytes + layers * costs.layer_flight_bytes + costs.last_flight_bytes
    return costs.base_bytes + int(held * whole) + flight


def cut(
    layers: int,
    nodes: Sequence[StageNode],
    costs: Costs,
    *,
    microbatches: int,
    keep: str | None = None,
) -> tuple[Stage, ...]:
    """The best stages, in the nodes' order; a node that is in none stands by.

    Args:
        layers: how many there are.
        nodes: whom there is, in the order that stages follow.
        costs: what layers cost.
        microbatches: how many a step has; there are at most as many stages.
        keep: the node that has a stage whatever it costs, where it is one of these: the primary, which makes
            the final model of its checkpoint.

    Raises:
        UnsupportedError: no cut fits into the nodes' memory; it names each node, what it has and the least
            that a stage with one layer needs there, or `keep` where it alone is in the way.
    """
    kept = next((index for index, node in enumerate(nodes) if node.name == keep), None)
    least_slowest, *_ = _search(layers, nodes, costs, microbatches, float("inf"), kept)[0]
    if least_slowest == float("inf"):
        others = [node for node in nodes if node.name != keep]
        without = _search(layers, others, costs, microbatches, float("inf"), None)[1]
        if kept is not None and without:
            raise _one_does_not_fit(layers, nodes[kept], costs)
        raise _nothing_fits(layers, nodes, costs)
    _, stages = _search(layers, nodes, costs, microbatches, least_slowest, kept)
    return stages


def _search(
    layers: int,
    nodes: Sequence[StageNode],
    costs: Costs,
    microbatches: int,
    limit: float,
    kept: int | None,
) -> tuple[tuple[float, float, int], tuple[Stage, ...]]:
    """The best cut in which no stage takes longer than `limit` and node `kept` has one.

    Without a limit the best is that with the fastest slowest stage, under a limit that with the least sum:
    one search could not settle both exactly.
    """
    limited = limit != float("inf")

    def rank(slowest: float, total: float, used: int) -> tuple[float, float, int]:
        return (0.0, total, used) if limited else (slowest, 0.0, 0)

    @cache
    def best(index: int, start: int, after: int) -> tuple[tuple[float, float, int], tuple[int, int] | None]:
        """From node `index` and layer `start` on, with exactly `after` + 1 stages: value and choice.

        The choice is (node, stop).
        """
        found: tuple[tuple[float, float, int], tuple[int, int] | None] = (_NEVER, None)
        for chosen in _choices(index, len(nodes) - after, kept, last=after == 0):
            node = nodes[chosen]
            stops = (layers,) if after == 0 else range(start + 1, layers - after + 1)
            for stop in stops:
                seconds = stage_work(costs, layers, start, stop) / node.speed
                needed = stage_bytes(costs, layers, start, stop, in_flight=after + 1)
                if seconds > limit or needed > node.memory_bytes:
                    continue
                value = rank(seconds, seconds, chosen)
                if after:
                    rest = best(chosen + 1, stop, after - 1)[0]
                    value = (max(value[0], rest[0]), value[1] + rest[1], value[2] + rest[2])
                if value < found[0]:
                    found = (value, (chosen, stop))
        return found

    most = min(len(nodes), layers, microbatches)
    options = [(best(0, 0, stages - 1)[0], stages) for stages in range(1, most + 1)]
    value, count = min(options, default=(_NEVER, 0))
    if value[0] == float("inf") or value == _NEVER:
        return _NEVER, ()
    result: list[Stage] = []
    index = start = 0
    for after in reversed(range(count)):
        choice = best(index, start, after)[1]
        assert choice is not None  # noqa: S101 - its value is finite
        chosen, stop = choice
        work = stage_work(costs, layers, start, stop)
        result.append(Stage(nodes[chosen].name, start, stop, work))
        index, start = chosen + 1, stop
    return value, tuple(result)


def _choices(index: int, stop: int, kept: int | None, *, last: bool) -> range:
    """Which nodes can have the next stage: the kept one is neither passed over nor left behind the last."""
    if kept is None or kept < index:
        return range(index, stop)
    return range(kept if last else index, min(kept + 1, stop))


def _one_does_not_fit(layers: int, node: StageNode, costs: Costs) -> UnsupportedError:
    return UnsupportedError(
        "the primary's memory cannot hold a part of the model, and it must have one",
        host=node.name,
        field="ram_gb",
        found=f"{node.memory_bytes // _MIB} MiB",
        expected=f"at least {_least_bytes(layers, costs) // _MIB} MiB for a stage of one layer",
        fix="Make model or batch_size smaller in group_data/all.py, or make another node the primary",
    )


def _least_bytes(layers: int, costs: Costs) -> int:
    """What a stage of one layer needs, wherever it is needed least."""
    return min(
        stage_bytes(costs, layers, start, start + 1, in_flight=1) for start in {0, layers // 2, layers - 1}
    )


def _nothing_fits(layers: int, nodes: Sequence[StageNode], costs: Costs) -> UnsupportedError:
    least = _least_bytes(layers, costs)
    too_small = [node for node in nodes if node.memory_bytes < least] or list(nodes)
    return UnsupportedError(
        "no cut of the model into stages fits into the nodes' memory",
        host=", ".join(node.name for node in too_small),
        field="ram_gb",
        found=", ".join(f"{node.name} {node.memory_bytes // _MIB} MiB" for node in nodes) or "no nodes",
        expected=f"{layers} layers of {costs.layer_bytes // _MIB} MiB and more, and at least "
        f"{least // _MIB} MiB for a stage of one",
        fix="Make model or batch_size smaller in group_data/all.py, or add a node with more memory",
    )
