"""The primary or those that wrote a checkpoint are away: nothing is lost, and the end reaches the primary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.worker.sharded_fleet import START, ShardedFleet

MakeFleet = Callable[..., Any]
MakeSharded = Callable[..., ShardedFleet]
RECOVERY = 60.0


@pytest.fixture
def make_sharded(make_fleet: MakeFleet) -> Iterator[MakeSharded]:
    made: list[ShardedFleet] = []

    def make(*speeds: float, steps: int, **settings: Any) -> ShardedFleet:
        made.append(ShardedFleet(make_fleet(len(speeds)), speeds, steps=steps, **settings))
        return made[-1]

    yield make
    for fleet in made:
        fleet.close()


def test_a_primary_that_was_away_at_the_end_takes_the_checkpoint_and_makes_the_model(
    make_sharded: MakeSharded,
) -> None:
    # It is the slowest, and with two microbatches one node stands by: not this one.
    fleet = make_sharded(1.0, 2.0, 2.0, steps=60, microbatches=2)
    fleet.start()
    fleet.until(lambda: fleet.status(0)["round"] >= 0, START, "it trains")
    assert fleet.status(0)["layers"] is not None
    fleet.kill(0)
    fleet.until(lambda: fleet.status(1)["state"] == "finished", START, "the others finish")
    fleet.until(lambda: "keeps its end for n0" in fleet.status(2)["message"], 20, "who has the end stays")
    # They are stopped, as a deploy does; a resume starts them anew.
    assert [fleet.stop(1), fleet.stop(2)] == [0, 0]
    fleet.start(1, 2)
    fleet.until(lambda: "keeps its end for n0" in fleet.status(2)["message"], 30, "it stays again")
    fleet.start(0)
    assert [fleet.processes[index].wait(RECOVERY) for index in range(3)] == [0, 0, 0]
    assert [fleet.status(index)["state"] for index in range(3)] == ["finished"] * 3
    assert "has its last checkpoint from n" in fleet.status(0)["message"]
    reports = json.dumps({"nodes": {f"n{index}": fleet.status(index) for index in range(3)}}).encode()
    fleet.command(0, "tailtrain.worker.sharded", "aggregate", reports)
    manifest = json.loads((fleet.fleet.run_dir(0) / "final" / "manifest.json").read_bytes())
    assert manifest["weights_sha256"] == fleet.status(1)["weights_sha256"]
    # All is over now: a start changes nothing.
    fleet.start(0, 1)
    assert [fleet.processes[index].wait(20) for index in range(2)] == [0, 0]


def test_without_the_node_that_has_the_newest_checkpoint_it_waits_and_names_it(
    make_sharded: MakeSharded,
) -> None:
    fleet = make_sharded(1.0, 1.0, 1.0, steps=100_000, checkpoint_nodes=1)
    fleet.start()
    fleet.until(lambda: fleet.status(1)["round"] >= 0, START, "it trains")
    fleet.kill(0)
    fleet.until(lambda: fleet.status(1)["state"] == "paused", RECOVERY, "the others wait")
    said, step = fleet.status(1)["message"], fleet.status(1)["committed_step"]
    assert f"the checkpoint of step {step} is on n0, which is away (found step 0" in said
    assert step > 0
    fleet.start(0)
    fleet.until(lambda: fleet.status(1)["committed_step"] > step, RECOVERY, "it goes on from there")
    assert min(fleet.losses(1)) == 10
