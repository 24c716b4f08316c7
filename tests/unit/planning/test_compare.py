"""A saved plan that no longer holds: what changed is said in sentences, host by host."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tailtrain.planning import layout
from tailtrain.planning.carried import chunks_on
from tailtrain.planning.compare import compare
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.drift import sha256_of
from tailtrain.planning.observed import LockHolder
from tailtrain.planning.parts import Action, FileChange, Phase, Removal
from tailtrain.planning.plan import DepartedHost
from tailtrain.planning.receipt import Login
from tests.plans.situations import PRIMARY, SEVENTH, Situation, dataset
from tests.unit.planning.test_plan import CHANGES

if TYPE_CHECKING:
    from collections.abc import Callable

    from tailtrain.planning.plan import Plan


def trained() -> Situation:
    return Situation().applied(state="training", unit="active")


def told(change: Callable[[Situation], object], make: Callable[[], Situation] = trained) -> list[str]:
    """What is said when one thing is otherwise than in the saved plan."""
    situation = make()
    change(situation)
    return compare(document_of(make().plan()), document_of(situation.plan()))


def test_a_plan_that_still_holds_has_nothing_to_tell() -> None:
    assert told(lambda s: s.on("judge", path="relayed via fra")) == []


def test_another_source_is_told_with_both_numbers() -> None:
    def fetching() -> Situation:
        situation = trained()
        copies = situation.answer("judge").chunks - chunks_on(situation.answer("judge"))
        return situation.on("judge", chunks=situation.answer("judge").chunks - copies)

    before = sum(each.chunks for each in fetching().plan().host("judge").sources if each.source == "qfox")
    assert before
    sentences = told(lambda s: s.path("judge", "qfox", "relayed"), fetching)
    assert f"judge: chunks from qfox is none now, was {before} then" in sentences


def test_a_path_that_nothing_is_fetched_by_makes_no_other_plan() -> None:
    assert told(lambda s: s.path("judge", "qfox", "relayed"), Situation().applied) == []


@pytest.mark.parametrize("what", sorted(CHANGES))
def test_whatever_makes_another_plan_is_told(what: str) -> None:
    sentences = told(CHANGES[what], lambda: Situation().applied())
    assert sentences
    assert all(sentence.isprintable() for sentence in sentences)
    assert not any("no plan spells out" in sentence for sentence in sentences)


def test_both_directions_are_told() -> None:
    for change in CHANGES.values():
        situation = Situation().applied()
        change(situation)
        assert compare(document_of(situation.plan()), document_of(Situation().applied().plan()))


def test_a_setting_is_told_with_both_values_and_so_is_the_run() -> None:
    sentences = told(lambda s: s.with_settings(training={"learning_rate": 0.001}))
    assert sentences[0] == "group_data: training.learning_rate is 0.001 now, was 0.003 then"
    assert any(sentence.startswith("another run: ") for sentence in sentences)
    off = told(lambda s: s.with_settings(fault_tolerance=False))
    assert "group_data: fault_tolerance is off now, was on then" in off
    assert "nodes that a phase needs is 6 now, was 4 then" in off


def test_a_host_that_is_away_is_told_with_its_reason_and_nothing_else_of_it() -> None:
    sentences = told(lambda s: s.unreachable("judge", "no answer\nwithin 10 s"))
    assert "judge: unreachable now, no answer; within 10 s" in sentences
    assert len([sentence for sentence in sentences if sentence.startswith("judge:")]) == 1
    other = compare(
        document_of(trained().unreachable("judge", "no answer").plan()),
        document_of(trained().unreachable("judge", "login refused").plan()),
    )
    assert other == ["judge: unreachable for another reason: login refused"]
    back = compare(
        document_of(trained().unreachable("judge", "no answer").plan()), document_of(trained().plan())
    )
    assert "judge: answers now, was unreachable then" in back


def test_a_file_that_somebody_changed_since_is_told_by_its_path() -> None:
    def edit(situation: Situation) -> object:
        files = {**situation.answer("judge").files, layout.CONFIG: "{}\n"}
        return situation.on("judge", files=files)

    first, second = (sha256_of(text)[:12] for text in ("{}\n", "{ }\n"))
    sentences = told(edit)
    assert f"judge: {layout.CONFIG} was changed there since: {first}" in sentences
    assert "judge: now also: restart the worker (configuration, unit or code changed)" in sentences
    again = compare(
        document_of(edited(trained(), "{}\n").plan()), document_of(edited(trained(), "{ }\n").plan())
    )
    assert again == [f"judge: {layout.CONFIG} was changed there since: {second}"]
    unknown_to_receipts = [
        replace(
            plan,
            id=f"{number:012x}",
            hosts=tuple(
                replace(host, files=(FileChange("/etc/x", "0644", "root", before, after),))
                for host in plan.hosts[:1]
            ),
        )
        for number, (plan, before, after) in enumerate(
            [(trained().plan(), None, "a"), (trained().plan(), "b", "a"), (trained().plan(), "b", "c")]
        )
    ]
    documents = [document_of(plan) for plan in unknown_to_receipts]
    assert compare(documents[0], documents[1]) == ["qfox: /etc/x on the host is another file than then"]
    assert compare(documents[1], documents[2]) == ["qfox: /etc/x is to be written otherwise"]


def edited(situation: Situation, text: str) -> Situation:
    return situation.on("judge", files={**situation.answer("judge").files, layout.CONFIG: text})


def test_chunks_that_a_host_lacks_or_has_again_are_counted() -> None:
    lost = trained()
    lost.on("judge", chunks=frozenset(sorted(lost.answer("judge").chunks)[2:]))
    there, away = document_of(trained().plan()), document_of(lost.plan())
    assert "judge: lacks 2 chunks that it had or did not need then" in compare(there, away)
    assert "judge: has 2 chunks that it lacked then, or does not need them any more" in compare(away, there)


def test_hosts_that_come_and_go_are_told() -> None:
    grown = told(lambda s: s.add(SEVENTH))
    assert "lighthouse: in the inventory now, not then" in grown
    assert "judge, netcup-router: share is 9.09 % now, was 11.11 % then" in grown
    back = compare(document_of(trained().add(SEVENTH).plan()), document_of(trained().plan()))
    assert "lighthouse: not in the inventory any more" in back


def test_another_data_set_of_the_same_name_is_told() -> None:
    other = replace(dataset("natural", "p", (5,) * 300, (7,)), manifest_id="0" * 64)
    sentences = told(lambda s: setattr(s, "datasets", (other, s.datasets[1])))
    assert "data set natural: another content, 1,507 records now, 15,238 records then" in sentences


def test_a_run_that_ended_since_and_somebody_who_deploys_are_told() -> None:
    plan = trained().plan()
    lock = LockHolder("t1", "ann@desk", "2026-01-01 10:00 UTC", "abc")
    now = replace(plan, id="f" * 12, run_state="finished", lock=lock)
    assert compare(document_of(plan), document_of(now)) == [
        f"run {plan.run_id} is finished now, was training then",
        "ann@desk deploys since 2026-01-01 10:00 UTC",
    ]


def test_hosts_that_left_are_told() -> None:
    plan = trained().plan()
    drain = Action(Phase.TRAIN, "drain", "stop the worker", "it left the fleet")
    left = DepartedHost("lighthouse", Login(), actions=(drain,))
    gone, away, stopped = (
        replace(plan, id=f"{number:012x}", departed=departed)
        for number, departed in enumerate(
            [(left,), (replace(left, unreachable="no answer"),), (replace(left, actions=()),)]
        )
    )
    documents = [document_of(each) for each in (plan, gone, away, stopped)]
    assert compare(documents[0], documents[1]) == ["lighthouse: left the fleet, and has something of ours"]
    assert compare(documents[1], documents[0]) == ["lighthouse: no host knows of it any more"]
    assert compare(documents[1], documents[2]) == ["lighthouse: unreachable now, no answer"]
    assert compare(documents[2], documents[1]) == ["lighthouse: answers now"]
    assert compare(documents[1], documents[3]) == ["lighthouse: no longer: stop the worker"]


def with_primary(plan: Plan, number: int, **fields: object) -> Plan:
    hosts = tuple(
        replace(host, **fields) if host.node.hostname == PRIMARY else host  # type: ignore[arg-type]
        for host in plan.hosts
    )
    return replace(plan, id=f"{number:012x}", hosts=hosts)


def test_other_files_to_remove_are_told_by_name() -> None:
    plan = trained().plan()
    one, other = (
        with_primary(plan, number, removals=(Removal("1 run", "old", (f"/runs/{name}",), 5),))
        for number, name in enumerate(("aa", "bb"))
    )
    assert compare(document_of(one), document_of(other)) == [f"{PRIMARY}: bb to be removed now, aa then"]
    assert compare(document_of(plan), document_of(one)) == [f"{PRIMARY}: aa to be removed now, nothing then"]


def test_there_is_always_something_to_tell() -> None:
    plan = trained().plan()
    assert len(compare(document_of(plan), document_of(replace(plan, id="0" * 12)))) == 1
