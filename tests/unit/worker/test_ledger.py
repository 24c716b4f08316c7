"""The ledger and the messages of an averaging: counted once, and checked before use."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import PeerError
from tailtrain.worker.data_config import RowRange
from tailtrain.worker.ledger import (
    Contribution,
    Entry,
    ledger_from_json,
    ledger_to_json,
    merge_ledgers,
    read_contribution,
    total_tokens,
)
from tailtrain.worker.reading.reading_progress import Place, ShardProgress
from tailtrain.worker.reading.shards import Shard, Shards

KNOWN = ("a", "b", "c")
SHARDS = Shards(
    "a",
    [Shard("natural", node, [RowRange("0" * 64, 0, 90)] * 30, seed=1) for node in KNOWN],
    taken_over=True,
)
counts = st.integers(0, 2**40)
entries = st.builds(Entry, counts, counts, counts)
ledgers = st.dictionaries(st.sampled_from(KNOWN), entries)


def contribution(node: str, **changes: Any) -> Contribution:
    fields: dict[str, Any] = {
        "round": 3,
        "before": Entry(100, 10, 3),
        "tokens": 50,
        "records": 5,
        "loss": 2.5,
        "train_seconds": 2.0,
        "cpu_seconds": 1.0,
        "averaging_seconds": 0.5,
        "arrived": 1000.0,
        "base": "0" * 64,
        "ledger": {},
        "taken_over": {},
        "progress": {},
    }
    return Contribution(node=node, **{**fields, **changes})


@given(before=entries, tokens=counts, loss=st.none() | st.floats(0, 100), ledger=ledgers)
def test_a_message_arrives_as_it_was_sent(
    before: Entry, tokens: int, loss: float | None, ledger: Any
) -> None:
    progress = {("natural", "b"): ShardProgress(2, frozenset({0, 1, 5}), {3: Place(7, 1, 7)})}
    sent = contribution(
        "a",
        before=before,
        tokens=tokens,
        loss=loss,
        ledger=ledger,
        taken_over={"b": 9},
        progress=progress,
    )
    assert read_contribution(sent.to_message(SHARDS), SHARDS) == sent


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node", "stranger"),
        ("node", 5),
        ("round", -1),
        ("round", True),
        ("before", [1, 2]),
        ("before", [1, 2, -3]),
        ("before", [1, 2, 3.0]),
        ("tokens", -5),
        ("tokens", 2**60),
        ("tokens", 1.5),
        ("loss", math.nan),
        ("loss", "low"),
        ("train_seconds", math.inf),
        ("cpu_seconds", -0.1),
        ("arrived", None),
        ("base", "0" * 63),
        ("base", "G" * 64),
        ("ledger", []),
        ("ledger", {5: [1, 1, 1]}),
        ("ledger", {"a": "much"}),
        ("ledger", {f"n{index}": [1, 1, 1] for index in range(1000)}),
        ("taken_over", {"stranger": 1}),
        ("taken_over", {"b": -1}),
        ("taken_over", {"b": 1.0}),
        ("taken_over", 5),
        ("progress", []),
        ("progress", {"natural": {"b": ["0" * 16, 0, [3], []]}}),
        ("surprise", 1),
    ],
)
def test_each_field_is_checked(field: str, value: Any) -> None:
    with pytest.raises(PeerError):
        read_contribution({**contribution("a").to_message(SHARDS), field: value}, SHARDS)


@pytest.mark.parametrize("field", sorted(contribution("a").to_message(SHARDS)))
def test_no_field_may_be_missing(field: str) -> None:
    message = contribution("a").to_message(SHARDS)
    del message[field]
    with pytest.raises(PeerError):
        read_contribution(message, SHARDS)


@given(raw=st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.integers(), max_size=3))
def test_whatever_arrives_only_an_acceptable_message_passes(raw: Any) -> None:
    with pytest.raises(PeerError):
        read_contribution(raw, SHARDS)


@given(views=st.lists(ledgers, min_size=3, max_size=3), work=st.lists(counts, min_size=3, max_size=3))
def test_after_an_averaging_all_members_have_the_same_ledger(views: list[Any], work: list[int]) -> None:
    """Whatever each knew before: who brings work counts as it claims, in any order of the messages."""
    group = [
        contribution(node, ledger=view, tokens=tokens)
        for node, view, tokens in zip(KNOWN, views, work, strict=True)
    ]
    merged = merge_ledgers(group)
    assert merged == merge_ledgers(reversed(group))
    for node, tokens in zip(KNOWN, work, strict=True):
        if tokens:
            assert merged[node] == Entry(100 + tokens, 15, 4)
        else:
            assert merged[node].tokens == max(100, *(view[node].tokens for view in views if node in view), 0)


def test_an_absent_node_keeps_what_somebody_knows_of_it() -> None:
    group = [
        contribution("a", ledger={"c": Entry(7, 1, 1)}),
        contribution("b", ledger={"c": Entry(9, 2, 2), "left": Entry(4, 1, 1)}),
    ]
    merged = merge_ledgers(group)
    assert (merged["c"], merged["left"]) == (Entry(9, 2, 2), Entry(4, 1, 1))
    assert total_tokens(merged) == 150 + 150 + 9 + 4


def test_work_that_a_node_lost_with_its_last_round_is_not_counted_twice() -> None:
    """B was counted in round 3, died before it committed, and says again what it had before."""
    after_three = merge_ledgers([contribution("a"), contribution("b")])
    assert after_three["b"] == Entry(150, 15, 4)
    group = [
        contribution("a", round=4, before=after_three["a"], ledger=after_three),
        contribution("b", round=4, before=Entry(100, 10, 3), ledger=after_three),
    ]
    assert merge_ledgers(group)["b"] == Entry(150, 15, 4)


@given(ledger=ledgers)
def test_a_ledger_survives_its_file(ledger: Any) -> None:
    assert ledger_from_json(ledger_to_json(ledger), KNOWN, "file") == ledger


def test_speed_is_tokens_over_seconds() -> None:
    assert contribution("a").tokens_per_second == 25.0
    assert contribution("a", train_seconds=0.0, tokens=0).tokens_per_second == 0.0


def test_who_brings_nothing_counts_as_others_know_it_and_who_brings_something_as_it_says() -> None:
    """Having paired with a, b died: its disk does not know of it, but a's weights have its work."""
    knows = contribution("a", ledger={"b": Entry(180, 18, 5)})
    returned = contribution("b", tokens=0, records=0)
    assert merge_ledgers([knows, returned])["b"] == Entry(180, 18, 6)
    assert merge_ledgers([returned, knows])["b"] == Entry(180, 18, 6)
    went_back = contribution("b")
    assert merge_ledgers([knows, went_back])["b"] == Entry(150, 15, 4)
