"""A plan is a value: the same inputs give the same bytes, and its id changes with whatever matters."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrain.planning import layout
from tailtrain.planning.documents.of_plan import document_of
from tailtrain.planning.hardware import DEFAULT_NICE
from tailtrain.planning.moves import moves
from tailtrain.planning.observed import LockHolder, TailnetState
from tailtrain.planning.parts import ACTION_ORDER, Phase
from tailtrain.planning.rendering.plan import render_plan
from tailtrain.spec import NodeReserve
from tailtrain.worker.config import load_config
from tests.plans.situations import GIB, NAMES, PRIMARY, SEVENTH, Situation, dataset, peer_id

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tailtrain.planning.plan import Plan

SITUATIONS: dict[str, Callable[[], Situation]] = {
    "fresh": Situation,
    "finished": lambda: Situation().applied(),
    "under way": lambda: Situation().applied(state="training", unit="active"),
    "one away": lambda: (
        Situation().applied(state="training", unit="active").unreachable("judge", "no answer")
    ),
    "one more": lambda: Situation().applied(state="stopped").add(SEVENTH),
}


def range_map(plan: Plan, domain: str) -> dict[str, Any]:
    return dict(plan.placements[domain])


@settings(max_examples=30, deadline=None)
@given(order=st.permutations(NAMES), name=st.sampled_from(sorted(SITUATIONS)))
def test_the_order_of_answers_changes_no_byte(order: list[str], name: str) -> None:
    situation, shuffled = SITUATIONS[name](), SITUATIONS[name]()
    shuffled.observed = {
        host: shuffled.observed[host] for host in [*order, *set(shuffled.observed) - set(order)]
    }
    shuffled.settings = dict(reversed(shuffled.settings.items()))
    assert shuffled.plan() == situation.plan()
    assert render_plan(document_of(shuffled.plan()), diff=True) == render_plan(
        document_of(situation.plan()), diff=True
    )


def test_hosts_that_remember_an_absent_peer_differently_are_heard_in_inventory_order() -> None:
    situation = Situation().applied()
    for number, name in enumerate(("racknerd-510bd9c", "architect")):
        document = json.loads(situation.answer(name).files[layout.CONFIG] or "")
        for peer in document["coordination"]["peers"]:
            if peer["node"] == "judge":
                peer["address"] = f"100.99.0.{number}"
        files = {**situation.answer(name).files, layout.CONFIG: json.dumps(document)}
        situation.on(name, files=files)
    situation.unreachable("judge", "no answer")
    backwards = replace(situation, observed=dict(reversed(situation.observed.items())))
    assert backwards.plan() == situation.plan()
    # qfox comes first, and was not touched.
    texts = [change.after for host in situation.plan().hosts for change in host.files]
    assert texts
    assert not any("100.99.0" in text for text in texts)


@pytest.mark.parametrize(
    "garbage", ["", "{", "[]", "null", '{"data": 3}', '{"coordination": {"peers": [3]}}']
)
def test_a_configuration_edited_by_hand_is_replaced(garbage: str) -> None:
    situation = Situation().applied(state="training", unit="active")
    situation.on("judge", files={**situation.answer("judge").files, layout.CONFIG: garbage})
    host = situation.plan().host("judge")
    assert [change.path for change in host.files] == [layout.CONFIG]
    assert host.does("restart")


CHANGES: dict[str, Callable[[Situation], object]] = {
    "a setting of the training": lambda s: s.with_settings(training={"seed": 18}),
    "fault tolerance": lambda s: s.with_settings(fault_tolerance=False),
    "the port": lambda s: s.with_settings(worker_port=46003),
    "the port for chunks": lambda s: s.with_settings(chunk_port=46004),
    "how many nodes have each chunk": lambda s: s.with_settings(replicas=3),
    "a backend": lambda s: s.stored("s3"),
    "where the backend keeps the data": lambda s: s.stored("s3", path="fleet:elsewhere"),
    "the backend's credentials": lambda s: s.stored("s3", config_sha256=64 * "c"),
    "the certificates of the backend": lambda s: s.stored("s3", ca_text="-----BEGIN CERTIFICATE-----\n"),
    "what the backend lacks": lambda s: s.stored("s3", uploads={"a pack": 7}),
    "the chunk server": lambda s: s.unit("judge", "inactive", layout.CHUNKS_UNIT),
    "a node": lambda s: s.add(SEVENTH),
    "declared cores": lambda s: s.declare("judge", cores=2),
    "a reserve": lambda s: s.reserves.update(judge=NodeReserve(cores=1)),
    "a nice value": lambda s: s.reserves.update(judge=NodeReserve(nice=19)),
    "the code": lambda s: setattr(s, "material", replace(s.material, code_id="c0de000000000009")),
    "a lock": lambda s: setattr(
        s, "material", replace(s.material, locks={**s.material.locks, "worker-cpu": "10cc000000000009"})
    ),
    "a data set": lambda s: setattr(s, "datasets", (dataset("natural", "p", (5,) * 300, (7,)),)),
    "a host that is away": lambda s: s.unreachable("judge", "no answer"),
    "why a host is away": lambda s: s.unreachable("judge", "login refused"),
    "a missing package": lambda s: s.on("judge", missing_packages=("ca-certificates",)),
    "the account": lambda s: s.on("judge", account=False),
    "an identity": lambda s: s.on("judge", peer_id=peer_id("somebody else")),
    "an address": lambda s: s.on("judge", address="100.64.0.77"),
    "an environment": lambda s: s.on("judge", environments=frozenset()),
    "a code folder": lambda s: s.on("judge", codes=frozenset()),
    "a chunk": lambda s: s.on("judge", chunks=s.answer("judge").chunks - {min(s.answer("judge").chunks)}),
    "another chunk": lambda s: s.on(
        "judge", chunks=s.answer("judge").chunks - {max(s.answer("judge").chunks)}
    ),
    "a manifest": lambda s: s.on(
        "judge", manifests=s.answer("judge").manifests - {s.datasets[0].manifest_id}
    ),
    "another manifest": lambda s: s.on(
        "judge", manifests=s.answer("judge").manifests - {s.datasets[1].manifest_id}
    ),
    "a file on a host": lambda s: s.on("judge", files={**s.answer("judge").files, layout.CONFIG: "{}\n"}),
    "the memory found": lambda s: s.hardware("judge", memory_bytes=2 * GIB),
    "the cores found": lambda s: s.hardware("judge", cores=1, usable_cores=1.0),
    "a validation": lambda s: s.on("judge", run=replace(s.answer("judge").run, validated_sha256="")),
    "the final model": lambda s: s.on(
        PRIMARY, run=replace(s.answer(PRIMARY).run, final_sha256="", validated_sha256="")
    ),
}


def test_the_id_differs_for_every_change_that_matters() -> None:
    ids = {"nothing": Situation().applied().plan().id}
    for what, change in CHANGES.items():
        situation = Situation().applied()
        change(situation)
        ids[what] = situation.plan().id
    assert len(set(ids.values())) == len(ids), ids


def test_a_unit_matters_while_the_run_is_under_way() -> None:
    situation = Situation().applied(state="training", unit="active")
    before = situation.plan().id
    assert situation.unit("judge", "failed").plan().id != before
    done = Situation().applied()
    assert done.plan().id == done.unit("judge", "failed").plan().id


def test_what_does_not_matter_leaves_the_id() -> None:
    situation = Situation().applied()
    before = situation.plan().id
    situation.on("judge", path="relayed by fra").hardware("judge", disk_free_bytes=49 * 10**9)
    situation.observed["architect"] = replace(
        situation.answer("architect"),
        tailnet=TailnetState(key_expires="2026-12-24", key_days=3.5, warnings=("its key expires soon",)),
    )
    assert situation.plan().id == before


@pytest.mark.parametrize("name", ["fresh", "finished", "under way", "one more"])
def test_applying_a_plan_leaves_nothing_to_do(name: str) -> None:
    after = SITUATIONS[name]().applied().plan()
    assert not after.changes
    assert [host.actions for host in after.hosts] == [()] * len(after.hosts)


def test_a_seventh_node_takes_its_share_and_little_else_moves() -> None:
    situation = Situation().applied()
    before = situation.plan()
    after = situation.add(SEVENTH).plan()
    given_up_by_two: set[str] = set()
    for each in situation.datasets:
        moved = moves(range_map(before, each.domain), range_map(after, each.domain))
        released = Counter(sha256 for chunks in moved.released.values() for sha256 in chunks)
        given_up_by_two |= {sha256 for sha256, nodes in released.items() if nodes == 2}
        quota = after.host(SEVENTH.hostname).quotas[each.domain]
        # The seventh's own share, and one record where a rounding falls otherwise.
        assert quota <= moved.records <= quota + 1
        assert after.moved[each.domain] == moved.records
    assert set(before.moved.values()) == {0}
    assert Situation().plan().moved == {}
    # A chunk that two nodes had a part of, and neither has now, needs its second copy elsewhere.
    coming = [host.chunks for host in after.hosts if host.node.hostname in NAMES]
    assert all(len(chunks) <= 1 for chunks in coming)
    assert {chunk.sha256 for chunks in coming for chunk in chunks} <= given_up_by_two


def test_every_record_has_one_owner_and_held_out_chunks_are_everywhere() -> None:
    plan = Situation().plan()
    for each in plan.datasets:
        owned = sorted(piece for ranges in plan.placements[each.domain].values() for piece in ranges)
        assert sum(stop - start for _, start, stop in owned) == each.train_records
        for host in plan.hosts:
            assert {chunk.sha256 for chunk in each.heldout} <= {chunk.sha256 for chunk in host.chunks}


@pytest.mark.parametrize("name", sorted(SITUATIONS))
def test_every_configuration_is_one_that_the_worker_accepts(name: str, tmp_path: Path) -> None:
    plan = SITUATIONS[name]().plan()
    for host in plan.hosts:
        for change in host.files:
            if change.path == layout.CONFIG:
                path = tmp_path / f"{host.node.hostname}.json"
                path.write_text(change.after)
                config = load_config(path)
                assert config.sha256 == host.config_sha256
                assert (config.run_id, config.node) == (plan.run_id, host.node.hostname)
                assert config.coordination.quorum == plan.quorum
                assert sum(r.stop - r.start for d in config.data for r in d.ranges) == sum(
                    host.quotas.values()
                )


def test_a_fleet_of_one_needs_no_peer(tmp_path: Path) -> None:
    situation = Situation(nodes=Situation().nodes[:1])
    host = situation.plan().primary
    path = tmp_path / "worker.json"
    path.write_text(next(change.after for change in host.files if change.path == layout.CONFIG))
    assert load_config(path).coordination.peers == ()
    assert not host.does("model")


def test_records_of_a_host_that_is_away_do_not_count_as_moved() -> None:
    situation = Situation().applied().unreachable("judge", "no answer")
    assert set(situation.plan().moved.values()) == {0}
    assert "another node than before" not in situation.text()


def test_a_file_that_is_not_there_yet_is_shown_whole() -> None:
    text = Situation().shown_diff().text()
    assert f"{layout.CONFIG} on judge\n  --- no such file\n  +++ planned\n  @@ -0,0 +1," in text
    assert "--- on the host" not in text
    assert f"{layout.UNIT_DIR}/{layout.WORKER_UNIT} on judge, netcup-router\n" in text


def test_every_action_has_its_place_in_the_order() -> None:
    for make in SITUATIONS.values():
        for host in make().plan().hosts:
            places = [ACTION_ORDER.index(action.key) for action in host.actions]
            assert places == sorted(places)
            phases = [list(Phase).index(action.phase) for action in host.actions]
            assert phases == sorted(phases)


def test_what_is_lacking_comes_off_before_what_is_kept() -> None:
    situation = Situation(reserves={"architect": NodeReserve(cores=2, ram_gb=4)})
    situation.hardware("architect", cores=6, usable_cores=6.0, memory_bytes=10 * GIB)
    limits = situation.plan().host("architect").limits
    assert limits is not None
    assert (limits.cpu_quota_percent, limits.threads, limits.memory_bytes) == (400, 4, 6 * GIB)
    assert limits.nice == DEFAULT_NICE


def test_a_primary_that_is_away_leaves_nothing_known_to_be_finished() -> None:
    plan = Situation().applied().unreachable(PRIMARY, "no answer").plan()
    assert plan.run_state == ""
    assert plan.primary.actions == ()
    assert "Unknown: qfox." in render_plan(document_of(plan))


def test_nothing_from_a_host_reaches_the_terminal_as_a_command() -> None:
    situation = Situation().applied(state="training", unit="active").shown_diff()
    situation.on(
        "judge", path="\x1b[31mred", files={**situation.answer("judge").files, layout.CONFIG: "\x1b]0;x\x07"}
    )
    situation.unreachable("architect", "first line\nsecond \x1b[2J line")
    text = situation.text()
    assert all(line.isprintable() for line in text.splitlines())
    assert "  first line\n  second \\x1b[2J line\n" in text


def test_hosts_with_the_same_hunk_share_it_and_others_do_not() -> None:
    situation = Situation().applied(state="training", unit="active").shown_diff()
    situation.with_settings(fault_tolerance=False)
    situation.reserves["judge"] = NodeReserve(cores=2)
    text = situation.text()
    shared = [
        line for line in text.replace(",\n  ", ", ").splitlines() if line.startswith(f"{layout.CONFIG} on ")
    ]
    assert shared[0] == f"{layout.CONFIG} on {', '.join(NAMES)}"
    assert text.count('+    "fault_tolerance": false') == 1
    assert text.count('+  "usable_cores": 2.0,') == 1
    assert f"{layout.CONFIG} on judge" in shared


def test_a_deploy_by_an_inventory_with_another_primary_is_seen_too() -> None:
    holder = LockHolder("1f2e3d4c", "ana@desk", "2026-11-02T09:30:00Z", "b7d77e87c3e6")
    assert Situation().applied().on("judge", lock=holder).plan().lock == holder
    assert Situation().applied().plan().lock is None
