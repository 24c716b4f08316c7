"""The topology of a plan: chosen once for a run, group data kept, measurements used, files sound."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailtrain.errors import DeclarationError
from tailtrain.planning import layout
from tailtrain.planning.receipt import Login, Receipt
from tailtrain.planning.topology.kept import kept_topology, topology_text
from tailtrain.planning.topology.offers import Compression, Topology, Way
from tests.plans.situations import NAMES, PRIMARY, SEVENTH, Situation

if TYPE_CHECKING:
    from tailtrain.planning.topology.planned import PlannedTopology

SPEEDS = dict(zip(NAMES, (9_100.0, 7_400.0, 800.0, 1_900.0, 4_000.0, 2_050.0), strict=True))


def chosen(situation: Situation) -> PlannedTopology:
    planned = situation.plan().topology
    assert planned is not None
    return planned


def topology_of(situation: Situation) -> Topology:
    found = chosen(situation).topology
    assert found is not None
    return found


def measured(situation: Situation | None = None, **fields: Any) -> Situation:
    situation = situation or Situation().optimized()
    for name, speed in SPEEDS.items():
        situation = situation.measured(name, speed, **fields)
    return situation


def worker_json(situation: Situation, name: str = PRIMARY) -> Any:
    plan = situation.plan().host(name)
    return json.loads(next(change.after for change in plan.files if change.path == layout.CONFIG))


def test_shares_follow_measured_speeds() -> None:
    found = topology_of(measured())
    for name, speed in SPEEDS.items():
        assert found.shares[name] == pytest.approx(speed / sum(SPEEDS.values()))
    assert found.guessed == ()


def test_records_are_shared_out_by_the_topology() -> None:
    plan = measured().plan()
    for dataset in plan.datasets:
        quotas = {host.node.hostname: host.quotas[dataset.domain] for host in plan.hosts}
        assert sum(quotas.values()) == dataset.train_records
        for name, speed in SPEEDS.items():
            assert quotas[name] == pytest.approx(dataset.train_records * speed / sum(SPEEDS.values()), abs=1)


def test_a_measured_speed_counts_for_a_model_of_another_size() -> None:
    small = topology_of(measured())
    wide = measured().optimized().with_settings(model={"width": 256})
    wider = topology_of(wide)
    ratio = wider.speeds[PRIMARY] / small.speeds[PRIMARY]
    assert 0.2 < ratio < 0.3
    assert wider.shares == pytest.approx(small.shares)


def test_who_was_not_measured_is_guessed_by_as_much_as_the_others_were_off() -> None:
    fleet = Situation().optimized().declare(PRIMARY, has_gpu=False)
    guess = topology_of(fleet).speeds
    half = fleet
    for name in NAMES[1:]:
        half = half.measured(name, guess[name] / 2)
    found = topology_of(half)
    assert found.guessed == (PRIMARY,)
    assert found.speeds[PRIMARY] == pytest.approx(guess[PRIMARY] / 2)


@pytest.mark.parametrize("seconds", [0.7, 2.9, 9.0, 20.0])
def test_an_averaging_like_the_measured_one_is_predicted_to_take_as_long(seconds: float) -> None:
    # All together, uncompressed, in equal parts, as it was measured: 857,088 parameters, 6 nodes.
    moved = 4 * 857_216 * (1 + 4 / 6)
    situation = measured(averaging_seconds=seconds, bytes_per_second=moved / seconds)
    situation = situation.with_settings(resource_allocation="declared_cores")
    assert topology_of(situation).prediction.averaging_seconds == pytest.approx(seconds, rel=0.05)


def test_slow_averagings_travel_compressed_and_time_out_later() -> None:
    slow = measured(averaging_seconds=60.0, bytes_per_second=0.1e6)
    planned = chosen(slow)
    assert planned.choices.compression != "none"
    assert topology_of(slow).longest_averaging > 10
    assert planned.choices.averaging_timeout_seconds >= 2 * topology_of(slow).longest_averaging
    document = worker_json(slow)
    assert document["coordination"]["compression"] == planned.choices.compression
    assert document["training"]["averaging_timeout_seconds"] == planned.choices.averaging_timeout_seconds


def test_a_host_to_which_transfers_were_slow_reduces_less() -> None:
    def receipt(rate: float) -> Receipt:
        return Receipt(*("", "", "", "", {}, "", "", "", 1, 1, 0, {"qfox": Login()}), bytes_per_second=rate)

    situation = measured(averaging_seconds=20.0, bytes_per_second=0.29e6)
    for name in NAMES:
        situation = situation.on(name, receipt=receipt(0.3e6 if name == "judge" else 20e6))
    planned = chosen(situation)
    assert planned.choices.reducers.get("judge", 0.0) < 0.01
    assert sum(planned.choices.reducers.values()) == pytest.approx(1)
    assert worker_json(situation)["coordination"]["reducers"] == planned.choices.reducers


def test_what_group_data_says_is_kept() -> None:
    situation = measured(averaging_seconds=20.0, bytes_per_second=0.29e6)
    situation.with_settings(
        coordination_protocol="eneGossip",
        training={"round_seconds": 33, "averaging_timeout_seconds": 300},
        engine={"all_each": 6, "compression": "fp16"},
    )
    planned, found = chosen(situation), topology_of(situation)
    assert (found.way, found.all_each, found.compression) == (Way.PAIRS, 6, Compression.FP16)
    assert found.prediction.training_seconds == 33
    assert planned.choices.round_seconds == 33
    assert planned.choices.averaging_timeout_seconds == 300
    always = situation.with_settings(engine={"all_each": 1})
    assert topology_of(always).way is Way.GROUP


def test_centralized_is_a_star() -> None:
    planned = chosen(measured().with_settings(coordination_protocol="centralized"))
    assert planned.topology is not None
    assert planned.topology.way is Way.STAR
    assert planned.choices.reducers == {}


def test_a_run_that_is_the_same_to_the_bit_does_not_follow_measurements() -> None:
    engine = {"deterministic": True, "steps_per_round": 50}
    situation = Situation().optimized().with_settings(coordination_protocol="centralized", engine=engine)
    before = chosen(situation)
    after = chosen(measured(situation))
    assert before.topology is not None
    assert after.topology is not None
    assert before.topology.shares == after.topology.shares
    assert before.topology.steps == after.topology.steps
    assert max(before.topology.steps.values()) == 50
    assert (before.choices.compression, after.choices.compression) == ("none", "none")


def test_a_divided_model_has_no_topology_of_averagings() -> None:
    planned = chosen(Situation().optimized().with_settings(distribution_strategy="pipelineParallel"))
    assert planned.topology is None
    assert not planned.chosen


def test_the_primary_alone_keeps_it() -> None:
    plan = Situation().optimized().plan()
    writes = {
        host.node.hostname: [change.after for change in host.files if change.path == layout.TOPOLOGY]
        for host in plan.hosts
    }
    assert plan.topology is not None
    assert writes.pop(PRIMARY) == [plan.topology.text]
    assert not any(writes.values())
    declared = Situation().plan()
    assert not any(change.path == layout.TOPOLOGY for host in declared.hosts for change in host.files)


@pytest.mark.parametrize("state", ["training", "finished"])
def test_a_run_keeps_its_topology_whatever_was_measured_since(state: str) -> None:
    unit = "active" if state == "training" else "inactive"
    begun = Situation().optimized().applied(state=state, unit=unit)
    before = begun.plan()
    later = measured(begun, averaging_seconds=20.0, bytes_per_second=0.29e6)
    later = later.on("judge", path="relayed via fra").path("qfox", "judge", "relayed")
    after = later.plan()
    assert after.topology == before.topology
    assert after.id == before.id
    assert not any(host.files for host in after.hosts)
    if state == "finished":
        assert not after.changes


def test_another_run_is_optimized_anew() -> None:
    done = measured(Situation().optimized().applied())
    assert topology_of(done).guessed == NAMES
    again = done.optimized(learning_rate=0.001)
    assert topology_of(again).guessed == ()


def test_another_fleet_is_optimized_anew() -> None:
    begun = measured(Situation().optimized().applied(state="training", unit="active"))
    assert topology_of(begun).guessed == NAMES
    grown = topology_of(begun.add(SEVENTH))
    assert grown.guessed == (SEVENTH.hostname,)
    assert set(grown.shares) == {*NAMES, SEVENTH.hostname}


def test_a_changed_topology_alone_restarts_nobody() -> None:
    begun = Situation().optimized().applied(state="training", unit="active")
    files = dict(begun.answer(PRIMARY).files)
    text = files[layout.TOPOLOGY]
    assert text is not None
    spaced = begun.on(PRIMARY, files={**files, layout.TOPOLOGY: text.replace("\n", "\n ")}).plan()
    assert [change.path for host in spaced.hosts for change in host.files] == [layout.TOPOLOGY]
    assert not any(host.does("restart") for host in spaced.hosts)


def test_a_host_that_is_away_has_its_share() -> None:
    away = Situation().optimized().unreachable("judge", "no answer")
    found = topology_of(away)
    assert found.shares["judge"] > 0
    assert "judge" in found.guessed


def test_disks_that_cannot_hold_the_data_are_refused() -> None:
    situation = Situation().optimized()
    for name in NAMES:
        situation = situation.hardware(name, disk_free_bytes=(1 << 29) + 400_000)
    with pytest.raises(DeclarationError, match="cannot hold the data"):
        situation.plan()


KEPT = topology_of(measured())
RUN = "0123456789abcdef"


def test_a_kept_topology_comes_back_as_it_was() -> None:
    text = topology_text(RUN, KEPT)
    again = kept_topology(text, RUN, NAMES)
    assert again == KEPT
    assert topology_text(RUN, again) == text
    assert kept_topology(text, "f" * 16, NAMES) is None
    assert kept_topology(text, RUN, NAMES[1:]) is None
    assert kept_topology(None, RUN, NAMES) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"shares": {**KEPT.shares, PRIMARY: 0.9}},
        {"shares": {**KEPT.shares, PRIMARY: -1.0}},
        {"reducers": dict.fromkeys(NAMES, 0.0)},
        {"steps": {}},
        {"steps": {**KEPT.steps, PRIMARY: 0}},
        {"speeds": {}},
        {"all_each": 0},
        {"fastest": 0.0},
        {"longest_averaging": 1e9},
        {"prediction": dataclasses.replace(KEPT.prediction, training_seconds=0.0)},
        {"equal": dataclasses.replace(KEPT.equal, averaging_seconds=-1.0)},
        {"reasons": {"nobody": "x"}},
    ],
)
def test_numbers_that_no_optimizer_gives_are_no_topology(changed: dict[str, Any]) -> None:
    assert kept_topology(topology_text(RUN, dataclasses.replace(KEPT, **changed)), RUN, NAMES) is None


@settings(deadline=None)
@given(st.data())
def test_a_damaged_file_is_none_or_a_sound_topology(data: st.DataObject) -> None:
    text = topology_text(RUN, KEPT)
    start = data.draw(st.integers(0, len(text)))
    piece = data.draw(st.text(max_size=5) | st.sampled_from(["1e999", "null", "-1", "{}", "[]", '"x"']))
    length = data.draw(st.integers(0, 40))
    found = kept_topology(text[:start] + piece + text[start + length :], RUN, NAMES)
    if found is not None:
        assert sum(found.shares.values()) == pytest.approx(1)
        assert msgspec.json.decode(topology_text(RUN, found))["run"] == RUN
