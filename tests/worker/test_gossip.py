"""Membership by gossip, with real Serf agents."""

from __future__ import annotations

import dataclasses
import shutil
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("msgpack", reason="needs the worker environment")
if shutil.which("serf") is None:
    pytest.skip("needs Debian's serf package", allow_module_level=True)

from tailtrain.errors import WorkerError
from tailtrain.worker.gossip.agent import Agent, Event
from tailtrain.worker.gossip.members import read_tags
from tailtrain.worker.gossip.rpc import AgentGoneError, Connection
from tests.worker.serf_fleet import NAMES, TAGS, SerfFleet, until

if TYPE_CHECKING:
    from collections.abc import Iterator

LAST = NAMES[-1]
REST = NAMES[:-1]


@pytest.fixture
def fleet(tmp_path: Any) -> Iterator[SerfFleet]:
    fleet = SerfFleet(tmp_path)
    try:
        fleet.start_all()
        yield fleet
    finally:
        fleet.close()


def measured(record: Any, what: str, seconds: float) -> None:
    record(what, round(seconds, 2))
    print(f"{what}: {seconds:.2f} s")


def test_all_meet_and_see_each_others_tags_and_health_within_a_second(
    fleet: SerfFleet, record_property: Any
) -> None:
    for name in fleet.names:
        members = fleet.watches[name].sight.members
        assert set(members) == set(NAMES)
        assert all(read_tags(members[other].tags, other) == TAGS for other in NAMES)
    said = dataclasses.replace(TAGS, run="0123abcd", round=7, tokens_per_second=1234.5, health=0.25)

    def seen(name: str) -> bool:
        return read_tags(fleet.watches[name].sight.members["alpha"].tags, "alpha") == said

    began = time.monotonic()
    fleet.watches["alpha"].say(said)
    until(lambda: all(map(seen, NAMES)), 5, "alpha's tags everywhere")
    took = time.monotonic() - began
    measured(record_property, "tags seen by all", took)
    assert took < 1


def test_all_views_are_equal_and_round_trips_are_estimated(fleet: SerfFleet) -> None:
    views = fleet.watches["alpha"].views()
    assert views.equal
    assert views.live == NAMES
    until(lambda: len(fleet.watches["alpha"].round_trips()) == 15, 20, "a coordinate of every member")
    assert all(0 < seconds < 0.5 for seconds in fleet.watches["alpha"].round_trips().values())


def test_a_killed_node_is_dead_for_all_when_two_agree_and_returns(
    fleet: SerfFleet, record_property: Any
) -> None:
    fleet.kill(LAST)
    took = fleet.await_live(REST)
    measured(record_property, "kill -9 confirmed by all", took)
    assert 3 < took < 10
    assert all(fleet.watches[name].sight.dead == {LAST} for name in REST)
    views = fleet.watches["alpha"].views()
    assert views.equal
    assert views.live == REST
    # The dead node's own watch judges nobody: its agent is gone.
    assert not fleet.watches[LAST].sight.connected
    assert fleet.watches[LAST].sight.dead == frozenset()
    fleet.start(LAST)
    took = fleet.await_live(NAMES)
    measured(record_property, "alive again for all", took)
    assert took < 5
    assert all(fleet.watches[name].sight.dead == frozenset() for name in NAMES)


def test_a_frozen_node_is_dead_until_it_thaws(fleet: SerfFleet, record_property: Any) -> None:
    fleet.kill(LAST, signal.SIGSTOP)
    took = fleet.await_live(REST, seers=REST)
    measured(record_property, "SIGSTOP confirmed by all", took)
    assert 3 < took < 10
    fleet.kill(LAST, signal.SIGCONT)
    took = fleet.await_live(NAMES)
    measured(record_property, "thawed and alive for all", took)
    assert took < 6


def test_who_leaves_in_order_is_gone_at_once_and_not_dead(fleet: SerfFleet, record_property: Any) -> None:
    began = time.monotonic()
    fleet.kill(LAST, signal.SIGINT)
    fleet.await_live(REST, seers=REST)
    measured(record_property, "left in order", time.monotonic() - began)
    assert time.monotonic() - began < 8
    assert all(fleet.watches[name].sight.dead == frozenset() for name in REST)


def test_a_node_that_nobody_answers_judges_nobody(fleet: SerfFleet, record_property: Any) -> None:
    """With all others frozen it is the same to the last one as if it were cut off."""
    for name in REST:
        fleet.kill(name, signal.SIGSTOP)
    watch = fleet.watches[LAST]
    took = until(lambda: watch.sight.isolated, 10, "knows that it is cut off")
    measured(record_property, "knows that it is isolated", took)
    until(lambda: bool(watch.sight.unconfirmed), 60, "holds one of them failed")
    time.sleep(2)
    assert watch.sight.dead == frozenset()
    assert watch.sight.live == set(NAMES)
    for name in REST:
        fleet.kill(name, signal.SIGCONT)
    until(lambda: not watch.sight.isolated, 20, "knows that others answer again")
    fleet.await_live(NAMES, seconds=40)
    until(lambda: not watch.sight.unconfirmed, 20, "holds nobody failed")


def test_an_agent_with_another_key_does_not_get_in(fleet: SerfFleet) -> None:
    fleet.kill(LAST)
    fleet.await_live(REST)
    fleet.start(LAST, key=bytes(32))
    until(lambda: "decrypt" in fleet.log("alpha"), 15, "alpha refuses what it cannot decrypt")
    time.sleep(3)
    assert all(fleet.watches[name].sight.live == set(REST) for name in REST)
    assert fleet.watches[LAST].sight.live <= {LAST}


def test_after_its_agent_restarts_a_node_says_its_tags_again(fleet: SerfFleet) -> None:
    said = dataclasses.replace(TAGS, run="feed", round=3)
    fleet.watches[LAST].say(said)
    fleet.kill(LAST)
    fleet.start(LAST)

    def seen(name: str) -> bool:
        member = fleet.watches[name].sight.members.get(LAST)
        return member is not None and member.status == "alive" and read_tags(member.tags, LAST) == said

    until(lambda: all(map(seen, NAMES)), 20, "its tags everywhere")


def test_any_query_is_answered_by_all_who_listen(fleet: SerfFleet) -> None:
    asked = Agent(*fleet.rpc("bravo"))
    asking = Agent(*fleet.rpc("alpha"))
    seen: list[Event] = []
    there = threading.Event()

    def answer(event: Event) -> None:
        seen.append(event)
        asked.respond(event.number, b"\xff\x00 bytes of any kind")
        there.set()

    asked.events(answer, "query:load")
    assert asking.query("load", b"\xfe?", seconds=3, expected={"bravo"}) == {
        "bravo": b"\xff\x00 bytes of any kind"
    }
    assert there.wait(5)
    assert seen[0].payload == b"\xfe?"
    began = time.monotonic()
    assert asking.query("nobody-knows-this", seconds=0.5) == {}
    assert time.monotonic() - began < 2
    asked.close()
    asking.close()


def test_what_the_agent_refuses_is_told(fleet: SerfFleet) -> None:
    address, key = fleet.rpc("alpha")
    with pytest.raises(WorkerError, match="authentication token"):
        Agent(address, "another key")
    with pytest.raises(WorkerError, match="Authentication required"), Connection(address) as stranger:
        stranger.request("members")
    agent = Agent(address, key)
    with pytest.raises(WorkerError, match="too long"):
        agent.set_tags({"much": "x" * 600})
    agent.close()
    with pytest.raises(AgentGoneError):
        agent.members()
    with pytest.raises(AgentGoneError, match="refused"):
        Agent(("127.0.0.1", 1), key)
