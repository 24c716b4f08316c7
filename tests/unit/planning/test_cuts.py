"""Cuts of a model into stages: optimal against brute force, within memory, with a predicted time."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError, UnsupportedError
from tailtrain.partition import Costs, StageNode, cut, stage_bytes, stage_work
from tailtrain.planning.division.cuts import (
    Link,
    bubble,
    plan_pipeline,
    require_tensor_parallel,
    stage_costs,
    step_seconds,
)
from tailtrain.planning.memory import memory_needed, parameters
from tailtrain.planning.settings import LoopSettings, ModelSettings

GIB = 2**30
costs = st.builds(
    Costs,
    layer_work=st.integers(1, 5).map(float),
    head_work=st.integers(0, 5).map(float),
    base_bytes=st.just(10),
    layer_bytes=st.integers(1, 20),
    first_bytes=st.integers(0, 20),
    last_bytes=st.integers(0, 20),
    flight_bytes=st.integers(0, 3),
    layer_flight_bytes=st.integers(0, 3),
    last_flight_bytes=st.integers(0, 5),
)
speeds = st.lists(
    st.tuples(st.sampled_from([1.0, 2.0, 3.0, 8.0]), st.integers(10, 150)), min_size=1, max_size=4
)


def brute_force(
    layers: int, nodes: list[StageNode], of: Costs, microbatches: int, keep: str | None
) -> tuple[float, float]:
    """The least (slowest stage, sum of stages) over all choices of nodes, `keep` among them, and cuts."""
    best = (math.inf, math.inf)
    for count in range(1, min(layers, len(nodes), microbatches) + 1):
        for chosen in itertools.combinations(nodes, count):
            if keep is not None and keep not in {node.name for node in chosen}:
                continue
            for inner in itertools.combinations(range(1, layers), count - 1):
                bounds = [0, *inner, layers]
                times = []
                for index, node in enumerate(chosen):
                    start, stop = bounds[index], bounds[index + 1]
                    if stage_bytes(of, layers, start, stop, in_flight=count - index) > node.memory_bytes:
                        break
                    times.append(stage_work(of, layers, start, stop) / node.speed)
                else:
                    best = min(best, (max(times), math.fsum(times)))
    return best


@given(
    layers=st.integers(1, 7),
    of=costs,
    raw=speeds,
    microbatches=st.integers(1, 5),
    kept=st.none() | st.integers(0, 3),
)
def test_no_cut_has_a_faster_slowest_stage(
    layers: int, of: Costs, raw: list[tuple[float, int]], microbatches: int, kept: int | None
) -> None:
    nodes = [StageNode(f"n{index}", speed, memory) for index, (speed, memory) in enumerate(raw)]
    keep = None if kept is None else nodes[kept % len(nodes)].name
    expected = brute_force(layers, nodes, of, microbatches, keep)
    if expected[0] == math.inf:
        with pytest.raises(UnsupportedError, match=r"no cut of the model|the primary's memory cannot hold"):
            cut(layers, nodes, of, microbatches=microbatches, keep=keep)
        return
    stages = cut(layers, nodes, of, microbatches=microbatches, keep=keep)
    assert keep in {None, *(stage.node for stage in stages)}
    by_name = {node.name: node for node in nodes}
    times = [stage.work / by_name[stage.node].speed for stage in stages]
    assert max(times) == expected[0]
    assert math.fsum(times) == pytest.approx(expected[1])
    assert [stage.start for stage in stages] == [0, *(stage.stop for stage in stages[:-1])]
    assert stages[-1].stop == layers
    assert all(stage.stop > stage.start for stage in stages)
    order = [int(stage.node[1:]) for stage in stages]
    assert order == sorted(set(order))
    for index, stage in enumerate(stages):
        needed = stage_bytes(of, layers, stage.start, stage.stop, in_flight=len(stages) - index)
        assert needed <= by_name[stage.node].memory_bytes


MODEL, LOOP = ModelSettings(layers=6, width=64, heads=4, context=64), LoopSettings(batch_size=8)


def nodes(*weights: float, memory: int = 8 * GIB) -> list[StageNode]:
    return [StageNode(f"n{index}", weight, memory) for index, weight in enumerate(weights)]


def test_layers_follow_the_speeds() -> None:
    plan = plan_pipeline(MODEL, LOOP, nodes(1000.0, 2000.0, 3000.0), {}, microbatches=4)
    assert [(stage.node, stage.start, stage.stop) for stage in plan.stages] == [
        ("n0", 0, 1), ("n1", 1, 3), ("n2", 3, 6),
    ]  # fmt: skip
    assert plan.standby == ()
    assert plan.bubble == bubble(3, 4) == 2 / 6


def test_with_fewer_layers_than_nodes_the_slowest_stand_by() -> None:
    plan = plan_pipeline(ModelSettings(2, 64, 4, 64), LOOP, nodes(3.0, 1.0, 3.0), {}, microbatches=4)
    assert [stage.node for stage in plan.stages] == ["n0", "n2"]
    assert plan.standby == ("n1",)


def test_the_primary_has_a_stage_however_slow_it_is() -> None:
    two, fleet = ModelSettings(2, 64, 4, 64), nodes(3.0, 1.0, 3.0)
    plan = plan_pipeline(two, LOOP, fleet, {}, microbatches=4, primary="n1")
    assert "n1" in {stage.node for stage in plan.stages}
    plan = plan_pipeline(MODEL, LOOP, fleet, {}, microbatches=1, primary="n1")
    assert [stage.node for stage in plan.stages] == ["n1"]
    assert plan.standby == ("n0", "n2")


def test_a_primary_whose_memory_holds_no_part_is_refused_by_name() -> None:
    fleet = [*nodes(1.0, 1.0), StageNode("small", 1.0, 64 * 2**20)]
    with pytest.raises(UnsupportedError) as caught:
        plan_pipeline(MODEL, LOOP, fleet, {}, microbatches=4, primary="small")
    assert str(caught.value).startswith("small: ram_gb: the primary's memory cannot hold a part of the model")
    assert "found 64 MiB" in str(caught.value)


def test_a_node_with_little_memory_holds_fewer_layers_or_none() -> None:
    of = stage_costs(MODEL, LOOP, microbatches=4)
    one_layer = stage_bytes(of, 6, 0, 1, in_flight=3)
    fleet = [StageNode("small", 100.0, one_layer), *nodes(1.0, 1.0)]
    assert cut(6, fleet, of, microbatches=4)[0].stop == 1
    fleet[0] = StageNode("small", 100.0, 1)
    assert {stage.node for stage in cut(6, fleet, of, microbatches=4)} == {"n0", "n1"}


def test_what_fits_nowhere_is_refused_with_the_nodes_and_their_memory() -> None:
    with pytest.raises(UnsupportedError) as caught:
        plan_pipeline(MODEL, LOOP, nodes(1.0, 1.0, memory=64 * 2**20), {}, microbatches=4)
    assert str(caught.value).startswith("n0, n1: ram_gb: no cut of the model into stages fits")
    assert "n0 64 MiB" in str(caught.value)


def test_a_batch_is_a_whole_number_of_microbatches() -> None:
    with pytest.raises(DeclarationError, match="8 windows in 3 microbatches"):
        stage_costs(MODEL, LOOP, microbatches=3)


# The model, batch size, the stage's layers, microbatches that it keeps in flight of 4 in a batch; then the
# peak in MiB of anonymous memory of supervisor, agent, fork server and rank over some steps and checkpoints.
MEASURED = [
    (ModelSettings(6, 32, 4, 32), 8, (0, 3), 2, 426),
    (ModelSettings(8, 512, 8, 64), 8, (0, 4), 2, 775),
    (ModelSettings(8, 512, 8, 64), 8, (4, 8), 1, 756),
    (ModelSettings(4, 192, 4, 256), 64, (0, 2), 2, 774),
    (ModelSettings(4, 192, 4, 256), 64, (2, 4), 1, 718),
]


@pytest.mark.parametrize(("model", "batch_size", "held", "in_flight", "measured"), MEASURED)
def test_the_estimate_of_a_stages_memory_is_near_what_was_measured(
    model: ModelSettings, batch_size: int, held: tuple[int, int], in_flight: int, measured: int
) -> None:
    of = stage_costs(model, LoopSettings(batch_size=batch_size), microbatches=4)
    needed = stage_bytes(of, model.layers, *held, in_flight=in_flight) / 2**20
    assert needed == pytest.approx(measured, rel=0.12)


def test_a_stage_needs_less_memory_than_the_whole_model() -> None:
    model = ModelSettings(8, 640, 8, 64)
    of = stage_costs(model, LoopSettings(batch_size=4), microbatches=4)
    halves = [stage_bytes(of, 8, 0, 4, in_flight=2), stage_bytes(of, 8, 4, 8, in_flight=1)]
    assert max(halves) < memory_needed(model, LoopSettings(batch_size=4)) / 2
    held = of.layer_bytes * 8 + of.first_bytes + of.last_bytes
    # The tied embedding is held twice.
    assert held == 4 * 6 * (parameters(model) + 256 * 640)


def test_equal_stages_without_latency_take_the_time_of_the_formula() -> None:
    free = Link(0.0, math.inf)
    assert step_seconds([1.0] * 3, [free] * 2, 1e6, microbatches=4) == pytest.approx(4 + 3 - 1)


@given(
    times=st.lists(st.floats(0.01, 10), min_size=1, max_size=5),
    microbatches=st.integers(5, 12),
    trip=st.floats(0, 1),
)
def test_links_only_cost(times: list[float], microbatches: int, trip: float) -> None:
    hops = [Link(0.0, math.inf)] * (len(times) - 1)
    free = step_seconds(times, hops, 1000.0, microbatches=microbatches)
    slow = [Link(trip, 1e4)] * (len(times) - 1)
    assert step_seconds(times, slow, 1000.0, microbatches=microbatches) >= free - 1e-9
    assert free >= sum(times) + (microbatches - 1) * max(times) - 1e-9


def test_a_long_round_trip_slows_a_pipeline_down() -> None:
    fleet = nodes(1000.0, 1000.0)
    near = plan_pipeline(MODEL, LOOP, fleet, {("n0", "n1"): Link(0.001, 1e8)}, microbatches=4)
    far = plan_pipeline(MODEL, LOOP, fleet, {("n1", "n0"): Link(0.08, 2.5e6)}, microbatches=4)
    assert far.step_seconds > near.step_seconds + 0.08
    assert near.tokens_per_second == pytest.approx(8 * 64 / near.step_seconds)


def test_tensor_parallelism_is_refused_over_a_long_path_with_the_estimate() -> None:
    links = {("n0", "n1"): Link(0.04, 1e7)}
    with pytest.raises(UnsupportedError) as caught:
        require_tensor_parallel(MODEL, nodes(1.0, 1.0), links, allow_wan=False)
    text = str(caught.value)
    assert text.startswith("n0 and n1: distribution_strategy: modelParallel sums over all nodes")
    assert "4 x 6 layers x 40.0 ms = 960 ms of waiting per step" in text
    assert require_tensor_parallel(MODEL, nodes(1.0, 1.0), links, allow_wan=True) == pytest.approx(0.96)


def test_tensor_parallelism_is_refused_among_unequal_nodes() -> None:
    links = {("n0", "n1"): Link(0.001, 1e8)}
    with pytest.raises(UnsupportedError, match=r"differ by a factor of 2\.5"):
        require_tensor_parallel(MODEL, nodes(2.5, 1.0), links, allow_wan=False)
    assert require_tensor_parallel(MODEL, nodes(2.0, 1.0), links, allow_wan=False) == pytest.approx(0.024)


def test_heads_that_cannot_be_divided_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="a multiple of 3, or 2 nodes"):
        require_tensor_parallel(MODEL, nodes(1.0, 1.0, 1.0), {}, allow_wan=True)
