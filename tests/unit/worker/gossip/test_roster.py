"""Who takes part, and why others do not."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tailtrain.worker.gossip.members import Member, Tags
from tailtrain.worker.gossip.roster import Roster, rendezvous_host, roster

FLEET = ("a", "b", "c", "d", "e", "f")
RUN = "0123abcd"


def member(name: str, **changes: Any) -> Member:
    said: dict[str, Any] = {"role": "primary" if name == "a" else "compute", "cores": 4, "gpu": False}
    tags = Tags(**{**said, "run": RUN, "tokens_per_second": 10.0, **changes})
    return Member(name, "127.0.0.2:1", "alive", tags.to_serf())


def found(*members: Member, fleet: tuple[str, ...] = FLEET) -> Roster:
    return roster({each.name: each for each in members}, {each.name for each in members}, fleet, RUN)


def test_all_of_the_run_take_part() -> None:
    everybody = found(*map(member, FLEET))
    assert everybody.participants == FLEET
    assert everybody.decides
    assert everybody.waits_for() == ""
    assert everybody.speeds == dict.fromkeys(FLEET, 10.0)
    assert everybody.healths == dict.fromkeys(FLEET, 1.0)


def test_who_does_not_take_part_is_named_with_the_reason() -> None:
    some = found(
        member("a"),
        member("b", health=0.5),
        member("c", run="feed"),
        member("d", run=""),
        Member("e", "127.0.0.6:1", "alive", {"role": "compute"}),
        member("x"),
    )
    assert some.participants == ("a",)
    assert some.missing == ("f",)
    assert some.waits_for() == (
        "two thirds of the nodes are needed: f is away; b has a health of 0.50;"
        " c works on another run, feed; d works on no run; e says what cannot be read: run;"
        " x is not of this fleet"
    )


def test_the_primary_hosts_then_who_has_most_cores() -> None:
    all_of = [
        member("a", cores=1),
        member("b", cores=8),
        member("c", cores=8),
        member("d", health=0.1, cores=99),
    ]
    assert rendezvous_host(found(*all_of)) == "a"
    assert rendezvous_host(found(*all_of[1:])) == "b"
    assert rendezvous_host(found(*all_of[3:])) is None


@given(st.permutations(FLEET), st.sets(st.sampled_from(FLEET)))
def test_it_does_not_depend_on_the_order(order: list[str], gone: set[str]) -> None:
    here = [member(name) for name in order if name not in gone]
    seen = found(*here)
    assert seen == found(*sorted(here, key=lambda each: each.name))
    assert seen.decides == (len(here) >= 4)
    assert set(seen.missing) == gone
