"""How far shards have been read: views join to one, whatever their order, and only good ones are accepted."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import PeerError
from tailtrain.worker.data_config import RowRange
from tailtrain.worker.reading.reading_progress import (
    NOTHING_READ,
    Place,
    Progress,
    ShardProgress,
    adopted_progress,
    epochs_of,
    join,
    progress_from_json,
    progress_of,
    progress_to_json,
)
from tailtrain.worker.reading.shards import Shard, Shards
from tests.unit.worker.shard_samples import SHARDS, shard, shard_views, views

CODER = SHARDS.by_key["natural", "coder"]  # twelve shelves
one_view = shard_views(CODER)


def _bottoms_left_out(view: Progress) -> Progress:
    return {key: one for key, one in view.items() if one != NOTHING_READ}


@given(one=one_view, two=one_view, three=one_view)
def test_views_of_a_shard_form_a_join_semilattice(
    one: ShardProgress, two: ShardProgress, three: ShardProgress
) -> None:
    size = CODER.size
    assert one.joined(two, size) == two.joined(one, size)
    assert one.joined(one, size) == one
    assert one.joined(two, size).joined(three, size) == one.joined(two.joined(three, size), size)
    assert one.joined(NOTHING_READ, size) == one


@given(one=views(), two=views())
def test_a_join_knows_what_either_knew(one: Progress, two: Progress) -> None:
    joined = join([one, two], SHARDS)
    assert joined == join([two, one], SHARDS)
    for view in (one, two):
        for key, known in view.items():
            found = joined[key]
            assert found.epoch >= known.epoch
            if found.epoch == known.epoch:
                assert found.finished >= known.finished
                for shelf, place in known.begun.items():
                    assert shelf in found.finished or found.begun[shelf] >= place


def test_the_last_shelf_of_an_epoch_begins_the_next_one() -> None:
    half, rest = frozenset(range(6)), frozenset(range(6, 12))
    joined = ShardProgress(3, half).joined(ShardProgress(3, rest), 12)
    assert joined == ShardProgress(4)
    assert joined.joined(ShardProgress(3, half, {7: Place(5, 0, 5)}), 12) == ShardProgress(4)


def test_a_shelf_that_one_finished_is_not_begun_for_the_other() -> None:
    joined = ShardProgress(0, frozenset(), {2: Place(9, 1, 9)}).joined(ShardProgress(0, frozenset({2})), 12)
    assert joined == ShardProgress(0, frozenset({2}))


@given(view=views())
def test_a_view_arrives_as_it_was_sent(view: Progress) -> None:
    sent = progress_to_json(view, SHARDS)
    assert _bottoms_left_out(progress_from_json(sent, SHARDS, "peer")) == _bottoms_left_out(view)


def test_runs_of_finished_shelves_take_two_numbers() -> None:
    view = ShardProgress(7, frozenset({0, 1, 2, 3, 8, 10, 11}), {4: Place(40, 2, 41)})
    assert view.to_list("x") == ["x", 7, [0, 3, 8, 8, 10, 11], [4, 40, 2, 41]]


SHARES = CODER.shares


@pytest.mark.parametrize(
    "raw",
    [
        None,
        [],
        {5: {}},
        {"natural": []},
        {"natural": {5: [SHARES, 0, [], []]}},
        {"natural": {"coder": None}},
        {"natural": {"coder": [SHARES, 0, []]}},
        {"natural": {"coder": [SHARES, -1, [], []]}},
        {"natural": {"coder": [SHARES, 0.0, [], []]}},
        {"natural": {"coder": [SHARES, True, [], []]}},
        {"natural": {"coder": [SHARES[:-1], 0, [], []]}},
        {"natural": {"coder": [SHARES, 0, [0], []]}},
        {"natural": {"coder": [SHARES, 0, [3, 2], []]}},
        {"natural": {"coder": [SHARES, 0, [0, 2, 2, 4], []]}},
        {"natural": {"coder": [SHARES, 0, [0, 12], []]}},
        {"natural": {"coder": [SHARES, 0, [0, 1 << 50], []]}},
        {"natural": {"coder": [SHARES, 0, [], [3, 0]]}},
        {"natural": {"coder": [SHARES, 0, [], [3, 0, 1]]}},
        {"natural": {"coder": [SHARES, 0, [], [0, 0, 1, 5000]]}},
        {"natural": {"coder": [SHARES, 0, [], [12, 1, 0, 1]]}},
        {"natural": {"coder": [SHARES, 0, [], [0, 5000, 0, 0]]}},
        {"natural": {"coder": [SHARES, 0, [], [0, "1", 0, 0]]}},
        {"natural": {"coder": [SHARES, 0, list(range(1 << 17)), []]}},
        {f"d{index}": {} for index in range(5000)},
    ],
)
def test_what_is_not_a_view_is_refused(raw: Any) -> None:
    with pytest.raises(PeerError):
        progress_from_json(raw, SHARDS, "peer")


@given(
    raw=st.recursive(
        st.none() | st.integers() | st.text() | st.floats(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_arrives_is_read_or_refused(raw: Any) -> None:
    try:
        found = progress_from_json({"natural": {"coder": raw}}, SHARDS, "peer")
    except PeerError:
        return
    assert set(found) <= {("natural", "coder")}


def _with_other_ranges() -> Shards:
    """The same shards, but coder owns one chunk less of natural."""
    changed = Shard("natural", "coder", [RowRange("x", 0, 5)] * 44, seed=1)
    kept = [one for one in SHARDS.by_key.values() if one.key != changed.key]
    return Shards("coder", [*kept, changed], taken_over=True)


def test_where_ranges_have_changed_the_next_epoch_begins_and_other_shards_stay() -> None:
    """In this node's own checkpoint; of a peer with another configuration such shards are not believed."""
    view: Progress = {
        ("natural", "coder"): ShardProgress(3, frozenset({1})),
        ("coding", "coder"): ShardProgress(2, frozenset({4})),
    }
    sent, after = progress_to_json(view, SHARDS), _with_other_ranges()
    assert progress_from_json(sent, after, "checkpoint", own=True) == {
        ("natural", "coder"): ShardProgress(4),
        ("coding", "coder"): ShardProgress(2, frozenset({4})),
    }
    assert progress_from_json(sent, after, "peer") == {("coding", "coder"): ShardProgress(2, frozenset({4}))}
    mine: Progress = {
        ("natural", "coder"): ShardProgress(8),
        ("coding", "coder"): ShardProgress(9),
        ("coding", "judge"): ShardProgress(9),
    }
    assert adopted_progress(sent, after, "peer", mine) == {
        ("natural", "coder"): ShardProgress(8),
        ("coding", "coder"): ShardProgress(2, frozenset({4})),
    }


def test_a_node_that_left_is_left_out() -> None:
    shares = shard("natural", "coder").shares
    assert progress_from_json({"natural": {"gone": [shares, 1, [], []]}}, SHARDS, "peer") == {}


def test_the_share_done_counts_records() -> None:
    shelves = CODER.shelves(5)
    view: Progress = {CODER.key: progress_of(5, {0, 3}, {4: Place(5, 2, 7)}, CODER.size)}
    done = (shelves[0].records + shelves[3].records + 7) / CODER.records
    epochs = epochs_of(view, SHARDS)
    assert epochs["natural"]["coder"] == [5, pytest.approx(done, abs=1e-4)]
    assert epochs["natural"]["architect"] == [0, 0.0]
    assert "qfox" not in epochs["natural"], "it owns nothing"


def test_shelves_hold_each_range_once_and_each_epoch_has_its_own() -> None:
    orders = set()
    for epoch in range(4):
        ranges = [owned for shelf in CODER.shelves(epoch) for owned in shelf.ranges]
        assert len(ranges) == len(set(ranges)) == 45
        assert sum(shelf.records for shelf in CODER.shelves(epoch)) == CODER.records
        assert [shelf.index for shelf in CODER.shelves(epoch)] == list(range(CODER.size))
        orders.add(tuple(ranges))
    assert len(orders) == 4
    assert shard("natural", "coder").shelves(2) == CODER.shelves(2)
    assert shard("natural", "coder", seed=2).shelves(2) != CODER.shelves(2)
