import math
import time
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError, UnsupportedError
from tailtrain.planning.shares import apportion, assign, q16_weights, usable_cores
from tailtrain.spec import DatasetInfo, NetworkNode, NodeReserve, NodeRole
from tailtrain.spec.defaults import (
    ALL_NODES,
    ARCHITECT,
    CODING_LANGUAGE_DATASET,
    NATURAL_LANGUAGE_DATASET,
    QFOX,
)

DATASETS = (NATURAL_LANGUAGE_DATASET, CODING_LANGUAGE_DATASET)
CORES = [16, 8, 4, 2, 4, 2]

NUMBERS = (
    st.integers(0, 512)
    | st.integers(0, 10**12)
    | st.floats(0, 1e6, allow_nan=False)
    | st.fractions(0, 1000, max_denominator=999)
)
SOME = st.lists(NUMBERS, min_size=1, max_size=60).filter(any)
# A thousand drawn values are slow to draw and shrink; the sizes are drawn and the values made from a seed.
MANY = st.builds(
    lambda size, random: [random.choice((0, random.randint(1, 9), random.random())) for _ in range(size)],
    st.integers(500, 1000),
    st.randoms(use_true_random=False),
).filter(any)
WEIGHTS = SOME | MANY
TOTALS = st.integers(0, 100) | st.integers(0, 10**9)
QUICK = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@QUICK
@given(TOTALS, WEIGHTS)
def test_shares_sum_to_the_total_and_are_within_one_of_the_exact_quota(
    total: int, weights: list[int | float | Fraction]
) -> None:
    shares = apportion(total, weights)
    assert sum(shares) == total
    whole = sum(Fraction(weight) for weight in weights)
    for share, weight in zip(shares, weights, strict=True):
        quota = total * Fraction(weight) / whole
        assert math.floor(quota) <= share <= math.ceil(quota)


@QUICK
@given(TOTALS, WEIGHTS)
def test_more_weight_never_gets_less_and_equal_weights_are_served_in_order(
    total: int, weights: list[int | float | Fraction]
) -> None:
    shares = apportion(total, weights)
    # Heaviest first; sorted() keeps equal weights in the order given.
    served = [
        shares[place] for place in sorted(range(len(weights)), key=lambda place: -Fraction(weights[place]))
    ]
    assert served == sorted(served, reverse=True)


@QUICK
@given(TOTALS, SOME, st.fractions(Fraction(1, 1000), 1000, max_denominator=1000))
def test_only_the_proportions_of_weights_count(
    total: int, weights: list[int | float | Fraction], factor: Fraction
) -> None:
    assert apportion(total, [Fraction(weight) * factor for weight in weights]) == apportion(total, weights)
    assert apportion(total, tuple(weights)) == apportion(total, weights)


@QUICK
@given(TOTALS, SOME)
def test_a_node_of_no_weight_gets_nothing_and_changes_nothing(
    total: int, weights: list[int | float | Fraction]
) -> None:
    assert apportion(total, [0, *weights, 0.0]) == [0, *apportion(total, weights), 0]


def test_the_specification_s_records_are_handed_out_to_the_last() -> None:
    assert apportion(65_318, CORES) == [29030, 14515, 7258, 3629, 7257, 3629]
    assert apportion(2_776, CORES) == [1234, 617, 309, 154, 308, 154]


def test_ties_go_to_who_stands_first() -> None:
    assert apportion(1, [1, 1, 1]) == [1, 0, 0]
    assert apportion(5, [1, 1, 1]) == [2, 2, 1]


def test_edges() -> None:
    assert apportion(0, [3, 1]) == [0, 0]
    assert apportion(7, [0.1]) == [7]
    assert apportion(10**30, [1, 2]) == [(10**30 - 1) // 3, (2 * 10**30 + 1) // 3]
    assert apportion(3, [5e-324, 1.7e308]) == [0, 3]


@pytest.mark.parametrize("weights", [[], [0], [0, 0.0, Fraction(0)]])
def test_nothing_can_be_shared_without_weight(weights: list[float]) -> None:
    for total in (0, 5):
        with pytest.raises(DeclarationError, match="without a weight above zero"):
            apportion(total, weights)


@pytest.mark.parametrize("weight", [-1, -0.5, math.nan, math.inf, True, "2", None])
def test_a_weight_that_is_no_weight_is_refused_by_its_place(weight: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        apportion(5, [1, weight])
    assert (caught.value.field, caught.value.found) == ("weights[1]", repr(weight))


@pytest.mark.parametrize("total", [-1, True, 2.0, "5", None])
def test_a_total_that_is_no_count_is_refused(total: Any) -> None:
    with pytest.raises(DeclarationError) as caught:
        apportion(total, [1])
    assert (caught.value.field, caught.value.found) == ("total", repr(total))


@QUICK
@given(WEIGHTS)
def test_the_weights_of_any_fleet_sum_to_exactly_one(weights: list[int | float | Fraction]) -> None:
    assert sum(weight.raw for weight in q16_weights(weights)) == 65_536


def test_the_weights_of_the_specification_s_fleet() -> None:
    assert [weight.raw for weight in q16_weights(CORES)] == [29127, 14563, 7282, 3641, 7282, 3641]


def test_a_thousand_nodes_of_uneven_speed_are_shared_out_at_once() -> None:
    speeds = [1000 / (place + 7) for place in range(1000)]
    started = time.perf_counter()
    assert sum(apportion(10**9, speeds)) == 10**9
    assert time.perf_counter() - started < 2


def test_every_node_is_assigned_its_exact_part() -> None:
    assignments = assign(ALL_NODES, DATASETS)
    assert [host for host, _ in assignments] == [node.hostname for node in ALL_NODES]
    values = [assignment for _, assignment in assignments]
    assert sum(value.weight.raw for value in values) == 65_536
    assert sum(value.natural_language_shard_size for value in values) == 65_318
    assert sum(value.coding_language_shard_size for value in values) == 2_776
    first = values[0]
    assert (first.cores_allocated, first.ram_allocated_gb, first.gpu_available) == (16, 32, True)


def test_measured_speeds_decide_where_they_are_given() -> None:
    assignments = assign([QFOX, ARCHITECT], DATASETS, weights=[250.5, 751.5])
    assert [value.weight.raw for _, value in assignments] == [16_384, 49_152]
    assert [value.cores_allocated for _, value in assignments] == [16, 8]


def test_what_a_node_reserves_is_not_allocated_and_lowers_its_weight() -> None:
    reserves = {"qfox": NodeReserve(cores=8, ram_gb=30)}
    (_, first), (_, second) = assign([QFOX, ARCHITECT], DATASETS, reserves=reserves)
    assert (first.cores_allocated, first.ram_allocated_gb) == (8, 2)
    assert first.weight == second.weight
    assert usable_cores(QFOX, reserves) == 8


def test_without_sharding_every_node_has_everything() -> None:
    for _, assignment in assign(ALL_NODES, DATASETS, sharded=False):
        assert assignment.natural_language_shard_size == 65_318
        assert assignment.coding_language_shard_size == 2_776


def test_an_absent_or_empty_data_set_is_no_records() -> None:
    empty = DatasetInfo.measured("empty.parquet", size_bytes=0, records=0, shards=6)
    for datasets in ([], [empty], [empty, empty]):
        for _, assignment in assign(ALL_NODES, datasets):
            assert assignment.natural_language_shard_size == assignment.coding_language_shard_size == 0


def test_a_third_data_set_has_no_place_in_the_specification_s_form() -> None:
    with pytest.raises(UnsupportedError, match="places for two data sets"):
        assign(ALL_NODES, [*DATASETS, CODING_LANGUAGE_DATASET])


def test_weights_must_be_those_of_the_nodes() -> None:
    with pytest.raises(DeclarationError) as caught:
        assign(ALL_NODES, DATASETS, weights=[1])
    assert (caught.value.found, caught.value.expected) == ("1 weights", "6, one per node")


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 256), min_size=1, max_size=200), TOTALS, TOTALS)
def test_any_fleet_gets_every_record_once(cores: list[int], natural: int, coding: int) -> None:
    nodes = [
        NetworkNode(f"n{place}", "100.x.x.x", count, 1, has_gpu=False, role=NodeRole.COMPUTE, storage_gb=0)
        for place, count in enumerate(cores)
    ]
    datasets = [
        msgspec.structs.replace(NATURAL_LANGUAGE_DATASET, records=records) for records in (natural, coding)
    ]
    values = [assignment for _, assignment in assign(nodes, datasets)]
    assert sum(value.weight.raw for value in values) == 65_536
    assert sum(value.natural_language_shard_size for value in values) == natural
    assert sum(value.coding_language_shard_size for value in values) == coding
