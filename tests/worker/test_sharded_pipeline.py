"""A pipeline over real processes: it learns, nodes are lost and come back, the losses stay the same."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.worker.sharded_fleet import START, ShardedFleet, reference, wait_all

MakeFleet = Callable[..., Any]
MakeSharded = Callable[..., ShardedFleet]
RECOVERY = 60.0


@pytest.fixture
def make_sharded(make_fleet: MakeFleet) -> Iterator[MakeSharded]:
    made: list[ShardedFleet] = []

    def make(*speeds: float, steps: int, fault_tolerance: bool = True, **settings: Any) -> ShardedFleet:
        fleet = make_fleet(len(speeds), fault_tolerance=fault_tolerance)
        made.append(ShardedFleet(fleet, speeds, steps=steps, **settings))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def layers(fleet: ShardedFleet, index: int) -> list[int] | None:
    found = fleet.status(index).get("layers")
    return None if found is None else list(found)


def test_three_unequal_nodes_learn_and_make_a_model(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 2.0, 3.0, steps=150)
    fleet.start()
    assert wait_all(fleet, START) == [0, 0, 0]
    losses = list(fleet.losses(0).values())
    assert len(losses) == 15
    assert losses[-1] < losses[0] - 1.5
    statuses = [fleet.status(index) for index in range(3)]
    assert [status["state"] for status in statuses] == ["finished"] * 3
    assert [status["layers"] for status in statuses] == [[0, 1], [1, 3], [3, 6]]
    assert len({status["weights_sha256"] for status in statuses}) == 1
    assert sum(status["tokens"] for status in statuses) == 150 * 8 * 32
    whole = 4 * (256 * 32 + 32 * 32 + 6 * (12 * 32 * 32 + 2 * 32) + 32)
    held = [status["parameter_bytes"] for status in statuses]
    assert max(held) < whole
    assert sum(held) == whole + 4 * 256 * 32  # the tied embedding is on the first stage and on the last
    # Rank 0's node and one other have the checkpoint; the primary makes the final model of it.
    stored = [sorted((fleet.fleet.run_dir(index) / "checkpoints").glob("*")) for index in range(3)]
    assert [len(paths) for paths in stored] == [2, 2, 0]
    reports = json.dumps({"nodes": {f"n{index}": fleet.status(index) for index in range(3)}}).encode()
    fleet.command(0, "tailtrain.worker.sharded", "aggregate", reports)
    fleet.command(0, "tailtrain.worker", "validate")
    final = fleet.fleet.run_dir(0)
    manifest = json.loads((final / "final" / "manifest.json").read_bytes())
    assert [entry["in_final_average"] for entry in manifest["contributions"]] == [True] * 3
    assert manifest["weights_sha256"] == statuses[0]["weights_sha256"]
    domains = json.loads((final / "validation.json").read_bytes())["domains"]
    assert all(domain["loss"] < domain["untrained_loss"] - 1 for domain in domains.values())
    # The run is finished: a start changes nothing.
    fleet.start(1)
    assert fleet.processes[1].wait(20) == 0


def test_lost_and_returning_nodes_change_the_cut_and_not_the_losses(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 2.0, 3.0, steps=100_000)
    fleet.start()
    fleet.until(lambda: fleet.status(1)["round"] >= 1, START, "three nodes train")

    fleet.kill(2)
    done = fleet.status(1)["round"]
    lost = fleet.until(
        lambda: layers(fleet, 1) == [2, 6] and fleet.status(1)["round"] > done, RECOVERY, "two nodes train"
    )
    assert layers(fleet, 0) == [0, 2]
    assert fleet.living(2) == []

    fleet.start(2)
    came = fleet.until(
        lambda: layers(fleet, 2) == [3, 6] and layers(fleet, 1) == [1, 3], RECOVERY, "three nodes train again"
    )

    # The first in order holds the rendezvous.
    fleet.kill(0)
    done = fleet.status(1)["round"]
    moved = fleet.until(
        lambda: layers(fleet, 1) == [0, 3] and fleet.status(1)["round"] > done,
        RECOVERY,
        "the others train without the rendezvous host",
    )
    fleet.start(0)
    fleet.until(
        lambda: layers(fleet, 0) == [0, 1], RECOVERY, "it joins the rendezvous that the next one holds"
    )
    done = fleet.status(1)["round"]
    fleet.until(lambda: fleet.status(1)["round"] > done, RECOVERY, "three nodes train")
    assert [fleet.stop(index) for index in range(3)] == [0, 0, 0]
    found = fleet.losses(1)
    expected = reference(fleet, max(found))
    assert found.keys() == expected.keys()
    worst = max(abs(found[step] - loss) for step, loss in expected.items())
    print(
        f"{len(found)} rounds; recovered in {lost:.1f} s, back in {came:.1f} s, host moved in {moved:.1f} s; "
        f"worst difference {worst:.1e}"
    )
    assert worst < 5e-5


def test_told_to_stop_it_ends_and_leaves_no_process(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 1.0, steps=100_000)
    fleet.start()
    fleet.until(lambda: fleet.status(0)["round"] >= 1, START, "it trains")
    began = time.monotonic()
    assert [fleet.stop(1), fleet.stop(0)] == [0, 0]
    assert time.monotonic() - began < 15
    assert [fleet.status(index)["state"] for index in range(2)] == ["stopped", "stopped"]
    fleet.until(lambda: not fleet.living(0) and not fleet.living(1), 5, "no process is left")
    done = fleet.status(0)["round"]
    fleet.start()
    fleet.until(lambda: fleet.status(0)["round"] > done, START, "it goes on from where it stood")
    assert fleet.status(0)["starts"] == 2


def test_below_the_quorum_it_waits_and_says_for_what(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 1.0, steps=100_000)
    fleet.start(0)
    fleet.until(lambda: fleet.status(0)["state"] == "paused", 30, "it waits")
    assert "n1 not there; training needs 2 nodes" in fleet.status(0)["message"]
    fleet.start(1)
    fleet.until(lambda: fleet.status(0)["state"] == "training", START, "both train")


def test_a_lost_node_ends_a_run_that_tolerates_none(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 1.0, steps=100_000, fault_tolerance=False)
    fleet.start()
    fleet.until(lambda: fleet.status(0)["round"] >= 1, START, "it trains")
    fleet.kill(1)
    assert fleet.processes[0].wait(RECOVERY) == 3
    assert fleet.status(0)["state"] == "failed"
    assert "tolerates no loss" in fleet.status(0)["message"]


def test_a_node_with_other_settings_is_turned_away_by_name(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 1.0, 1.0, steps=100_000)
    fleet.fleet.configs[2]["seed"] = 18
    fleet.start()
    assert fleet.processes[2].wait(START) == 1
    assert fleet.status(2)["message"].startswith("n2: a node has other code, data, settings or nodes")
    fleet.until(lambda: fleet.status(0)["state"] == "training", RECOVERY, "the others train")
    assert fleet.status(0)["members"] == ["n0", "n1"]


def test_a_node_that_stands_by_takes_the_place_of_a_lost_one(make_sharded: MakeSharded) -> None:
    # With two microbatches there are at most two stages.
    fleet = make_sharded(2.0, 1.0, 2.0, steps=100_000, microbatches=2, checkpoint_nodes=1)
    fleet.start()
    fleet.until(lambda: fleet.status(0)["round"] >= 1, START, "it trains")
    fleet.until(lambda: "n1 stands by" in fleet.status(1)["message"], 20, "the slowest stands by")
    assert fleet.status(1)["state"] == "waiting"
    assert layers(fleet, 1) is None
    fleet.kill(2)
    done = fleet.status(0)["round"]
    fleet.until(lambda: fleet.status(0)["round"] > done, RECOVERY, "it goes on")
    assert layers(fleet, 1) == [5, 6]
    # It had no checkpoint: its part came from the node that has.
    assert [fleet.stop(0), fleet.stop(1)] == [0, 0]
    found, expected = fleet.losses(0), reference(fleet, max(fleet.losses(0)))
    assert max(abs(found[step] - loss) for step, loss in expected.items()) < 5e-5


def test_the_one_that_stands_by_ends_with_the_others(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(2.0, 1.0, 2.0, steps=20, microbatches=2)
    fleet.start()
    assert wait_all(fleet, START) == [0, 0, 0]
    statuses = [fleet.status(index) for index in range(3)]
    assert [status["state"] for status in statuses] == ["finished"] * 3
    assert len({status["weights_sha256"] for status in statuses}) == 1
    assert statuses[1]["tokens"] == 0


def test_what_no_longer_fits_waits_for_the_lost_node_and_goes_on_with_it(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 1.0, steps=100_000, min_nodes=1)
    for node in fleet.common["nodes"]:
        node["memory_bytes"] = fleet.common["costs"]["base_bytes"] + 3_000_000  # half of the model, not all
    fleet.start()
    fleet.until(lambda: fleet.status(0)["round"] >= 1, START, "it trains")
    fleet.kill(1)
    fleet.until(lambda: fleet.status(0)["state"] == "paused", RECOVERY, "it waits")
    assert "no cut of the model into stages fits into the nodes' memory" in fleet.status(0)["message"]
    done = fleet.status(0)["round"]
    fleet.start(1)
    fleet.until(lambda: fleet.status(0)["round"] > done, RECOVERY, "it goes on")


def test_a_node_that_returns_after_the_end_learns_that_the_run_is_finished(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 1.0, 1.0, steps=60)
    fleet.start()
    fleet.until(lambda: fleet.status(2)["round"] >= 0, START, "three nodes train")
    fleet.kill(2)
    fleet.until(lambda: fleet.status(1)["state"] == "finished", START, "the others finish")
    assert fleet.processes[1].wait(20) == 0
    # One of them stays to tell.
    assert fleet.processes[0].poll() is None
    assert fleet.status(0)["state"] == "finished"
    fleet.start(2)
    assert fleet.processes[2].wait(RECOVERY) == 0
    assert fleet.status(2)["state"] == "finished"
    assert "the others finished the run" in fleet.status(2)["message"]
    assert fleet.processes[0].wait(RECOVERY) == 0


def test_a_final_model_that_a_deploy_brought_ends_the_wait(make_sharded: MakeSharded) -> None:
    fleet = make_sharded(1.0, 1.0, steps=60)
    fleet.start(1)
    fleet.until(lambda: fleet.status(1)["state"] == "paused", START, "it waits")
    final = fleet.fleet.run_dir(1) / "final"
    final.mkdir()
    (final / "manifest.json").write_text("{}")
    assert fleet.processes[1].wait(RECOVERY) == 0
    assert fleet.status(1)["state"] == "finished"
