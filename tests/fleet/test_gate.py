"""The gate between phases: who may be missing for the next one to begin."""

from __future__ import annotations

import pytest

from tailtrain.errors import GateError
from tailtrain.fleet.gate import require_quorum
from tests.plans.situations import PRIMARY, Situation

SIX = Situation()


def test_nobody_failed() -> None:
    require_quorum(SIX.plan(), "files", set())


def test_within_the_quorum_it_goes_on() -> None:
    require_quorum(SIX.plan(), "files", {"judge", "architect"})


def test_below_the_quorum_it_stops_and_names_who_is_out() -> None:
    with pytest.raises(GateError) as caught:
        require_quorum(SIX.plan(), "Data distribution: chunks", {"judge", "architect", "netcup-router"})
    assert str(caught.value) == (
        "quorum: stopped after 'Data distribution: chunks' (found 3 of 6 nodes, without architect, judge,"
        " netcup-router, expected at least 4). Run the same command again when they are back"
    )


def test_without_the_primary_nothing_goes_on() -> None:
    with pytest.raises(GateError, match="nothing can go on without the primary") as caught:
        require_quorum(SIX.plan(), "files", {PRIMARY})
    assert caught.value.host == PRIMARY


def test_a_host_that_never_answered_counts_as_out_once() -> None:
    plan = Situation().unreachable("judge", "no answer").plan()
    require_quorum(plan, "files", {"architect"})
    require_quorum(plan, "files", {"judge", "architect"})
    with pytest.raises(GateError, match="found 3 of 6"):
        require_quorum(plan, "files", {"architect", "netcup-router"})


def test_an_unreachable_primary_stops_it_at_the_first_gate() -> None:
    with pytest.raises(GateError, match="without the primary"):
        require_quorum(Situation().unreachable(PRIMARY, "no answer").plan(), "files", set())


def test_without_fault_tolerance_every_node_is_needed() -> None:
    plan = Situation().with_settings(fault_tolerance=False).plan()
    require_quorum(plan, "files", set())
    with pytest.raises(GateError, match=r"found 5 of 6 nodes, without judge, expected at least 6"):
        require_quorum(plan, "files", {"judge"})
