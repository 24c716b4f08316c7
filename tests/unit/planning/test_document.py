"""A plan as a document: all that the plan knows, the same JSON for the same plan, secrets in none of it."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.documents.plan import FORMAT, PlanDocument, decode, encode, schema
from tailtrain.planning.parts import Drift, Phase
from tailtrain.planning.rendering.plan import render_plan
from tests.plans.situations import NAMES, PRIMARY, Situation
from tests.unit.planning.plans import FINE, eventful, with_host

if TYPE_CHECKING:
    from tailtrain.planning.plan import Plan

HIDDEN = "QXZ7QXZ7"


@cache
def plan() -> Plan:
    return eventful()


@cache
def document() -> PlanDocument:
    return document_of(plan())


def test_the_document_comes_back_from_its_json() -> None:
    content = encode(document())
    assert decode(content) == document()
    assert encode(decode(content)) == content == encode(document_of(eventful()))
    assert jsonschema.Draft202012Validator(schema()).is_valid(json.loads(content))


def test_hosts_stand_in_the_inventory_s_order_with_all_that_the_plan_knows() -> None:
    assert [host.name for host in document().hosts] == [host.node.hostname for host in plan().hosts]
    for entry, host in zip(document().hosts, plan().hosts, strict=True):
        assert entry.quotas == dict(host.quotas)
        assert [action.key for action in entry.actions] == [action.key for action in host.actions]
        assert entry.chunks == tuple(chunk.sha256 for chunk in host.chunks)
        assert [file.path for file in entry.files] == [change.path for change in host.files]
        assert entry.verdict == host.verdict
        assert (entry.unknown is None) == (host.unreachable is None)


def test_totals_are_the_sums() -> None:
    totals = document().totals
    assert (totals.hosts, totals.unknown, totals.leaving) == (7, 1, 5)
    assert totals.changing + totals.unchanged + totals.unknown == totals.hosts
    assert totals.share == 65536
    assert totals.bytes_to_send == sum(chunk.bytes for host in plan().hosts for chunk in host.chunks)
    assert totals.bytes_freed == 7_000_000 + 9_000_000 + sum(
        each.bytes for host in plan().hosts if host.node.hostname != "qfox" for each in host.removals
    )
    assert totals.seconds_to_send == max(host.seconds_to_send for host in plan().hosts)
    assert totals.least_moved <= totals.records_moved
    for dataset in document().datasets:
        assert dataset.shared_out == dataset.trained_on


def test_settings_are_all_there_under_their_own_names() -> None:
    settings = document().settings
    assert settings["training.learning_rate"] == 0.003
    assert settings["datasets.natural"] == "prose.parquet"
    assert settings["distribution_strategy"] == "dataParallel"
    assert {"keep_runs", "model.width", "worker_port", "package_index", "fault_tolerance"} <= set(settings)


def test_what_cannot_be_known_yet_is_named_and_after_which_phase() -> None:
    fresh = {each.after: each.what for each in document_of(Situation().plan()).known_later}
    assert set(fresh) == {"training", "aggregation", "validation"}
    assert "SHA-256" in fresh["aggregation"]
    assert document_of(Situation().applied().plan()).known_later == ()


def test_without_diffs_everything_else_is_the_same() -> None:
    without = document_of(plan(), diffs=False)
    assert without.diffs == ()
    assert document().diffs
    assert [host.files for host in without.hosts] == [host.files for host in document().hosts]


def test_files_that_are_no_text_are_known_by_size_and_hash_only() -> None:
    blob = next(file for file in document().hosts[0].files if file.binary)
    assert (blob.before_bytes, blob.after_bytes) == (3, 4)
    assert blob.before_sha256 != blob.after_sha256
    assert not any(diff.path == blob.path for diff in document().diffs)


def away(*names: str) -> dict[str, str]:
    situation = Situation().applied(state="training", unit="active").unit("architect", "failed")
    for name in names:
        situation.unreachable(name, "no answer")
    found = document_of(situation.plan())
    return {host.name: host.unknown.if_it_stays_away for host in found.hosts if host.unknown}


def test_a_host_that_is_away_comes_with_what_follows() -> None:
    assert away("judge") == {"judge": "the others go on without it: 5 of 6 nodes are left, 4 are needed"}
    many = away("judge", "netcup-router", "racknerd-510bd9c")
    assert set(many.values()) == {"nothing is done: 3 of 6 nodes are left, 4 are needed"}
    assert away(PRIMARY, "judge") == {
        PRIMARY: "nothing is done: no phase begins without the primary",
        "judge": "nothing is done: the primary did not answer either",
    }


def test_a_host_that_is_away_while_nothing_is_to_be_done() -> None:
    found = document_of(Situation().applied().unreachable("judge", "no answer").plan())
    unknown = found.hosts[NAMES.index("judge")].unknown
    assert unknown is not None
    assert unknown.if_it_stays_away == "nothing else is to be done, and nobody waits for it"
    assert unknown.if_it_answers.endswith("its 2,000 records wait for it")
    whole = document_of(Situation().with_settings(data_sharding=False).unreachable("judge", "-").plan())
    answers = whole.hosts[NAMES.index("judge")].unknown
    assert answers is not None
    assert "records" not in answers.if_it_answers


def test_the_gate_says_whether_those_that_answered_are_enough() -> None:
    assert document().gate.open
    assert (document().gate.primary, document().gate.needed, document().gate.reachable) == (PRIMARY, 5, 6)
    assert not document_of(Situation().unreachable(PRIMARY, "-").plan()).gate.open


def test_phases_without_work_are_there_and_those_that_left_are_in_theirs() -> None:
    hosts = {phase.name: phase.hosts for phase in document().phases}
    assert list(hosts) == [phase.value for phase in Phase]
    assert "lantern" in hosts["train"]
    assert "lantern" in hosts["clean"]
    assert document_of(Situation().applied().plan()).phases[0].hosts == ()


def test_what_is_lost_is_listed_in_the_order_in_which_it_goes() -> None:
    kinds = [each.kind for each in document().destructive]
    assert kinds == sorted(kinds, key=["interrupt", "remove", "leave"].index)
    assert set(kinds) == {"interrupt", "remove", "leave"}


def secretive() -> PlanDocument:
    """Secrets wherever a plan has a text that comes from a host, a file or a person."""
    said = f"refused: token={HIDDEN}"
    situation = Situation().applied(state="training", unit="active")
    situation.with_settings(package_index=f"https://me:{HIDDEN}@index/simple")
    text = (situation.answer("judge").files[layout.CONFIG] or "").replace("{", f'{{"api_key": "{HIDDEN}",', 1)
    situation.on("judge", files={**situation.answer("judge").files, layout.CONFIG: text})
    before = situation.unreachable("architect", f"login failed\n{said}").plan()
    judge = before.host("judge")
    after = with_host(
        before,
        "judge",
        drift=(Drift(f"password = {HIDDEN}", said, said, said),),
        notes=(said,),
        preflight=replace(FINE, warnings=(said,), declared=said, found=said),
        actions=tuple(replace(action, what=said, why=said) for action in judge.actions),
        interrupts=said,
        send_rate=said,
        path=f"direct {said}",
    )
    return document_of(after)


def test_no_secret_is_in_the_json_or_the_text() -> None:
    found = secretive()
    for shown in (encode(found).decode(), render_plan(found, diff=True), render_plan(found)):
        assert not set(HIDDEN) & set(shown) - set("7")
        assert HIDDEN not in shown
        assert "***" in shown
    assert '-{"api_key": "***"' in render_plan(found, diff=True)
    peers = render_plan(document_of(Situation().plan()), diff=True)
    assert '"peer_id": "Qm' in peers


@given(text=st.text())
@settings(deadline=None)
def test_whatever_a_host_says_can_be_encoded_and_shown(text: str) -> None:
    said = text + "\udc80"
    found = document_of(with_host(plan(), "judge", unreachable=said), diffs=False)
    assert decode(encode(found)) == found
    assert all(line.isprintable() for line in render_plan(found).split("\n"))


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"format": "1"}', b'{"format": 1}']
)
def test_a_damaged_file_is_refused_by_name(content: bytes) -> None:
    with pytest.raises(DeclarationError, match="damaged") as caught:
        decode(content, name="plan.json")
    assert caught.value.field == "plan.json"
    assert caught.value.found
    assert caught.value.fix == "Make it again: tailtrain plan --out FILE"


def test_another_version_is_refused_with_both_versions() -> None:
    content = json.dumps({**json.loads(encode(document())), "format": FORMAT + 1, "more": []}).encode()
    with pytest.raises(DeclarationError, match="another version") as caught:
        decode(content, name="plan.json")
    assert (caught.value.found, caught.value.expected) == (f"format {FORMAT + 1}", f"format {FORMAT}")


def test_a_field_that_no_plan_has_is_refused_and_a_secret_in_it_not_repeated() -> None:
    content = json.dumps({**json.loads(encode(document())), f"hf_{HIDDEN}": 1}).encode()
    with pytest.raises(DeclarationError) as caught:
        decode(content)
    assert HIDDEN not in str(caught.value)


@given(data=st.data())
def test_whatever_happened_to_a_file_ends_in_a_plan_or_a_refusal(data: st.DataObject) -> None:
    content = encode(document())
    at = data.draw(st.integers(0, len(content) - 1))
    damaged = content[:at] + data.draw(st.binary(max_size=3)) + content[at + data.draw(st.integers(0, 9)) :]
    with suppress(DeclarationError):
        assert isinstance(decode(damaged), PlanDocument)


def test_a_file_of_many_brackets_is_refused_as_well() -> None:
    with pytest.raises(DeclarationError):
        decode(b'{"format": 1, "id": ' + b"[" * 100_000)


def test_every_field_of_the_schema_that_is_no_plain_word_is_described() -> None:
    definitions = schema()["$defs"]
    assert all(definition.get("description") for definition in definitions.values())
    assert all(definition["additionalProperties"] is False for definition in definitions.values())
    assert definitions["HostEntry"]["properties"]["share"]["description"].startswith("Of the fleet's work")
