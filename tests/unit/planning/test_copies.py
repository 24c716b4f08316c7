"""Who keeps copies: enough nodes for each chunk, by a rule that a change of the fleet hardly disturbs."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrain.planning.copies import Ring, copies_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

NAMES = tuple("abcdefgh")
CHUNKS = [hashlib.sha256(str(number).encode()).hexdigest() for number in range(200)]
WEIGHTS = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 16).map(float), min_size=1)


@st.composite
def fleets(draw: st.DrawFn) -> tuple[dict[str, float], dict[str, frozenset[str]]]:
    """Weights of nodes, and who of them owns rows of each chunk."""
    weights = draw(WEIGHTS)
    owned = st.frozensets(st.sampled_from(sorted(weights)), min_size=1, max_size=3)
    return weights, {chunk: draw(owned) for chunk in CHUNKS[:20]}


def holders(
    weights: Mapping[str, float], owners: Mapping[str, Collection[str]], replicas: int
) -> dict[str, set[str]]:
    """For each chunk, everybody who has it: owners and those who keep a copy."""
    found = {chunk: set(names) for chunk, names in owners.items()}
    for node, kept in copies_of(list(owners), owners, Ring(weights), replicas).items():
        for chunk in kept:
            assert node not in owners[chunk], "an owner needs no copy"
            found[chunk].add(node)
    return found


@given(fleets(), st.integers(1, 10))
def test_as_many_nodes_as_wanted_have_each_chunk_where_there_are_so_many(
    fleet: tuple[dict[str, float], dict[str, frozenset[str]]], replicas: int
) -> None:
    weights, owners = fleet
    for chunk, names in holders(weights, owners, replicas).items():
        assert len(names) == max(min(replicas, len(weights)), len(owners[chunk]))


@given(fleets(), st.integers(1, 4), st.randoms())
def test_in_whatever_order_nodes_are_named_the_same_keep_the_same(
    fleet: tuple[dict[str, float], dict[str, frozenset[str]]],
    replicas: int,
    random: st.DataObject,
) -> None:
    weights, owners = fleet
    names = list(weights)
    random.shuffle(names)  # type: ignore[attr-defined]  # hypothesis gives a random.Random here
    turned = {name: weights[name] for name in names}
    backwards = dict(reversed(owners.items()))
    assert holders(turned, backwards, replicas) == holders(weights, owners, replicas)


@given(fleets(), st.integers(1, 4), st.integers(1, 16))
def test_a_node_that_comes_or_goes_moves_only_copies_that_are_its_own(
    fleet: tuple[dict[str, float], dict[str, frozenset[str]]], replicas: int, weight: int
) -> None:
    weights, owners = fleet
    without = holders(weights, owners, replicas)
    beside = holders({**weights, "newcomer": float(weight)}, owners, replicas)
    for chunk in owners:
        came, went = beside[chunk] - without[chunk], without[chunk] - beside[chunk]
        assert came <= {"newcomer"}
        assert len(went) <= len(came)


@given(fleets(), st.integers(1, 4), st.integers(1, 16))
def test_a_node_of_another_weight_moves_only_copies_that_it_takes_or_gives(
    fleet: tuple[dict[str, float], dict[str, frozenset[str]]], replicas: int, weight: int
) -> None:
    weights, owners = fleet
    changed = min(weights)
    before = holders(weights, owners, replicas)
    after = holders({**weights, changed: float(weight)}, owners, replicas)
    for chunk in owners:
        assert before[chunk] == after[chunk] or changed in before[chunk] ^ after[chunk]


@settings(max_examples=25)
@given(fleets(), st.integers(1, 3))
def test_more_copies_are_more_of_the_same(
    fleet: tuple[dict[str, float], dict[str, frozenset[str]]], replicas: int
) -> None:
    weights, owners = fleet
    fewer, more = holders(weights, owners, replicas), holders(weights, owners, replicas + 1)
    assert all(fewer[chunk] <= more[chunk] for chunk in owners)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_nodes_keep_copies_roughly_by_their_weight(replicas: int) -> None:
    weights = {"qfox": 16.0, "architect": 8.0, "judge": 4.0, "lantern": 4.0, "beacon": 2.0, "ember": 2.0}
    chunks = [hashlib.sha256(f"chunk {number}".encode()).hexdigest() for number in range(4000)]
    kept = copies_of(chunks, dict.fromkeys(chunks, ()), Ring(weights), 1)
    for node, weight in weights.items():
        fair = len(chunks) * weight / sum(weights.values())
        assert 0.75 * fair < len(kept[node]) < 1.33 * fair, node
    # Further copies cannot follow the weights: a node has each chunk once. But the heavy keep more.
    many = copies_of(chunks, dict.fromkeys(chunks, ()), Ring(weights), replicas)
    assert sum(map(len, many.values())) == replicas * len(chunks)
    assert len(many["qfox"]) > len(many["judge"]) > len(many["ember"]) / 2


def test_nobody_keeps_copies_where_one_node_has_each_chunk() -> None:
    assert copies_of(CHUNKS, dict.fromkeys(CHUNKS, ("a",)), Ring({"a": 1.0, "b": 1.0}), 1) == {}
    assert copies_of(CHUNKS, dict.fromkeys(CHUNKS, ("a",)), Ring({"a": 1.0}), 5) == {}


def test_a_node_without_cores_to_spare_keeps_some_too() -> None:
    kept = copies_of(CHUNKS, dict.fromkeys(CHUNKS, ()), Ring({"a": 0.25, "b": 1.0}), 1)
    assert set(kept) == {"a", "b"}
