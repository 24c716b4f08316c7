"""A divided model in the plan: who holds what, what is refused by name, what each node is told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout
from tailtrain.planning.observed import Measured
from tailtrain.planning.templates import Templates
from tailtrain.worker.sharded.config import ShardedConfig, load_sharded
from tests.plans.situations import GIB, MATERIAL, NAMES, PRIMARY, PROJECT, Situation
from tests.unit.planning.test_units import unit

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.planning.plan import HostPlan, Plan

MODEL = {"layers": 12, "width": 128, "heads": 12, "context": 128}


def divided(strategy: str = "pipelineParallel", protocol: str = "centralized", **settings: Any) -> Situation:
    values: dict[str, Any] = {"model": {**MODEL, "width": 192}, "training": {"batch_size": 16}, **settings}
    return (
        Situation()
        .with_settings(distribution_strategy=strategy, coordination_protocol=protocol, **values)
        .round_trips(0.001)
    )


def sharded(host: HostPlan) -> dict[str, Any]:
    text = next(change.after for change in host.files if change.path == layout.SHARDED_CONFIG)
    document: dict[str, Any] = json.loads(text)
    return document


def as_worker(host: HostPlan, folder: Path) -> ShardedConfig:
    """The planned files, as the worker reads them there."""
    files = {change.path: change.after for change in host.files}
    (folder / "worker.json").write_text(files[layout.CONFIG])
    text = files[layout.SHARDED_CONFIG].replace(layout.CONFIG, str(folder / "worker.json"))
    (folder / "sharded.json").write_text(text)
    return load_sharded(folder / "sharded.json")


def layers_of(plan: Plan) -> dict[str, tuple[int, int]]:
    assert plan.division is not None
    return {part.node: (part.start, part.stop) for part in plan.division.parts}


@pytest.mark.parametrize("protocol", ["centralized", "eneGossip"])
@pytest.mark.parametrize("strategy", ["pipelineParallel", "modelParallel"])
def test_every_node_is_told_the_same_and_can_read_it(strategy: str, protocol: str, tmp_path: Path) -> None:
    plan = divided(strategy, protocol, engine={"allow_wan": True, "checkpoint_steps": 7}).plan()
    documents = [sharded(host) for host in plan.hosts]
    assert all(document == documents[0] for document in documents)
    assert documents[0]["rendezvous_order"][0] == PRIMARY
    assert [node["node"] for node in documents[0]["nodes"]] == list(NAMES)
    digests = set()
    for host in plan.hosts:
        config = as_worker(host, tmp_path)
        assert config.checkpoint_steps == 7
        assert config.min_nodes == 4
        assert config.port == config.worker.coordination.port == 45_001
        assert config.beacon_port == 45_005
        assert not config.worker.sharded
        assert (config.worker.coordination.gossip is None) == (protocol == "centralized")
        assert config.worker.device == "cpu"
        digests.add(config.digest)
    assert len(digests) == 1


def test_the_digest_by_which_a_restart_is_decided_is_of_both_files(tmp_path: Path) -> None:
    host = divided().plan().host("judge")
    files = {change.path: change.after for change in host.files}
    (tmp_path / "worker.json").write_text(files[layout.CONFIG])
    before = as_worker(host, tmp_path)
    assert len(host.config_sha256) == 64
    # The worker reads its files elsewhere here, so the second one differs in one path; both count.
    text = (tmp_path / "sharded.json").read_text()
    (tmp_path / "sharded.json").write_text(text.replace('"min_nodes": 4', '"min_nodes": 5'))
    assert load_sharded(tmp_path / "sharded.json").sha256 != before.sha256
    changed = divided(engine={"checkpoint_steps": 9}).plan().host("judge")
    assert changed.config_sha256 != host.config_sha256


def test_the_worker_unit_starts_the_engine_that_divides() -> None:
    host = divided().plan().host("architect")
    settings = unit(host, layout.WORKER_UNIT)
    python = f"{layout.environment(MATERIAL.locks[host.lock])}/bin/python"
    assert settings["ExecStart"] == [
        f"{python} -m tailtrain.worker.sharded run --config {layout.SHARDED_CONFIG}"
    ]
    assert settings["KillMode"] == ["control-group"]
    assert settings["RestartPreventExitStatus"] == ["3"]
    assert settings["IPAddressDeny"] == ["any"]
    assert settings["IPAddressAllow"][0].split() == ["localhost", *(f"100.64.0.{n}" for n in range(2, 8))]
    whole = unit(Situation().plan().host("architect"), layout.WORKER_UNIT)
    assert whole["ExecStart"][0].endswith(f"-m tailtrain.worker train --config {layout.CONFIG}")
    assert "IPAddressDeny" not in whole


@pytest.mark.parametrize(
    ("before", "after"),
    [('"min_nodes": {{ min_nodes | tojson }}', '"min_nodes": 1'), ("{{ port | tojson }}", "{{ nosuch }}")],
)
def test_a_template_that_says_something_else_is_refused(before: str, after: str) -> None:
    document = sharded(divided().plan().primary)
    text = (PROJECT / "templates" / "sharded.json.j2").read_text()
    assert before in text
    broken = Templates({"sharded.json.j2": text.replace(before, after)})
    with pytest.raises(DeclarationError, match=r"^judge: templates/sharded.json.j2"):
        broken.render_document("sharded.json", "judge", document)


def test_faster_nodes_have_more_layers_and_what_was_measured_counts() -> None:
    guessed = layers_of(divided().plan())
    sizes = {node: stop - start for node, (start, stop) in guessed.items()}
    assert sizes[PRIMARY] == max(sizes.values())
    situation = divided()
    for name in NAMES:
        speed = 9_000.0 if name == "judge" else 1_000.0
        situation.on(name, measured=Measured("beef" * 4, 10_000_000, speed, 1e6, 1.0, 60.0))
    measured = layers_of(situation.plan())
    lengths = {node: stop - start for node, (start, stop) in measured.items()}
    assert lengths["judge"] == max(lengths.values()) > sizes.get("judge", 0)


def test_a_run_goes_on_with_the_speeds_that_it_was_begun_with() -> None:
    situation = divided().applied(state="training", unit="active")
    for name in NAMES:
        situation.on(name, measured=Measured("beef" * 4, 10_000_000, 5_000.0, 1e6, 1.0, 60.0))
    assert not any(host.files for host in situation.plan().hosts)
    # What somebody wrote into the file there counts for nothing: it is written anew.
    files = situation.answer(PRIMARY).files
    text = str(files[layout.SHARDED_CONFIG]).replace('"speed": ', '"speed": 1')
    situation.on(PRIMARY, files={**files, layout.SHARDED_CONFIG: text})
    assert [change.path for change in situation.plan().primary.files] == [layout.SHARDED_CONFIG]


def test_a_finished_run_changes_nothing() -> None:
    assert not divided().applied().plan().changes


def test_a_node_that_does_not_answer_keeps_its_place() -> None:
    situation = divided().applied(state="training", unit="active")
    situation.unreachable("judge", "no answer")
    plan = situation.plan()
    assert all(not host.files for host in plan.hosts if not host.unreachable)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"distribution_strategy": "modelParallel", "model": {**MODEL, "heads": 4}},
         r"4 heads for 6 nodes, expected a multiple of 6, or 4 nodes"),
        ({"distribution_strategy": "modelParallel"}, r"speeds that differ by a factor of 8.0"),
        ({"training": {"batch_size": 10}}, r"training.batch_size: a batch is not a whole number of microb"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_strategy_is_refused_by_name(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(DeclarationError, match=said):
        divided().with_settings(**settings).plan()


def test_a_slow_link_is_named_with_what_it_costs_unless_it_is_accepted() -> None:
    slow = divided("modelParallel").round_trips(0.02)
    with pytest.raises(DeclarationError, match=r"qfox and architect.*4 x 12 layers x 20.0 ms = 960 ms"):
        slow.plan()
    plan = slow.with_settings(engine={"allow_wan": True}).plan()
    assert plan.division is not None
    assert plan.division.latency_seconds == pytest.approx(0.96)
    assert "960 ms of round trips in each step" in " ".join(slow.text().split())


def test_a_slow_link_does_not_stop_a_run_that_is_under_way() -> None:
    situation = divided("modelParallel")
    for name in NAMES:
        situation.declare(name, cores=4)
    situation.applied(state="training", unit="active").round_trips(0.5)
    assert not any(host.files for host in situation.plan().hosts)


def test_stages_that_fit_nowhere_are_refused_with_the_nodes_names() -> None:
    situation = divided(model={"layers": 2, "width": 4096, "heads": 8, "context": 128})
    for name in NAMES:
        situation.declare(name, ram_gb=2).hardware(name, memory_bytes=2 * GIB)
    with pytest.raises(DeclarationError, match=r"no cut of the model .*qfox 2048 MiB, architect 2048 MiB"):
        situation.plan()


def test_a_primary_that_can_hold_no_part_is_refused_by_name() -> None:
    situation = divided(model={"layers": 12, "width": 1024, "heads": 8, "context": 128})
    situation.declare(PRIMARY, ram_gb=1).hardware(PRIMARY, memory_bytes=GIB // 2)
    with pytest.raises(
        DeclarationError, match=rf"^{PRIMARY}: ram_gb: the primary's memory cannot hold a part"
    ):
        situation.plan()


def test_a_model_that_no_node_could_hold_alone_is_planned_on_several() -> None:
    situation = divided(model={"layers": 12, "width": 1024, "heads": 8, "context": 128})
    for name in NAMES:
        situation.declare(name, ram_gb=4, cores=4).hardware(name, memory_bytes=4 * GIB)
    plan = situation.plan()
    assert plan.division is not None
    assert len(plan.division.parts) > 1
    assert all(part.memory_bytes <= 4 * GIB for part in plan.division.parts)
    with pytest.raises(DeclarationError, match="its memory cannot hold the training"):
        situation.with_settings(distribution_strategy="dataParallel").plan()


def test_one_node_cannot_divide_a_model() -> None:
    situation = divided()
    for name in NAMES[1:]:
        situation.remove(name)
    with pytest.raises(DeclarationError, match="at least 2 nodes"):
        situation.plan()


def test_the_document_says_why_data_are_not_shared_out() -> None:
    assert "data_sharding has no effect" in " ".join(divided().text().split())
    assert "no effect" not in divided(data_sharding=False).text()


def test_a_gpu_is_left_alone_and_that_is_said() -> None:
    plan = divided().plan()
    assert "its GPU is not used: a divided model trains on CPUs" in plan.host("qfox").notes
    limits = plan.host("qfox").limits
    assert limits is not None
    assert limits.device == "cpu"


def test_the_parts_add_up_to_the_model() -> None:
    plan = divided().plan()
    assert plan.division is not None
    embedding = 4 * 256 * 192  # tied: on the first and on the last stage
    held = sum(part.parameter_bytes for part in plan.division.parts)
    assert held == plan.division.whole_bytes + embedding
