"""A host that is taken out of the inventory: its worker stops, its records go to others, then cleaned."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest

from tailtrain.errors import UnsupportedError
from tailtrain.planning.departed import DepartedFound, departed_names
from tailtrain.planning.observed import LockHolder
from tailtrain.planning.parts import Phase
from tailtrain.planning.receipt import Login, read_receipt, receipts_of
from tests.plans.situations import NAMES, SEVENTH, Situation

if TYPE_CHECKING:
    from tailtrain.planning.plan import DepartedHost

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
    assert departed_names(NAMES, receipts_of(situation.observed.values())) == {LIGHTHOUSE: Login()}
    assert departed_names({*NAMES, LIGHTHOUSE}, receipts_of(situation.observed.values())) == {}


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
    assert departed_names(NAMES, receipts_of(situation.observed.values())) == {}
    assert not situation.plan().changes


def test_a_receipt_reads_as_it_was_written() -> None:
    receipt = grown().answer("judge").receipt
    assert receipt is not None
    assert msgspec.json.decode(receipt.encode(), type=type(receipt)) == receipt
    assert receipt.says_the_same_as(msgspec.structs.replace(receipt, at="later", by="x", plan="y"))
    assert not receipt.says_the_same_as(msgspec.structs.replace(receipt, cores=1))


def test_names_that_no_machine_can_have_are_nobody() -> None:
    situation = grown()
    receipt = situation.answer("judge").receipt
    assert receipt is not None
    odd = ("; rm -rf /", "$(touch x)", "../..", "a\nb", "-oProxyCommand=x", "Gamma.", "", "\x1b[2J")
    fleet = {**receipt.fleet, **dict.fromkeys(odd, Login())}
    situation.on("judge", receipt=msgspec.structs.replace(receipt, fleet=fleet))
    assert set(departed_names(NAMES, receipts_of(situation.observed.values()))) == {LIGHTHOUSE}


def test_who_deploys_with_a_host_that_left_as_primary_is_in_the_way() -> None:
    holder = LockHolder("1f2e3d4c", "ana@desk", "2026-11-02T09:30:00Z", "b7d77e87c3e6")
    situation = grown()
    situation.departed = (DepartedFound(LIGHTHOUSE, Login(), working=True, bytes=1, lock=holder),)
    assert situation.plan().lock == holder


def test_a_receipt_of_a_newer_version_is_refused_and_one_that_makes_no_sense_is_none() -> None:
    receipt = grown().answer("judge").receipt
    assert receipt is not None
    with pytest.raises(UnsupportedError, match="judge: receipt: was last deployed to by a newer version"):
        read_receipt(msgspec.structs.replace(receipt, format=2).encode().decode(), "judge")
    forged = msgspec.structs.replace(receipt, by="root\nNo changes: 6 hosts are as declared.")
    for text in (None, "", "{", "[]", "{}", forged.encode().decode()):
        assert read_receipt(text, "judge") is None
    assert read_receipt(receipt.encode().decode(), "judge") == receipt
