"""Which run a declaration is: what is trained is the first half of its id, by whom the second."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from tailtrain.planning.parts import counted
from tailtrain.planning.plan import CPU_LOCK, CUDA_LOCK, quorum_of, run_ids
from tailtrain.planning.settings import LoopSettings, ModelSettings, parse_settings
from tests.plans.situations import DATASETS, MATERIAL, SETTINGS, SEVENTH, Situation

OTHER: dict[str, dict[str, Any]] = {
    "model": {"layers": 5, "width": 256, "heads": 8, "context": 64},
    "training": {
        "target_tokens": 7,
        "round_seconds": 7.0,
        "batch_size": 7,
        "learning_rate": 0.007,
        "weight_decay": 0.7,
        "warmup_steps": 7,
        "seed": 7,
        "averaging_timeout_seconds": 7.0,
        "outer_learning_rate": 0.7,
        "outer_momentum": 0.7,
        "start_timeout_seconds": 7.0,
        "keep_checkpoints": 7,
    },
}


def ids(situation: Situation) -> tuple[str, str]:
    return run_ids(
        parse_settings(situation.settings), situation.datasets, situation.material, situation.nodes
    )


def test_the_same_declaration_is_the_same_run() -> None:
    assert ids(Situation()) == ids(Situation())
    assert ids(Situation().with_settings(training=vars(LoopSettings()))) == ids(Situation())


def test_every_setting_of_model_and_training_is_covered_here() -> None:
    assert set(OTHER["model"]) == {field.name for field in fields(ModelSettings)}
    assert set(OTHER["training"]) == {field.name for field in fields(LoopSettings)}


@pytest.mark.parametrize(("section", "name"), [(s, n) for s, names in OTHER.items() for n in names])
def test_each_setting_makes_another_run_by_the_same_nodes(section: str, name: str) -> None:
    changed = ids(Situation().with_settings(**{section: {name: OTHER[section][name]}}))
    assert changed[0] != ids(Situation())[0]
    assert changed[1] == ids(Situation())[1]


@pytest.mark.parametrize(
    "settings",
    [
        {"coordination_protocol": "centralized"},
        {"distribution_strategy": "pipelineParallel"},
        {"data_sharding": False},
        {"validation_bytes_per_domain": 7},
    ],
)
def test_so_does_how_it_is_spread(settings: dict[str, Any]) -> None:
    assert ids(Situation().with_settings(**settings))[0] != ids(Situation())[0]


def test_so_do_data_and_code() -> None:
    other_data = replace(DATASETS[0], manifest_id="0" * 64)
    assert ids(Situation(datasets=(other_data, DATASETS[1])))[0] != ids(Situation())[0]
    assert ids(Situation(datasets=DATASETS[:1]))[0] != ids(Situation())[0]
    other_code = replace(MATERIAL, code_id="0" * 16)
    assert ids(Situation(material=other_code))[0] != ids(Situation())[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"fault_tolerance": False},
        {"worker_port": 50_000},
        {"wheels": "wheels"},
        {"package_index": "https://x"},
    ],
)
def test_how_nodes_are_reached_and_built_is_no_other_run(settings: dict[str, Any]) -> None:
    assert ids(Situation().with_settings(**settings)) == ids(Situation())


def test_the_fleet_is_in_the_second_half_only() -> None:
    more = ids(Situation().add(SEVENTH))
    assert more[0] == ids(Situation())[0]
    assert more[1] != ids(Situation())[1]


def test_an_unfinished_run_goes_on_when_the_fleet_changes_and_a_finished_one_does_not() -> None:
    first = Situation().plan().run_id
    for state in ("starting", "waiting", "training", "averaging", "paused", "failed", "stopped", ""):
        assert Situation().applied(state=state).add(SEVENTH).plan().run_id == first
    assert Situation().applied(state="finished").add(SEVENTH).plan().run_id != first


def test_a_run_that_one_node_finished_is_not_under_way_on_the_others() -> None:
    situation = Situation().applied()
    situation.on("judge", run=replace(situation.answer("judge").run, state="training"))
    assert situation.add(SEVENTH).plan().run_id != Situation().plan().run_id


def test_a_run_that_a_grown_fleet_finished_is_that_fleet_s() -> None:
    grown = Situation().applied(state="training").add(SEVENTH).applied(state="finished")
    assert grown.plan().run_id == Situation().plan().run_id
    assert not grown.plan().changes


def test_going_back_to_the_fleet_of_before_while_under_way_keeps_the_run() -> None:
    situation = Situation().add(SEVENTH).applied(state="training")
    run = situation.plan().run_id
    situation.nodes = situation.nodes[:-1]
    assert situation.plan().run_id == run


def test_another_declaration_s_unfinished_run_is_left_alone() -> None:
    situation = Situation().applied(state="stopped").with_settings(training={"seed": 99})
    assert situation.plan().run_id == Situation().with_settings(training={"seed": 99}).plan().run_id


@pytest.mark.parametrize(
    ("nodes", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (6, 4), (7, 5), (9, 6), (1000, 667)]
)
def test_the_quorum_is_two_thirds_rounded_up(nodes: int, quorum: int) -> None:
    assert quorum_of(nodes) == quorum
    assert 3 * quorum >= 2 * nodes
    assert 3 * (quorum - 1) < 2 * nodes


def test_a_node_gets_the_cpu_build_where_it_can_be_had_or_is_there() -> None:
    nowhere = replace(MATERIAL, cpu_build_at_hand=False)
    there = frozenset({MATERIAL.locks[CPU_LOCK]})
    assert MATERIAL.lock_for("cpu", frozenset()) == CPU_LOCK
    assert nowhere.lock_for("cpu", frozenset()) == CUDA_LOCK
    assert nowhere.lock_for("cpu", there) == CPU_LOCK
    assert MATERIAL.lock_for("cuda", there) == CUDA_LOCK


def test_counts_are_in_the_singular_where_they_are_one() -> None:
    assert [counted(n, "chunk") for n in (0, 1, 2, 1234)] == [
        "0 chunks",
        "1 chunk",
        "2 chunks",
        "1,234 chunks",
    ]


def test_settings_are_those_of_the_example() -> None:
    assert parse_settings(SETTINGS).datasets == (("natural", "prose.parquet"), ("coding", "code.parquet"))
