"""Whole runs with eneGossip: real workers, each with a real Serf agent beside it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
from contextlib import contextmanager, suppress
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("msgpack", reason="needs the worker environment")
if shutil.which("serf") is None:
    pytest.skip("needs Debian's serf package", allow_module_level=True)

from tailtrain.worker.config import load_config
from tailtrain.worker.reading.reading_progress import ShardProgress, progress_from_json
from tailtrain.worker.reading.supply import load_shards
from tests.worker.counting import records_read
from tests.worker.serf_fleet import SerfFleet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.worker.conftest import Fleet

    MakeRun = Callable[..., "GossipRun"]


_CYCLE_SECONDS = 0.5


class GossipRun:
    """Workers of a fleet, and an agent for each."""

    def __init__(self, fleet: Fleet, agents: SerfFleet, *, all_each: int) -> None:
        self.fleet, self.agents = fleet, agents
        for index, config in enumerate(fleet.configs):
            agents.start(f"n{index}", watched=False)
            config["coordination"] |= {"all_each": all_each, "gossip": str(agents.config(f"n{index}"))}

    def anchors(self, index: int) -> list[dict[str, Any]]:
        """What a node wrote about averagings of all."""
        return [line for line in self.fleet.progress(index) if line["all"]]

    def pairs(self, *indices: int) -> dict[tuple[int, tuple[str, ...]], dict[str, Any]]:
        """Averagings of pairs, by round and members, as any of these nodes wrote them."""
        return {
            (line["round"], tuple(member["node"] for member in line["group"])): line
            for index in indices or range(self.fleet.size)
            for line in self.fleet.progress(index)
            if not line["all"]
        }

    def nothing_is_lost_or_twice(self, index: int) -> None:
        """All that was averaged up to a node's newest checkpoint is in it: each token and record once."""
        newest = max(self.fleet.run_dir(index).glob("checkpoints/round-*"))
        state = json.loads((newest / "state.json").read_bytes())
        lines = {line["round"]: line for each in range(self.fleet.size) for line in self.anchors(each)}
        members = [m for line in lines.values() if line["round"] <= state["round"] for m in line["group"]]
        # A member whose end of a pair's averaging failed keeps its work, and brings it to its next one.
        for each in range(self.fleet.size):
            pairs = [line for line in self.pairs(each).values() if line["round"] <= state["round"]]
            members += [m for line in pairs for m in line["group"] if m["node"] == f"n{each}"]
        assert sum(m["tokens"] for m in members) == sum(tokens for tokens, _, _ in state["ledger"].values())
        trained: dict[str, int] = {}
        for member in members:
            own = member["records"] - sum(member["for"].values())
            for node, count in {**member["for"], member["node"]: own}.items():
                trained[node] = trained.get(node, 0) + count
        shards = load_shards(load_config(self.fleet.write_config(index)))
        progress = progress_from_json(state["progress"], shards, "checkpoint")
        read = dict.fromkeys(trained, 0)
        for key, shard in shards.by_key.items():
            one = progress.get(key, ShardProgress())
            read[key[1]] += records_read(shard, one, self.fleet.chunks(index), context=32)
        assert trained == read

    def log(self, index: int) -> str:
        return (self.fleet.root / f"n{index}.log").read_text()

    def status(self, index: int) -> dict[str, Any]:
        return self.fleet.status(index)


@pytest.fixture
def make_run(make_fleet: Callable[..., Fleet], tmp_path: Any) -> Iterator[MakeRun]:
    agents: list[SerfFleet] = []

    def make(size: int, *, all_each: int, quorum: int, **training: Any) -> GossipRun:
        fleet = make_fleet(size, protocol="eneGossip", quorum=quorum, **training)
        agents.append(SerfFleet(tmp_path / "agents", [f"n{index}" for index in range(size)]))
        return GossipRun(fleet, agents[-1], all_each=all_each)

    yield make
    for each in agents:
        each.close()


def test_four_nodes_average_in_pairs_and_all_together_and_end_equal(make_run: MakeRun) -> None:
    run = make_run(4, all_each=3, quorum=3, round_seconds=1.5, target_tokens=1_200_000)
    run.fleet.start()
    assert run.fleet.wait(400) == [0, 0, 0, 0]
    assert {run.status(index)["state"] for index in range(4)} == {"finished"}
    assert len({run.status(index)["weights_sha256"] for index in range(4)}) == 1
    numbers = sorted({line["round"] for index in range(4) for line in run.anchors(index)})
    assert all(1 <= later - earlier <= 3 for earlier, later in pairwise(numbers))
    pairs = run.pairs()
    assert pairs, "there were rounds of pairs"
    assert all(len(group) == 2 for _, group in pairs)
    assert all(number not in numbers for number, _ in pairs)
    run.nothing_is_lost_or_twice(0)
    for index in range(4):
        assert all(0 <= m["work_share"] <= 1 for line in run.fleet.progress(index) for m in line["group"])
        views = run.status(index)["views"]
        assert views["equal"], views
        assert views["live"] == ["n0", "n1", "n2", "n3"]


def test_nodes_die_and_return_between_averagings_of_all(make_run: MakeRun, record_property: Any) -> None:
    run = make_run(4, all_each=3, quorum=3, round_seconds=1.0)
    fleet = run.fleet
    fleet.start()
    fleet.until(lambda: len(run.anchors(0)) > 0 and len(run.pairs(3)) > 0, 90, "n3 averaged in a pair")
    fleet.until(lambda: "with" in run.status(0)["message"], 60, "a round of pairs")
    seen = len(run.anchors(0))
    fleet.kill(3)
    run.agents.kill("n3")
    fleet.until(lambda: "n3" not in _members(run.anchors(0)[-1]), 60, "the others averaged without n3")
    *usual, late = [line["ended_unix"] - line["due_unix"] for line in run.anchors(0)]
    cost = late - sum(usual) / len(usual)
    record_property("seconds that a killed node costs the others", cost)
    print(f"a killed node costs the others {cost:.1f} s")
    assert len(run.anchors(0)) <= seen + 2
    # In an averaging of all or of a pair: whoever takes something over may be done with it before the next.
    fleet.until(
        lambda: any(_helped(fleet.progress(index)) for index in range(3)),
        60,
        "what n3 left is trained by the others",
    )
    fleet.until(lambda: any(line["deaths"] for line in fleet.progress(0)), 60, "n3's death is told")
    death = next(line["deaths"][0] for line in fleet.progress(0) if line["deaths"])
    assert death["node"] == "n3"
    record_property("seconds until a death is certain", death["seconds"])
    print(f"it is certain {death['seconds']:.1f} s after the last sign of life")

    run.agents.kill("n1")
    fleet.until(lambda: "the local agent is away" in run.log(1), 30, "n1 says that its agent is away")
    fleet.until(lambda: "n1 is dead" in run.log(0), 60, "to the others n1 looks dead")
    before = run.anchors(0)[-1]["round"]
    fleet.until(lambda: run.anchors(0)[-1]["round"] > before, 60, "training goes on")
    assert "n1" in _members(run.anchors(0)[-1]), "it announces that it is there"
    run.agents.start("n1", watched=False)

    run.agents.start("n3", watched=False)
    fleet.start(3)
    fleet.until(lambda: "n3" in _members(run.anchors(0)[-1]), 90, "n3 is back")
    assert next(m for m in run.anchors(3)[-1]["group"] if m["node"] == "n3")["tokens"] >= 0
    paired = len(run.pairs(3))
    fleet.until(lambda: len(run.pairs(3)) > paired, 60, "n3 averages in pairs again")
    back = run.anchors(0)[-1]["round"]
    fleet.until(lambda: run.anchors(0)[-1]["round"] > back, 60, "all average again")
    assert not any(member["for"] for member in run.anchors(0)[-1]["group"]), "n3 has its shard back"

    run.nothing_is_lost_or_twice(0)

    fleet.kill(2)
    fleet.kill(3)
    fleet.until(lambda: run.status(0)["state"] == "paused", 60, "below two thirds it pauses")
    fleet.until(lambda: "n2, n3" in run.status(0)["message"], 30, "and says for whom it waits")
    rounds = run.anchors(0)[-1]["round"]
    fleet.start(2)
    fleet.until(lambda: run.anchors(0)[-1]["round"] > rounds, 90, "it goes on")


def test_a_node_that_slows_down_gets_less_and_then_more_again(
    make_run: MakeRun, record_property: Any
) -> None:
    run = make_run(2, all_each=1, quorum=2, round_seconds=1.5)
    fleet = run.fleet
    fleet.start()
    fleet.until(lambda: len(run.anchors(0)) >= 5, 90, "some rounds at full speed")
    usual = median(_share(line) for line in run.anchors(0)[2:])
    before = run.anchors(0)[-1]["round"]
    with _slowed(fleet, 1, 0.1):
        fleet.until(lambda: _share(run.anchors(0)[-1]) < 0.6 * usual, 90, "n1 gets less")
        slow = run.anchors(0)[-1]
    record_property("rounds until a slow node gets less", slow["round"] - before)
    print(f"n1's share of {usual:.2f} is {_share(slow):.2f} after {slow['round'] - before} rounds")
    assert 0.6 <= _own(slow)["health"] < 1
    fleet.until(lambda: _share(run.anchors(0)[-1]) > (usual + _share(slow)) / 2, 90, "more again")
    print(f"and {_share(run.anchors(0)[-1]):.2f} after {run.anchors(0)[-1]['round'] - slow['round']} more")
    scaled = [_own(line) for line in run.anchors(0) if line["round"] > slow["round"]]
    assert any(member["train_seconds"] < 0.95 * 1.5 for member in scaled), "less time too"


def _members(line: dict[str, Any]) -> set[str]:
    return {member["node"] for member in line["group"]}


def _helped(lines: list[dict[str, Any]]) -> bool:
    return any(member["for"] for line in lines for member in line["group"])


def _share(line: dict[str, Any]) -> float:
    return float(_own(line)["work_share"])


def _own(line: dict[str, Any]) -> dict[str, Any]:
    """What the line says of n1."""
    return next(member for member in line["group"] if member["node"] == "n1")


@contextmanager
def _slowed(fleet: Fleet, index: int, part: float) -> Iterator[None]:
    """A node runs only so much of the time."""
    over = threading.Event()
    group = fleet.processes[index].pid

    def cycle() -> None:
        while not over.is_set():
            os.killpg(group, signal.SIGSTOP)
            over.wait(_CYCLE_SECONDS * (1 - part))
            os.killpg(group, signal.SIGCONT)
            over.wait(_CYCLE_SECONDS * part)

    thread = threading.Thread(target=cycle)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        with suppress(ProcessLookupError):
            os.killpg(group, signal.SIGCONT)
