"""Who reads what: own shards first, every shelf of a lost node's by exactly one member, the same for all."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import PeerError
from tailtrain.worker.reading.reading_progress import NOTHING_READ, START, Place, Progress, ShardProgress
from tailtrain.worker.reading.takeover import deal, group_from_json, parts_of
from tests.unit.worker.shard_samples import COUNTS, DOMAINS, NODES, SHARDS, groups, shards, views


@given(view=views(), group=groups())
def test_every_shelf_that_is_left_is_read_by_exactly_one_member(
    view: Progress, group: dict[str, float]
) -> None:
    readers: dict[tuple[tuple[str, str], int], list[str]] = {}
    for node in NODES:
        for key, part in parts_of(shards(node), view, group).items():
            assert node in group
            assert (part is None) == (key[1] == node), "own shards whole, of others a part"
            shelves = range(SHARDS.by_key[key].size) if part is None else part
            for shelf in shelves:
                readers.setdefault((key, shelf), []).append(node)
    for key, one in SHARDS.by_key.items():
        read = view.get(key, NOTHING_READ)
        for shelf in range(one.size):
            expected = 1 if key[1] in group or shelf not in read.finished else 0
            assert len(readers.get((key, shelf), [])) == expected
            if key[1] in group:
                assert readers[key, shelf] == [key[1]]


@given(view=views(), group=groups(), order=st.randoms())
def test_all_members_work_out_the_same_in_whatever_order_they_know_it(
    view: Progress, group: dict[str, float], order: Any
) -> None:
    names, keys = list(group), list(view)
    order.shuffle(names)
    order.shuffle(keys)
    again = deal(shards("judge"), {key: view[key] for key in keys}, {name: group[name] for name in names})
    assert again == deal(SHARDS, view, group)


@given(view=views(), group=groups())
def test_nobody_has_more_than_its_share_and_one_shelf(view: Progress, group: dict[str, float]) -> None:
    weights = group if any(group.values()) else dict.fromkeys(group, 1.0)
    dealt = deal(SHARDS, view, group)
    for domain in DOMAINS:
        records: dict[str, int] = {}
        largest = total = 0
        for (key, index), member in dealt.items():
            if key[0] != domain:
                continue
            one = view.get(key, NOTHING_READ)
            left = SHARDS.by_key[key].shelves(one.epoch)[index].records - one.begun.get(index, START).done
            records[member] = records.get(member, 0) + left
            largest, total = max(largest, left), total + left
        for member, load in records.items():
            assert load <= total * weights[member] / sum(weights.values()) + largest + 1e-6


def test_speed_decides_how_much_of_a_lost_shard_a_member_takes() -> None:
    dealt = deal(SHARDS, {}, {"architect": 3000.0, "judge": 1000.0})
    records = dict.fromkeys(("architect", "judge"), 0)
    for (key, index), member in dealt.items():
        if key == ("natural", "coder"):
            records[member] += SHARDS.by_key[key].shelves(0)[index].records
    assert records["architect"] / sum(records.values()) == pytest.approx(0.75, abs=0.08)


def test_a_member_that_is_slow_to_nothing_takes_nothing_unless_all_are() -> None:
    assert set(deal(SHARDS, {}, {"architect": 100.0, "judge": 0.0}).values()) == {"architect"}
    assert set(deal(SHARDS, {}, {"architect": 0.0, "judge": 0.0}).values()) == {"architect", "judge"}


def test_most_shelves_stay_where_they_are_as_work_goes_on() -> None:
    """Chunks that a member has fetched are to be the ones that it reads."""
    group = {"architect": 1000.0, "judge": 800.0, "qfox": 1500.0}
    before = deal(SHARDS, {}, group)
    size = SHARDS.by_key["natural", "coder"].size
    first = {
        node: next(index for index in range(size) if before[("natural", "coder"), index] == node)
        for node in group
    }
    view: Progress = {
        ("natural", "coder"): ShardProgress(0, frozenset(first.values()), {}),
    }
    later = {"architect": 1030.0, "judge": 790.0, "qfox": 1480.0}
    after = deal(SHARDS, view, later)
    stayed = [before[key] == member for key, member in after.items()]
    assert sum(stayed) / len(stayed) > 0.75


def test_a_shelf_that_was_begun_stays_with_who_began_it() -> None:
    group = {"architect": 1000.0, "judge": 800.0, "qfox": 1500.0}
    before = deal(SHARDS, {}, group)
    begun = {node: next(i for i in range(12) if before[("natural", "coder"), i] == node) for node in group}
    view: Progress = {
        ("natural", "coder"): ShardProgress(0, frozenset(), dict.fromkeys(begun.values(), Place(12, 0, 12)))
    }
    after = deal(SHARDS, view, group)
    assert {node: after[("natural", "coder"), index] for node, index in begun.items()} == {
        node: node for node in group
    }


def test_before_the_first_averaging_everybody_reads_its_own() -> None:
    assert parts_of(SHARDS, {}, {}) == {("coding", "coder"): None, ("natural", "coder"): None}
    assert parts_of(shards("qfox"), {}, {}) == {}, "it owns nothing"


def test_a_node_that_was_not_in_the_last_averaging_reads_nothing() -> None:
    assert parts_of(SHARDS, {}, {"architect": 5.0, "judge": 4.0}) == {}


def test_without_shards_of_their_own_or_tolerance_nodes_read_what_they_always_read() -> None:
    for group in ({}, {"architect": 5.0}, {"coder": 5.0}):
        parts = parts_of(shards(taken_over=False), {}, group)
        assert parts == {("coding", "coder"): None, ("natural", "coder"): None}


def test_members_that_own_nothing_work_too() -> None:
    assert COUNTS["qfox"] == 0
    assert set(deal(SHARDS, {}, {"qfox": 10.0}).values()) == {"qfox"}


@pytest.mark.parametrize(
    "raw", [None, [], {5: 1.0}, {"coder": -1.0}, {"coder": float("nan")}, {"coder": True}, {"coder": "fast"}]
)
def test_what_is_not_a_group_is_refused(raw: Any) -> None:
    with pytest.raises(PeerError):
        group_from_json(raw, SHARDS, "peer")


def test_of_a_group_those_are_taken_who_are_still_there() -> None:
    assert group_from_json({"coder": 5, "gone": 1.0}, SHARDS, "peer") == {"coder": 5.0}
