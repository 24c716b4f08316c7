"""When a node counts as dead, and whether all see the same."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.errors import PeerError
from tailtrain.worker.gossip.deaths import (
    Answer,
    Held,
    answer,
    batches,
    compare_views,
    judge,
    question,
    read_answer,
)

NAMES = st.text("abcdefghijklmnopqrstuvwxyz0123456789-", min_size=1, max_size=20)
STATUSES = st.dictionaries(
    NAMES, st.sampled_from(["alive", "leaving", "left", "failed", "none"]), max_size=30
)
ALL = "abcdef"


def statuses(failed: str = "", live: str = ALL) -> Any:
    return {node: "failed" if node in failed else "alive" for node in live}


def hearing(*others: str, failed: str = "", live: str = ALL) -> dict[str, Answer]:
    held = {node: Held.FAILED if node in failed else Held.ALIVE for node in live}
    return {other: Answer(held, len(live) - len(failed)) for other in others}


@given(STATUSES, st.lists(NAMES, min_size=1, unique=True, max_size=30))
def test_an_answer_arrives_as_it_was_meant(held: Any, asked: list[str]) -> None:
    got = read_answer(answer(question(asked), held), asked, "a")
    assert got.alive == sum(status == "alive" for status in held.values())
    for node in asked:
        assert (got.held[node] is Held.ALIVE) == (held.get(node) == "alive")
        assert (got.held[node] is Held.FAILED) == (held.get(node) == "failed")


@given(st.binary(max_size=40))
def test_whatever_is_asked_and_answered_nothing_breaks(raw: bytes) -> None:
    assert answer(raw, statuses())
    with suppress(PeerError):
        assert set(read_answer(raw, ["a", "b"], "c").held) == {"a", "b"}


@given(st.lists(NAMES, unique=True, max_size=300))
def test_many_nodes_are_asked_about_in_questions_that_fit(nodes: list[str]) -> None:
    found = batches(nodes, 200)
    assert [node for batch in found for node in batch] == nodes
    assert all(0 < len(question(batch)) <= 200 for batch in found)


def test_two_who_agree_are_enough_and_one_is_not() -> None:
    assert judge("a", statuses("f"), hearing("b", failed="f")).dead == {"f"}
    alone = judge("a", statuses("f"), hearing("b", "c"))
    assert not alone.dead
    assert alone.unconfirmed == {"f"}
    assert not alone.isolated


def test_more_who_hold_it_alive_overrule_two() -> None:
    answers = {**hearing("b", failed="f"), **hearing("c", "d", "e")}
    assert judge("a", statuses("f"), answers).unconfirmed == {"f"}


def test_an_isolated_node_judges_nobody() -> None:
    verdict = judge("a", statuses("bcdef"), hearing("a", failed="bcdef"))
    assert verdict.isolated
    assert not verdict.dead
    assert verdict.unconfirmed == set("bcdef")


def test_a_node_says_nothing_about_its_own_death_and_nobody_is_dead_for_others_alone() -> None:
    assert not judge("a", statuses("f"), hearing("f", failed="f")).dead
    verdict = judge("a", statuses(), hearing("b", "c", failed="f"))
    assert not verdict.dead
    assert not verdict.unconfirmed


@given(STATUSES, st.dictionaries(NAMES, st.sampled_from([*Held]), max_size=20), st.sets(NAMES, max_size=9))
def test_the_dead_are_held_failed_here_and_by_another(held: Any, said: Any, observers: set[str]) -> None:
    verdict = judge("me", held, {observer: Answer(said, 3) for observer in observers})
    for node in verdict.dead:
        assert held[node] == "failed"
        assert said[node] is Held.FAILED
        assert observers - {node, "me"}
    assert verdict.dead.isdisjoint(verdict.unconfirmed)
    assert "me" not in verdict.dead


def test_equal_views_are_equal_and_others_are_named() -> None:
    assert compare_views("a", statuses("f"), hearing("b", "c", "d", "e", failed="f")).equal
    views = compare_views(
        "a",
        statuses("f"),
        {**hearing("b", failed="ef"), "c": Answer(hearing("c")["c"].held, 8), **hearing("d", failed="f")},
    )
    assert not views.equal
    assert views.live == tuple("abcde")
    assert views.differing == {"b": "not e", "c": "also f, 2 that are unknown here"}
    assert views.silent == ("e",)


def test_answers_that_are_none_are_refused() -> None:
    for raw in (b"", b"a 3", b"abc 3", b"aa three", b"aa -1", b"aa"):
        with pytest.raises(PeerError):
            read_answer(raw, ["x", "y"], "b")
