"""A divided model under eneGossip: Serf says who lives, chooses the rendezvous host and ends waits."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("msgpack", reason="needs the worker environment")
if shutil.which("serf") is None:
    pytest.skip("needs Debian's serf package", allow_module_level=True)

from tests.worker.serf_fleet import SerfFleet
from tests.worker.sharded_fleet import START, ShardedFleet, reference

if TYPE_CHECKING:
    from pathlib import Path

MakeFleet = Callable[..., Any]
NODES = ("n0", "n1", "n2")
RECOVERY = 60.0


@pytest.fixture
def serf(tmp_path: Path) -> Iterator[SerfFleet]:
    folder = tmp_path / "serf"
    folder.mkdir()
    agents = SerfFleet(folder, NODES)
    try:
        for name in NODES:
            agents.start(name, watched=False)
        yield agents
    finally:
        agents.close()


@pytest.fixture
def fleet(serf: SerfFleet, make_fleet: MakeFleet, tmp_path: Path) -> Iterator[ShardedFleet]:
    nodes = make_fleet(3, protocol="eneGossip")
    for index, config in enumerate(nodes.configs):
        config["coordination"]["gossip"] = str(tmp_path / "serf" / NODES[index] / "serf.json")
    # Far longer than Serf needs.
    made = ShardedFleet(nodes, (1.0, 1.0, 1.0), steps=100_000, collective_timeout_seconds=240)
    yield made
    made.close()


def freeze(fleet: ShardedFleet, serf: SerfFleet, index: int) -> None:
    """Silence: connections stay as they are, and nobody answers on them."""
    serf.kill(NODES[index], signal.SIGSTOP)
    for process in fleet.living(index):
        os.kill(process, signal.SIGSTOP)


def test_a_silent_node_is_left_behind_long_before_torch_gives_up_and_taken_in_again(
    fleet: ShardedFleet, serf: SerfFleet
) -> None:
    fleet.start()
    fleet.until(lambda: fleet.status(1)["round"] >= 0, START, "three nodes train")
    freeze(fleet, serf, 2)
    done = fleet.status(0)["round"]
    silent = fleet.until(
        lambda: fleet.status(0)["members"] == ["n0", "n1"] and fleet.status(0)["round"] > done,
        120,
        "the others go on without the silent node",
    )
    for process in fleet.living(2):  # as systemd does: a frozen one does not see that its parent is gone
        os.kill(process, signal.SIGKILL)
    fleet.kill(2)
    serf.kill("n2")
    serf.start("n2", watched=False)
    fleet.start(2)
    fleet.until(lambda: len(fleet.status(0)["members"]) == 3, RECOVERY, "it is taken in again")

    # The primary holds the rendezvous; where only its worker dies, its agent lives on.
    fleet.kill(0)
    done = fleet.status(1)["round"]
    moved = fleet.until(
        lambda: fleet.status(1)["members"] == ["n1", "n2"] and fleet.status(1)["round"] > done,
        RECOVERY,
        "another node holds the rendezvous",
    )
    fleet.start(0)
    fleet.until(lambda: len(fleet.status(1)["members"]) == 3, RECOVERY, "it joins where the others are")
    done = fleet.status(1)["round"]
    fleet.until(lambda: fleet.status(1)["round"] > done, RECOVERY, "three nodes train")
    assert [fleet.stop(index) for index in range(3)] == [0, 0, 0]
    found = fleet.losses(1)
    expected = reference(fleet, max(found))
    worst = max(abs(found[step] - loss) for step, loss in expected.items())
    print(f"silent node left after {silent:.1f} s, host moved in {moved:.1f} s, worst difference {worst:.1e}")
    assert worst < 5e-5


def test_without_its_agent_a_node_waits_and_says_so(fleet: ShardedFleet, serf: SerfFleet) -> None:
    serf.kill("n0")
    fleet.start(0)
    fleet.until(lambda: fleet.status(0)["state"] == "waiting", START, "it waits")
    assert "Serf" in fleet.status(0)["message"]
