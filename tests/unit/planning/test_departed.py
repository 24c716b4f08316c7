"""A host that is taken out of the inventory: its worker stops, its records go to others, then cleaned."""

from __future__ import annotations

import msgspec

from tailtrain.planning.departed import DepartedFound, departed_names
from tailtrain.planning.plan import DepartedHost, Phase
from tailtrain.planning.receipt import Login
from tests.plans.situations import NAMES, SEVENTH, Situation

LIGHTHOUSE = SEVENTH.hostname


def left(situation: Situation, found: DepartedFound) -> DepartedHost:
    situation.departed = (found,)
    [host] = situation.plan().departed
    return host


def grown() -> Situation:
    """Seven hosts trained; then the seventh was taken out."""
    return Situation().add(SEVENTH).applied(state="training", unit="active").remove(LIGHTHOUSE)


def test_receipts_name_who_left_with_the_login() -> None:
    situation = grown()
    assert departed_names(frozenset(NAMES), situation.observed) == {LIGHTHOUSE: Login()}
    assert departed_names(frozenset({*NAMES, LIGHTHOUSE}), situation.observed) == {}


def test_its_worker_stops_before_the_others_go_on_and_it_is_cleaned_last() -> None:
    found = DepartedFound(LIGHTHOUSE, Login(), working=True, run="abc", bytes=12_000_000)
    host = left(grown(), found)
    assert [(action.key, action.phase) for action in host.actions] == [
        ("drain", Phase.TRAIN),
        ("clean", Phase.CLEAN),
    ]
    assert host.frees == 12_000_000
    assert "12.0 MB" in host.actions[1].what
    assert not host.remembered


def test_its_records_go_to_those_who_are_left_and_no_more_than_those() -> None:
    situation = grown()
    plan = situation.plan()
    for dataset in plan.datasets:
        assert sum(host.quotas[dataset.domain] for host in plan.hosts) == dataset.train_records
    assert plan.moved == plan.least_moved
    before = Situation().add(SEVENTH).plan().host(LIGHTHOUSE).quotas
    assert plan.moved == before


def test_it_is_not_cleaned_while_a_declared_host_does_not_answer() -> None:
    situation = grown().unreachable("judge", "no answer")
    host = left(situation, DepartedFound(LIGHTHOUSE, Login(), working=True, run="abc", bytes=12_000_000))
    assert [action.key for action in host.actions] == ["drain"]
    assert host.remembered


def test_one_that_cannot_be_reached_stays_remembered() -> None:
    situation = grown()
    host = left(situation, DepartedFound(LIGHTHOUSE, Login("ana", sudo=True), unreachable="offline"))
    assert (host.actions, host.remembered) == ((), True)
    for planned in situation.plan().hosts:
        assert planned.receipt is not None
        assert planned.receipt.fleet[LIGHTHOUSE] == Login("ana", sudo=True)


def test_one_that_the_tailnet_does_not_know_any_more_is_forgotten() -> None:
    situation = grown()
    assert not left(
        situation, DepartedFound(LIGHTHOUSE, Login(), gone=True, unreachable="unknown")
    ).remembered
    host = situation.plan().host("judge")
    assert host.receipt is not None
    assert LIGHTHOUSE not in host.receipt.fleet
    assert any(action.why == f"forgets {LIGHTHOUSE}" for action in host.actions)


def test_one_with_nothing_of_ours_on_it_needs_nothing() -> None:
    host = left(grown(), DepartedFound(LIGHTHOUSE, Login()))
    assert (host.actions, host.remembered) == ((), False)


def test_after_it_was_cleaned_nothing_changes() -> None:
    situation = grown()
    situation.departed = (DepartedFound(LIGHTHOUSE, Login(), working=True, run="abc", bytes=1),)
    situation.applied()
    situation.departed = ()
    assert departed_names(frozenset(NAMES), situation.observed) == {}
    assert not situation.plan().changes


def test_a_receipt_reads_as_it_was_written() -> None:
    receipt = grown().answer("judge").receipt
    assert receipt is not None
    assert msgspec.json.decode(receipt.encode(), type=type(receipt)) == receipt
    assert receipt.says_the_same_as(msgspec.structs.replace(receipt, at="later", by="x", plan="y"))
    assert not receipt.says_the_same_as(msgspec.structs.replace(receipt, cores=1))
