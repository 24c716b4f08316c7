"""Placement: exact quotas, one owner per record, and no more records moved than arithmetic demands."""

from __future__ import annotations

import random
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrain.errors import DataError
from tailtrain.planning.moves import moves
from tailtrain.planning.placement import Chunk, Placement, Range, place

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def quotas_of(weights: Mapping[str, int], total: int) -> dict[str, int]:
    """Largest remainder, written here again so that the test does not lean on the code that it tests with."""
    whole = sum(weights.values())
    shares = {node: total * weight // whole for node, weight in weights.items()}
    by_remainder = sorted(weights, key=lambda node: (-(total * weights[node] % whole), node))
    for node in by_remainder[: total - sum(shares.values())]:
        shares[node] += 1
    return shares


def owners(placement: Mapping[str, Sequence[tuple[str, int, int]]]) -> dict[tuple[str, int], str]:
    """Every record's owner, counted one by one; a record with two owners fails here."""
    result: dict[tuple[str, int], str] = {}
    for node, ranges in placement.items():
        for chunk, start, stop in ranges:
            for row in range(start, stop):
                assert (chunk, row) not in result
                result[chunk, row] = node
    return result


def check(chunks: Sequence[Chunk], quotas: Mapping[str, int], placement: Placement) -> None:
    """The promises that hold for any placement."""
    assert list(placement) == list(quotas)
    assert set(owners(placement)) == {(chunk.sha256, row) for chunk in chunks for row in range(chunk.rows)}
    order = {chunk.sha256: index for index, chunk in enumerate(chunks)}
    for node, ranges in placement.items():
        assert sum(each.rows for each in ranges) == quotas[node]
        keys = [(order[each.chunk], each.start, each.stop) for each in ranges]
        assert keys == sorted(keys)
        for left, right in pairwise(ranges):
            assert (left.chunk, left.stop) != (right.chunk, right.start), "ranges that touch are merged"


chunk_lists = st.lists(st.integers(0, 12), min_size=1, max_size=12).map(
    lambda rows: [Chunk(f"chunk{index}", count) for index, count in enumerate(rows)]
)
weight_maps = st.dictionaries(
    st.sampled_from([f"node{index}" for index in range(8)]), st.integers(1, 16), min_size=1
)


@given(chunk_lists, weight_maps, st.lists(weight_maps, min_size=1, max_size=4))
@settings(deadline=None)
def test_any_change_of_the_fleet_moves_the_arithmetic_minimum(
    chunks: list[Chunk], first: dict[str, int], later: list[dict[str, int]]
) -> None:
    """Whatever joins, leaves or changes weight, records moved = the sum of what the growing nodes lack."""
    total = sum(chunk.rows for chunk in chunks)
    placement = place(chunks, quotas_of(first, total))
    check(chunks, quotas_of(first, total), placement)
    for weights in later:
        quotas = quotas_of(weights, total)
        new = place(chunks, quotas, placement)
        check(chunks, quotas, new)
        had = {node: sum(each.rows for each in placement.get(node, ())) for node in quotas}
        bound = sum(max(0, quotas[node] - had[node]) for node in quotas)
        before, after = owners(placement), owners(new)
        changed = sum(1 for record, node in after.items() if before.get(record) != node)
        assert changed == bound
        assert moves(placement, new).records == bound
        placement = new


@given(chunk_lists, weight_maps, weight_maps)
@settings(deadline=None)
def test_a_change_adds_at_most_one_range_per_node(
    chunks: list[Chunk], first: dict[str, int], second: dict[str, int]
) -> None:
    """Fragmentation is bounded, so the bytes moved are within one chunk per boundary of the minimum."""
    total = sum(chunk.rows for chunk in chunks)
    old = place(chunks, quotas_of(first, total))
    new = place(chunks, quotas_of(second, total), old)
    count = sum(len(ranges) for ranges in old.values())
    assert sum(len(ranges) for ranges in new.values()) <= count + len({*first, *second})


ranges_of_anything = st.lists(
    st.tuples(
        st.sampled_from(["chunk0", "chunk1", "chunk2", "gone"]), st.integers(-3, 20), st.integers(-3, 20)
    ),
    max_size=8,
)


@given(
    chunk_lists, weight_maps, st.dictionaries(st.sampled_from(["node0", "node1", "old"]), ranges_of_anything)
)
@settings(deadline=None)
def test_a_strange_previous_placement_does_no_harm(
    chunks: list[Chunk], weights: dict[str, int], previous: dict[str, list[tuple[str, int, int]]]
) -> None:
    """Unknown chunks and nodes, ranges outside the chunk, overlaps and reversed ranges are put right."""
    quotas = quotas_of(weights, sum(chunk.rows for chunk in chunks))
    check(chunks, quotas, place(chunks, quotas, previous))


@given(st.integers(0, 2**32), st.integers(50, 300))
@settings(deadline=None, max_examples=5)
def test_hundreds_of_nodes_joining_leaving_and_changing(seed: int, nodes: int) -> None:
    """The minimum holds at the size of a large fleet too, over a series of changes."""
    rng = random.Random(seed)  # noqa: S311 - a repeatable fleet, no secret
    chunks = [Chunk(f"c{index}", rng.randint(1, 40)) for index in range(400)]
    total = sum(chunk.rows for chunk in chunks)
    weights = {f"n{index}": rng.randint(1, 64) for index in range(nodes)}
    placement = place(chunks, quotas_of(weights, total))
    for step in range(4):
        del weights[rng.choice(list(weights))]
        weights[f"new{step}"] = rng.randint(1, 64)
        weights[rng.choice(list(weights))] = rng.randint(1, 64)
        quotas = quotas_of(weights, total)
        new = place(chunks, quotas, placement)
        check(chunks, quotas, new)
        had = {node: sum(each.rows for each in placement.get(node, ())) for node in quotas}
        assert moves(placement, new).records == sum(max(0, quotas[n] - had[n]) for n in quotas)
        placement = new


def test_the_first_placement_is_contiguous_in_inventory_order() -> None:
    """Without a past, the data set is cut like a ribbon."""
    chunks = [Chunk("a", 4), Chunk("b", 4), Chunk("c", 4)]
    assert place(chunks, {"x": 6, "y": 0, "z": 6}) == {
        "x": (Range("a", 0, 4), Range("b", 0, 2)),
        "y": (),
        "z": (Range("b", 2, 4), Range("c", 0, 4)),
    }


def test_nothing_changed_moves_nothing() -> None:
    """The same quotas give the same placement."""
    chunks = [Chunk("a", 5), Chunk("b", 5)]
    placement = place(chunks, {"x": 7, "y": 3})
    assert place(chunks, {"x": 7, "y": 3}, placement) == placement
    assert moves(placement, placement).records == 0


def test_a_lost_node_gives_its_part_of_a_chunk_to_the_one_that_has_the_file() -> None:
    """The neighbour already holds the chunk, so its records cost no bytes."""
    chunks = [Chunk("a", 10), Chunk("b", 10)]
    placement = place(chunks, {"x": 5, "y": 10, "z": 5})
    assert place(chunks, {"y": 15, "z": 5}, placement) == {
        "y": (Range("a", 0, 10), Range("b", 0, 5)),
        "z": (Range("b", 5, 10),),
    }


def test_a_shrinking_node_gives_up_fragments_before_it_cuts_a_whole_chunk() -> None:
    """Fragments heal where the quotas allow it."""
    chunks = [Chunk("a", 10), Chunk("b", 10), Chunk("c", 10)]
    previous = {"x": [("a", 0, 10), ("b", 0, 4)], "y": [("b", 4, 10), ("c", 0, 10)]}
    new = place(chunks, {"x": 10, "y": 20}, previous)
    assert new == {"x": (Range("a", 0, 10),), "y": (Range("b", 0, 10), Range("c", 0, 10))}
    summary = moves(previous, new)
    assert (summary.records, summary.gained, summary.lost) == (4, {"x": 0, "y": 4}, {"x": 4, "y": 0})
    assert summary.fetched == {"x": (), "y": ()}
    assert summary.released == {"x": ("b",), "y": ()}


def test_moves_names_the_chunks_that_a_new_node_fetches_and_a_lost_one_releases() -> None:
    """A lost node is in the summary, with nothing gained."""
    summary = moves({"x": [("a", 0, 3)]}, {"y": [("a", 0, 3)]})
    assert summary.gained == {"y": 3}
    assert summary.lost == {"y": 0, "x": 3}
    assert summary.fetched == {"y": ("a",)}
    assert summary.released == {"y": (), "x": ("a",)}


@pytest.mark.parametrize(
    ("chunks", "quotas", "message"),
    [
        ([Chunk("a", 3)], {"x": 2}, "do not add up"),
        ([Chunk("a", 3)], {"x": 4, "y": -1}, "below zero"),
        ([Chunk("a", 1), Chunk("a", 2)], {"x": 3}, "listed twice"),
        ([Chunk("a", -1)], {"x": 0}, "fewer than no records"),
    ],
)
def test_wrong_input_is_an_error(chunks: list[Chunk], quotas: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        place(chunks, quotas)


def test_a_thousand_nodes_and_a_thousand_chunks_take_seconds_at_most() -> None:
    """Planning stays interactive: 0.03 s on a small machine for a first placement and the loss of a tenth."""
    chunks = [Chunk(f"c{index}", 64) for index in range(1024)]
    total = sum(chunk.rows for chunk in chunks)
    weights = {f"n{index}": 1 + index % 16 for index in range(1000)}
    started = time.process_time()
    placement = place(chunks, quotas_of(weights, total))
    survivors = {node: weight for index, (node, weight) in enumerate(weights.items()) if index % 10}
    place(chunks, quotas_of(survivors, total), placement)
    assert time.process_time() - started < 2
