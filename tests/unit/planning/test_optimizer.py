"""The topology optimizer: against brute force, against plain shares, and at its limits."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("scipy")

from tailtrain.errors import DeclarationError
from tailtrain.planning.topology.offers import (
    Compression,
    Job,
    Limits,
    Link,
    Offer,
    Overheads,
    Role,
    Way,
    first_guess,
)
from tailtrain.planning.topology.optimizer import optimize
from tailtrain.planning.topology.round_time import (
    averaging_seconds,
    best_reducers,
    best_round_seconds,
    calibrated,
    cost_per_token,
    drift,
    exchange_seconds,
    weight_bytes,
)

MBIT = 1e6 / 8
GIB = 2**30
JOB = Job(
    parameters=10_000_000,
    batch_tokens=1024,
    target_tokens=10**10,
    training_bytes=GIB,
    validation_bytes=GIB // 2,
    data_bytes=10 * GIB,
    primary="a",
)
SPEEDS = (16.0, 8.0, 4.0, 2.0, 4.0, 2.0)
QUICK = settings(deadline=None, max_examples=40)
LINKS_NONE: dict[tuple[str, str], Link] = {}


def offer(node: str, speed: float = 1000.0, mbit: float = 100.0, **changes: Any) -> Offer:
    values: dict[str, Any] = {
        "cores": 4,
        "memory_bytes": 4 * GIB,
        "disk_bytes": 100 * GIB,
        "round_trip_seconds": 0.01,
    }
    return Offer(node=node, tokens_per_second=speed, bytes_per_second=mbit * MBIT, **{**values, **changes})


def six(**changes: Any) -> list[Offer]:
    return [
        offer(name, 1000 * speed, cores=int(speed), **changes)
        for name, speed in zip("abcdef", SPEEDS, strict=True)
    ]


OFFERS = st.lists(
    st.tuples(st.floats(1, 1e5), st.floats(0.1, 1e4), st.integers(1, 64)), min_size=1, max_size=8
).map(
    lambda drawn: [offer(f"n{i}", speed, mbit, cores=cores) for i, (speed, mbit, cores) in enumerate(drawn)]
)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[list[Offer], dict[tuple[str, str], Link]]:
    offers = draw(OFFERS)
    pairs = list(itertools.combinations([each.node for each in offers], 2))
    slow = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=3)) if pairs else []
    return offers, {pair: Link(draw(st.floats(0.05, 100)) * MBIT, 0.1, direct=False) for pair in slow}


def by_hand(offers: list[Offer], links: Any, job: Job, limits: Limits, overheads: Overheads) -> float:
    """The least cost per token of a grid over everything, with its own arithmetic."""
    n, speeds = len(offers), [each.tokens_per_second for each in offers]
    grid = 60
    best = float("inf")
    parts = [(i, j, grid - i - j) for i in range(grid + 1) for j in range(grid + 1 - i)]
    trip = max(
        [each.round_trip_seconds for each in offers] + [link.round_trip_seconds for link in links.values()]
    )
    fixed = overheads.matchmaking_seconds + overheads.round_trips * trip
    unit = min(
        max(
            [(1 + (n - 2) * c[i] / grid) / offers[i].bytes_per_second for i in range(n)]
            + [
                (c[int(one[1])] + c[int(other[1])]) / grid / link.bytes_per_second
                for (one, other), link in links.items()
            ]
        )
        for c in parts
    )
    for width in {"none": 4, "fp16": 2, "8-bit": 1}.values():
        averaging = job.parameters * width * unit + fixed
        most = min(
            limits.most_steps * job.batch_tokens / max(speeds),
            limits.most_round_seconds,
            job.target_tokens / sum(speeds) / limits.least_averagings,
        )
        lengths = [max(limits.least_round_seconds, most * fraction / 400) for fraction in range(1, 401)]
        for training in lengths:
            lost = limits.failures_per_day / 86400 * training / 2
            best = min(best, (training + averaging) / (sum(speeds) * training * (1 - lost)))
    return best


@settings(deadline=None, max_examples=25)
@given(
    st.lists(st.tuples(st.floats(10, 1e5), st.floats(1, 1000)), min_size=3, max_size=3),
    st.booleans(),
    st.floats(0.1, 100),
)
def test_it_is_as_good_as_a_grid_over_everything(
    drawn: list[tuple[float, float]],
    slow: bool,  # noqa: FBT001 - drawn
    failures: float,
) -> None:
    offers = [offer(f"n{i}", speed, mbit) for i, (speed, mbit) in enumerate(drawn)]
    links = {("n0", "n2"): Link(0.5 * MBIT, 0.2, direct=False)} if slow else {}
    limits = Limits(ways=(Way.GROUP,), failures_per_day=failures, least_gain=0.0, most_averaging_seconds=1e9)
    whole = Overheads(part_bytes=0.0)
    found = optimize(offers, links, JOB, limits, whole)
    cost = cost_per_token(
        found.prediction.training_seconds,
        found.prediction.averaging_seconds,
        found.prediction.ideal_tokens_per_second,
        limits,
    )
    least = by_hand(offers, links, JOB, limits, whole)
    assert cost <= least * (1 + 1e-6)
    assert cost >= least * 0.9  # the grid is coarse, not wrong


@QUICK
@given(fleets(), st.lists(st.floats(0, 1), min_size=8, max_size=8))
def test_no_other_parts_of_the_weights_average_sooner(fleet: Any, drawn: list[float]) -> None:
    offers, links = fleet
    best = best_reducers(offers, links)
    assert sum(best.values()) == pytest.approx(1)
    assert all(part >= 0 for part in best.values())
    total = sum(drawn[: len(offers)])
    others = [dict.fromkeys(best, 1 / len(offers))]
    if total > 0:
        others.append({each.node: part / total for each, part in zip(offers, drawn, strict=False)})
    for other in others:
        assert exchange_seconds(best, offers, links, 1e6) <= exchange_seconds(other, offers, links, 1e6) * (
            1 + 1e-6
        )


def test_what_one_slow_link_holds_up_is_spread_over_all_others_by_what_they_carry() -> None:
    offers = [offer("a", mbit=200), offer("b", mbit=100), offer("c", mbit=100), offer("slow", mbit=2)]
    parts = best_reducers(offers, {})
    assert parts["slow"] == pytest.approx(0, abs=1e-6)
    assert parts["a"] == pytest.approx(0.5, abs=1e-5)
    assert parts["b"] == pytest.approx(parts["c"])


@QUICK
@given(fleets(), st.sampled_from([(Way.GROUP,), (Way.GROUP, Way.PAIRS), (Way.PAIRS,)]))
def test_it_is_never_predicted_slower_than_shares_by_cores_or_equal_ones(fleet: Any, ways: Any) -> None:
    offers, links = fleet
    found = optimize(offers, links, JOB, Limits(ways=ways))
    for plain in (found.by_cores, found.equal):
        assert plain.tokens == found.prediction.tokens
        if Way.GROUP in ways:
            assert found.prediction.seconds <= plain.seconds * (1 + 1e-6)
        assert found.prediction.training_seconds <= plain.training_seconds * (1 + 1e-6)


@QUICK
@given(fleets())
def test_shares_follow_speeds_and_every_figure_fits_the_others(fleet: Any) -> None:
    offers, links = fleet
    found = optimize(offers, links, JOB)
    total = sum(each.tokens_per_second for each in offers)
    for each in offers:
        assert found.shares[each.node] == pytest.approx(each.tokens_per_second / total)
    assert sum(found.reducers.values()) == pytest.approx(1)
    assert 0 < found.prediction.utilisation <= 1
    assert found.speedup <= found.ideal * (1 + 1e-9)
    assert found.ideal == pytest.approx(total / max(each.tokens_per_second for each in offers))
    assert found == optimize(offers, links, JOB)


@QUICK
@given(
    fleets(), st.integers(0, 7), st.floats(1, 100), st.sampled_from(["tokens_per_second", "bytes_per_second"])
)
def test_a_node_that_gets_faster_makes_no_fleet_slower(
    fleet: Any, which: int, times: float, field: str
) -> None:
    offers, links = fleet
    index = which % len(offers)
    better = list(offers)
    better[index] = dataclasses.replace(offers[index], **{field: getattr(offers[index], field) * times})
    # A faster node is only bound by how far it may drift from the others.
    limits = Limits(most_steps=10**9, least_gain=0.0, least_averagings=1)
    # The linear program knows nothing of the first part, which costs it up to a thousandth here.
    whole = Overheads(part_bytes=0.0)
    before, after = (optimize(each, links, JOB, limits, whole) for each in (offers, better))

    def cost(found: Any) -> float:
        said = found.prediction
        return cost_per_token(
            said.training_seconds, said.averaging_seconds, said.ideal_tokens_per_second, limits
        )

    assert cost(after) <= cost(before) * (1 + 1e-6)


@QUICK
@given(st.floats(0.01, 1000), st.floats(0.01, 1000), st.floats(0.01, 100), st.floats(1, 1e4))
def test_no_other_length_of_a_round_costs_less(
    averaging: float, other: float, failures: float, most: float
) -> None:
    limits = Limits(least_round_seconds=0.01, failures_per_day=failures)
    best = best_round_seconds(averaging, limits, most)
    other = max(limits.least_round_seconds, min(other, most))
    assert cost_per_token(best, averaging, 1.0, limits) <= cost_per_token(other, averaging, 1.0, limits) * (
        1 + 1e-9
    )
    assert best_round_seconds(averaging, dataclasses.replace(limits, failures_per_day=0.0), most) == most


def test_the_research_figures_come_out() -> None:
    """With 6 nodes, 10M parameters, 20 Mbit/s: all in fp32 27 s, 8-bit 7 s; a star half of two phases."""
    offers = six(mbit=20.0)
    equal = {each.node: 1 / 6 for each in offers}
    none = Overheads(matchmaking_seconds=0.0, round_trips=0.0, part_bytes=0.0)

    def seconds(way: Way, reducers: dict[str, float], compression: Compression) -> float:
        return averaging_seconds(way, reducers, offers, {}, weight_bytes(JOB.parameters, compression), none)

    assert seconds(Way.GROUP, equal, Compression.NONE) == pytest.approx(26.7, abs=0.1)
    assert seconds(Way.GROUP, equal, Compression.INT8) == pytest.approx(6.7, abs=0.1)
    star = {each.node: float(each.node == "a") for each in offers}
    assert seconds(Way.STAR, star, Compression.NONE) == pytest.approx(80, abs=0.1)
    assert seconds(Way.PAIRS, equal, Compression.NONE) == pytest.approx(16, abs=0.1)
    found = optimize(offers, {}, JOB, Limits(ways=(Way.GROUP,)))
    assert found.ideal == pytest.approx(36 / 16)
    assert found.equal.training_seconds == pytest.approx(3 * found.prediction.training_seconds)
    assert drift(Way.PAIRS, 6, 10**6) == pytest.approx(1 / 0.6)


def test_with_one_slow_link_and_one_small_memory_it_beats_shares_by_cores() -> None:
    # Two nodes are slower than their cores say; d is behind a slow link, f is too small for the optimiser.
    offers = [
        offer("a", 16000, cores=16),
        offer("b", 8000, cores=8),
        offer("c", 2500, cores=4),
        offer("d", 2000, cores=2, mbit=2),
        offer("e", 3000, cores=4),
        offer("f", 2000, cores=2, memory_bytes=GIB * 3 // 4),
    ]
    links = {("b", "c"): Link(4 * MBIT, 0.12, direct=False)}
    found = optimize(offers, links, JOB, Limits(most_round_seconds=120))
    assert found.roles["f"] is Role.DATA
    assert "0.8 GiB" in found.reasons["f"]
    assert found.shares["f"] == found.reducers["f"] == 0
    assert found.compression is not Compression.NONE
    assert found.reducers["d"] < 0.05
    assert found.prediction.seconds < 0.6 * found.by_cores.seconds
    assert found.prediction.seconds < 0.6 * found.equal.seconds


def test_a_slow_node_may_be_left_out_only_where_that_is_allowed() -> None:
    offers = [*six()[:5], offer("f", 2000, mbit=0.05)]
    limits = Limits(ways=(Way.GROUP,), compressions=(Compression.NONE,))
    assert set(optimize(offers, {}, JOB, limits).roles.values()) == {Role.TRAINS}
    found = optimize(offers, {}, JOB, dataclasses.replace(limits, keep_all=False))
    assert found.roles["f"] is Role.DATA
    assert "link" in found.reasons["f"]
    assert set(optimize(six(), {}, JOB, dataclasses.replace(limits, keep_all=False)).roles.values()) == {
        Role.TRAINS
    }


def test_what_is_less_exact_or_less_simple_has_to_be_worth_it() -> None:
    fast = optimize(six(mbit=10_000.0), {}, JOB)
    assert (fast.way, fast.compression, fast.all_each) == (Way.GROUP, Compression.NONE, 1)
    slow = optimize(six(mbit=1.0), {}, JOB)
    assert slow.compression is Compression.INT8
    exact = optimize(six(mbit=1.0), {}, JOB, Limits(compressions=(Compression.NONE,)))
    assert exact.compression is Compression.NONE
    assert exact.prediction.utilisation < slow.prediction.utilisation


def test_averagings_that_connections_do_not_outlast_are_avoided_or_told() -> None:
    offers = [*six()[:5], offer("f", 2000, mbit=2)]
    found = optimize(offers, {}, dataclasses.replace(JOB, parameters=4_000_000))
    assert not found.warning
    assert found.compression is Compression.INT8  # in 16 bits it takes 32 s
    exact = Limits(compressions=(Compression.NONE,))
    warned = optimize(offers, {}, JOB, exact)
    assert "link of f is too slow" in warned.warning
    assert optimize(six(), {}, JOB, exact).warning == ""


def test_the_measured_averagings_come_out() -> None:
    """Four hivemind peers, 2M parameters, links shaped to 20 Mbit/s; see the module's figures."""

    def seconds(compression: Compression, slowest: float) -> float:
        offers = [offer(name, mbit=mbit) for name, mbit in zip("abcd", [20, 20, 20, slowest], strict=True)]
        equal = {each.node: 0.25 for each in offers}
        volume = weight_bytes(2_000_000, compression)
        large = Overheads(parts=1)  # parts as large as they get, as they were then
        return averaging_seconds(Way.GROUP, equal, offers, {}, volume, large)

    assert seconds(Compression.NONE, 20.0) == pytest.approx(6.6, rel=0.15)
    assert seconds(Compression.FP16, 20.0) == pytest.approx(3.3, rel=0.15)
    assert seconds(Compression.NONE, 4.0) == pytest.approx(27.2, rel=0.15)


def test_a_short_run_still_averages_and_the_fastest_node_does_not_drift_too_far() -> None:
    short = optimize(six(), {}, dataclasses.replace(JOB, target_tokens=36_000 * 100), Limits())
    assert short.prediction.training_seconds == pytest.approx(10)
    limits = Limits(most_steps=100, ways=(Way.PAIRS,), failures_per_day=0.0)
    apart = optimize(six(), {}, JOB, limits)
    assert max(apart.steps.values()) * drift(Way.PAIRS, 6, apart.all_each) <= 100


def test_disks_cut_shares_off_and_the_rest_goes_to_the_others_by_speed() -> None:
    offers = six()
    offers[0] = dataclasses.replace(offers[0], disk_bytes=2 * GIB)
    found = optimize(offers, {}, JOB)
    assert found.shares["a"] == pytest.approx(0.2)
    assert sum(found.shares.values()) == pytest.approx(1)
    assert found.shares["b"] == pytest.approx(0.8 * 8 / 20)
    assert found.shares["c"] == pytest.approx(0.8 * 4 / 20)
    assert found.prediction.utilisation < 0.75
    with pytest.raises(DeclarationError, match="cannot hold the data"):
        optimize(six(disk_bytes=GIB), {}, JOB)
    with pytest.raises(DeclarationError, match="all data"):
        optimize(offers, {}, dataclasses.replace(JOB, sharded=False))


@QUICK
@given(st.lists(st.tuples(st.floats(1, 1e4), st.floats(0.05, 20)), min_size=1, max_size=8))
def test_shares_never_exceed_disks_and_no_epoch_could_be_shorter(drawn: list[tuple[float, float]]) -> None:
    offers = [offer(f"n{i}", speed, disk_bytes=int(room * GIB)) for i, (speed, room) in enumerate(drawn)]
    if sum(each.disk_bytes for each in offers) < JOB.data_bytes:
        with pytest.raises(DeclarationError):
            optimize(offers, {}, JOB)
        return
    shares = optimize(offers, {}, JOB).shares
    assert sum(shares.values()) == pytest.approx(1)
    epoch = max(shares[each.node] / each.tokens_per_second for each in offers)
    for each in offers:
        room = each.disk_bytes / JOB.data_bytes
        assert shares[each.node] <= room * (1 + 1e-9)
        # Who is done before the others has a full disk.
        if shares[each.node] / each.tokens_per_second < epoch * (1 - 1e-6):
            assert shares[each.node] == pytest.approx(room)


def test_nodes_that_can_do_nothing_are_refused_by_name() -> None:
    offers = six()
    offers[3] = dataclasses.replace(offers[3], memory_bytes=GIB // 4)
    offers[5] = dataclasses.replace(offers[5], memory_bytes=GIB // 4)
    with pytest.raises(DeclarationError) as caught:
        optimize(offers, {}, JOB)
    assert "d, f" in str(caught.value)
    assert "1.0 GiB to train" in str(caught.value)
    with pytest.raises(DeclarationError, match="no node's memory"):
        optimize(six(memory_bytes=GIB * 3 // 4), {}, JOB)
    small = [dataclasses.replace(six()[0], memory_bytes=GIB * 3 // 4), *six()[1:]]
    with pytest.raises(DeclarationError, match="primary"):
        optimize(small, {}, JOB, Limits(ways=(Way.STAR,)))
    with pytest.raises(DeclarationError, match="speed"):
        optimize([offer("a", 0.0)], {}, JOB)


def test_one_node_alone_trains_without_averaging() -> None:
    found = optimize([offer("a")], {}, JOB)
    assert found.prediction.averaging_seconds == 0
    assert found.speedup == pytest.approx(found.ideal) == pytest.approx(1)


def test_a_thousand_nodes_take_less_than_a_second() -> None:
    offers = [offer(f"n{i:04}", 100.0 + i % 97, 5.0 + i % 53, cores=1 + i % 16) for i in range(1000)]
    links = {(f"n{i:04}", f"n{i + 1:04}"): Link(0.5 * MBIT, 0.2, direct=False) for i in range(0, 998, 3)}
    optimize(offers[:3], {}, JOB)  # scipy is loaded once
    began = time.process_time()  # others may be running here
    found = optimize(offers, links, JOB)
    took = time.process_time() - began
    print(f"1,000 nodes: {took:.3f} s")
    assert took < 1
    assert sum(found.shares.values()) == pytest.approx(1)


@QUICK
@given(fleets(), st.floats(0.05, 1000), st.sampled_from([*Way]))
def test_what_was_measured_once_is_predicted_from_then_on(fleet: Any, measured: float, way: Way) -> None:
    offers, links = fleet
    reducers = {each.node: 1 / len(offers) for each in offers}
    fitted = calibrated(measured, way, reducers, offers, links, 1e7, Overheads())
    predicted = averaging_seconds(way, reducers, fitted[0], fitted[1], 1e7, fitted[2])
    assert predicted == pytest.approx(measured if len(offers) > 1 else 0.0, rel=1e-6)


def test_a_first_guess_follows_cores_and_size() -> None:
    assert first_guess(8, 10**6) == pytest.approx(8 * first_guess(1, 10**6))
    assert first_guess(1, 10**6) > first_guess(1, 10**7)
    assert first_guess(1, 10**6, gpu=True) > first_guess(64, 10**6)
