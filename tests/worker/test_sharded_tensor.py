"""Parts of every layer on two nodes: the losses of one process, half of the parameters each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.worker.sharded_fleet import START, ShardedFleet, reference, wait_all

MakeFleet = Callable[..., Any]


@pytest.fixture
def fleet(make_fleet: MakeFleet) -> Iterator[ShardedFleet]:
    made = ShardedFleet(make_fleet(2), (1.0, 1.0), steps=40, strategy="modelParallel")
    yield made
    made.close()


def test_two_nodes_train_as_one_process_does(fleet: ShardedFleet) -> None:
    fleet.start()
    assert wait_all(fleet, START) == [0, 0]
    found, expected = fleet.losses(0), reference(fleet, 40)
    assert found.keys() == expected.keys() == {10, 20, 30, 40}
    assert max(abs(found[step] - loss) for step, loss in expected.items()) < 5e-5
    assert found[40] < found[10] - 0.5
    statuses = [fleet.status(index) for index in range(2)]
    assert [status["state"] for status in statuses] == ["finished", "finished"]
    whole = 4 * (256 * 32 + 32 * 32 + 6 * (12 * 32 * 32 + 2 * 32) + 32)
    divided = 4 * 6 * 12 * 32 * 32
    assert [status["parameter_bytes"] for status in statuses] == [whole - divided // 2] * 2
    assert [status["tokens"] for status in statuses] == [40 * 8 * 32 // 2] * 2
    # A fleet of another size goes on from the same files: they hold whole tensors.
    fleet.command(0, "tailtrain.worker.sharded", "aggregate", b'{"nodes": {}}')
    fleet.command(0, "tailtrain.worker", "validate")


def test_a_lost_part_is_taken_over_by_the_other_node(make_fleet: MakeFleet) -> None:
    fleet = ShardedFleet(make_fleet(2), (1.0, 1.0), steps=100_000, strategy="modelParallel", min_nodes=1)
    try:
        fleet.start()
        fleet.until(lambda: fleet.status(0)["round"] >= 1, START, "both train")
        fleet.kill(0)
        done = fleet.status(1)["round"]
        fleet.until(
            lambda: fleet.status(1)["members"] == ["n1"] and fleet.status(1)["round"] > done,
            START,
            "the other goes on alone",
        )
        assert fleet.stop(1) == 0
        found = fleet.losses(1)
        expected = reference(fleet, max(found))
        assert max(abs(found[step] - loss) for step, loss in expected.items()) < 5e-5
    finally:
        fleet.close()
