"""Who averages with whom: everyone once, the same for all, and over the rounds everything mixes."""

from __future__ import annotations

import random
import statistics
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.worker.gossip.pairing import group_bits, group_of, groups, is_for_all

NAMES = st.text("abcdefghij0123456789-", min_size=1, max_size=8)
LIVE = st.sets(NAMES, max_size=40)
ROUNDS = st.integers(0, 10_000)


@given(LIVE, NAMES, ROUNDS, st.integers(0, 20), st.booleans())
def test_everyone_is_in_exactly_one_group(
    live: set[str],
    run: str,
    number: int,
    each: int,
    last: bool,  # noqa: FBT001
) -> None:
    found = groups(live, run, number, all_each=each, last=last)
    assert sorted(node for group in found for node in group) == sorted(live)
    assert all(list(group) == sorted(group) for group in found)
    sizes = Counter(len(group) for group in found)
    if is_for_all(number, each, last=last):
        assert len(found) == bool(live)
    else:
        assert sizes == Counter({2: len(live) // 2, 1: len(live) % 2}) - Counter()


@given(LIVE, NAMES, ROUNDS, st.randoms(use_true_random=False))
def test_it_does_not_depend_on_the_order_in_which_nodes_are_known(
    live: set[str], run: str, number: int, order: random.Random
) -> None:
    nodes = list(live)
    order.shuffle(nodes)
    assert groups(nodes, run, number, all_each=0) == groups(sorted(live), run, number, all_each=0)


@pytest.mark.parametrize("count", [3, 5, 7])
def test_each_is_alone_once_in_as_many_rounds_as_there_are_nodes(count: int) -> None:
    nodes = [f"n{index}" for index in range(count)]
    for start in (0, count, 5 * count):
        alone = [
            group[0]
            for number in range(start, start + count)
            for group in groups(nodes, "run", number, all_each=0)
            if len(group) == 1
        ]
        assert sorted(alone) == nodes


@pytest.mark.parametrize("count", [2, 4, 6, 7, 33])
def test_everybody_meets_everybody_once_before_anybody_twice(count: int) -> None:
    nodes = [f"n{index}" for index in range(count)]
    turns = count - 1 + count % 2
    for first in (0, turns, 7 * turns):
        met = [
            group
            for number in range(first, first + turns)
            for group in groups(nodes, "run", number, all_each=0)
            if len(group) == 2
        ]
        assert len(met) == len(set(met)) == count * (count - 1) // 2


def test_all_meet_every_so_many_rounds_and_at_the_end() -> None:
    assert [number for number in range(10) if is_for_all(number, 4)] == [3, 7]
    assert [number for number in range(4) if is_for_all(number, 1)] == [0, 1, 2, 3]
    assert not any(is_for_all(number, 0) for number in range(100))
    assert is_for_all(0, 0, last=True)


@given(LIVE, ROUNDS)
def test_groups_meet_under_keys_of_their_own(live: set[str], number: int) -> None:
    found = groups(live, "run", number, all_each=0)
    keys = {group_bits(group, number) for group in found}
    assert len(keys) == len(found)
    assert all(len(key) == 64 and set(key) <= {"0", "1"} for key in keys)
    assert keys.isdisjoint(group_bits(group, number + 1) for group in found)


def test_who_is_in_no_group_is_alone() -> None:
    assert group_of("b", [("a", "b"), ("c",)]) == ("a", "b")
    assert group_of("x", [("a", "b"), ("c",)]) == ("x",)


def test_other_runs_and_rounds_pair_otherwise_and_all_pairs_come_up() -> None:
    nodes = [f"n{index}" for index in range(6)]
    met = Counter(group for number in range(300) for group in groups(nodes, "run", number, all_each=0))
    assert len(met) == 15
    assert max(met.values()) < 2 * min(met.values())
    ours = [groups(nodes, "run", number, all_each=0) for number in range(20)]
    theirs = [groups(nodes, "other", number, all_each=0) for number in range(20)]
    assert ours != theirs


def spread(values: dict[str, float], weights: dict[str, float]) -> float:
    mean = sum(values[node] * weights[node] for node in values) / sum(weights.values())
    return sum(weights[node] * (value - mean) ** 2 for node, value in values.items())


def average(values: dict[str, float], weights: dict[str, float], run: str, number: int) -> None:
    for group in groups(values, run, number, all_each=0):
        mean = sum(values[node] * weights[node] for node in group) / sum(weights[node] for node in group)
        values.update(dict.fromkeys(group, mean))


@pytest.mark.parametrize("count", [2, 4, 6, 16, 100])
def test_pairs_mix_as_fast_as_the_formula_says(count: int) -> None:
    """What is left of the spread after one round, against (n - 2) / (2 (n - 1))."""
    choose = random.Random(count)  # noqa: S311 - the same each time
    left = []
    equal = {f"n{index}": 1.0 for index in range(count)}
    for run in range(400):
        values = {node: choose.gauss() for node in equal}
        before = spread(values, equal)
        average(values, equal, str(run), run)
        left.append(spread(values, equal) / before)
    assert statistics.fmean(left) == pytest.approx((count - 2) / (2 * (count - 1)), rel=0.1, abs=1e-9)


@pytest.mark.parametrize("count", [2, 3, 6, 7, 33])
def test_over_the_rounds_all_come_to_the_weighted_mean(count: int) -> None:
    choose = random.Random(count)  # noqa: S311 - the same each time
    nodes = [f"n{index}" for index in range(count)]
    weights = {node: choose.uniform(1, 16) for node in nodes}
    values = {node: choose.gauss() for node in nodes}
    ideal = sum(values[node] * weights[node] for node in nodes) / sum(weights.values())
    for number in range(60):
        average(values, weights, "run", number)
    assert max(abs(value - ideal) for value in values.values()) < 1e-3


def test_training_in_pairs_stays_close_to_training_with_all() -> None:
    """Every round each node moves at random; pairs keep the fleet nearly as close as a group of all."""
    choose = random.Random(1)  # noqa: S311 - the same each time
    equal = {f"n{index}": 1.0 for index in range(6)}
    values = dict.fromkeys(equal, 0.0)
    apart = []
    for number in range(2000):
        for node in values:
            values[node] += choose.gauss()
        apart.append(spread(values, equal) / 5)  # with a group of all this is 1 on average
        average(values, equal, "run", number)
    # A geometric series with a fresh shuffle each round: 1 / (1 - 0.4).
    assert 1.2 < statistics.fmean(apart[100:]) < 1 / 0.6
