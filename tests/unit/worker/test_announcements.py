"""Announcements: who is there, whom to follow."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import PeerError
from tailtrain.worker.announcements import (
    LATE_SECONDS,
    READY_SECONDS,
    Announcement,
    leader_of,
    nodes_in_round,
    read_announcement,
    ready_nodes,
)

NOW = 1_000_000.0


def said(node: str, phase: Any = "training", **changes: Any) -> Announcement:
    fields: dict[str, Any] = {
        "committed": 4,
        "digest": "0" * 64,
        "round": 5,
        "ends": NOW + 5,
        "total_tokens": 10,
        "tokens_per_second": 3.5,
        "sent": NOW - 1,
    }
    return Announcement(node=node, phase=phase, **{**fields, **changes})


def view(*announcements: Announcement) -> dict[str, Announcement]:
    return {announcement.node: announcement for announcement in announcements}


def test_an_announcement_arrives_as_it_was_sent() -> None:
    sent = said("a", "ready", committed=-1, round=-1, ends=0.0)
    assert read_announcement(sent.to_message(), "a") == sent


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("node", "b"),
        ("phase", "sleeping"),
        ("committed", -2),
        ("digest", "none"),
        ("round", 1.0),
        ("ends", float("inf")),
        ("total_tokens", -1),
        ("tokens_per_second", float("nan")),
        ("sent", "now"),
        ("surprise", 1),
    ],
)
def test_each_field_is_checked(field: str, value: Any) -> None:
    with pytest.raises(PeerError):
        read_announcement({**said("a").to_message(), field: value}, "a")


@given(raw=st.none() | st.lists(st.integers()) | st.dictionaries(st.text(), st.integers(), max_size=3))
def test_whatever_arrives_only_an_acceptable_announcement_passes(raw: Any) -> None:
    with pytest.raises(PeerError):
        read_announcement(raw, "a")


def test_a_node_is_ready_while_it_says_so() -> None:
    there = view(said("a", "ready"), said("b", "ready", sent=NOW - READY_SECONDS), said("c"))
    assert ready_nodes(there, NOW) == {"a"}


def test_the_dead_are_not_in_the_round() -> None:
    there = view(
        said("a"),
        said("late", ends=NOW - LATE_SECONDS + 1),
        said("dead", ends=NOW - LATE_SECONDS),
        said("waits", "paused", ends=NOW - 100),
        said("dead too", "paused", ends=NOW - 100, sent=NOW - READY_SECONDS),
        said("elsewhere", round=6),
        said("done", "finished"),
    )
    assert nodes_in_round(there, 5, NOW) == {"a", "late", "waits"}


def test_the_leader_is_the_node_furthest_on_that_can_serve() -> None:
    there = view(said("a"), said("b", round=7, committed=6), said("c", round=9))
    leader = leader_of(there, {"a", "b"}, NOW)
    assert leader is not None
    assert leader.node == "b"
    assert leader_of(there, set(), NOW) is None


def test_a_finished_node_leads_even_later() -> None:
    there = view(said("a", round=7), said("b", "finished", round=-1, ends=0.0, sent=NOW - 500))
    leader = leader_of(there, {"a", "b"}, NOW)
    assert leader is not None
    assert leader.node == "b"


def test_nobody_follows_the_dead_or_those_who_wait_themselves() -> None:
    there = view(said("a", ends=NOW - LATE_SECONDS), said("b", "ready"))
    assert leader_of(there, {"a", "b"}, NOW) is None


def test_all_nodes_choose_the_same_leader() -> None:
    there = [said(name, committed=number % 2) for number, name in enumerate("abcd")]
    backwards = view(*reversed(there))
    assert leader_of(view(*there), "abcd", NOW) == leader_of(backwards, "abcd", NOW)


def test_announcements_are_values() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        said("a").round = 3  # type: ignore[misc]
