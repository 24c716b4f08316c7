"""Real workers, one of which is lost: the others fetch its chunks and train its records in the same run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tailtrain.data.packs import PACK_FOLDER, packs_of
from tailtrain.worker.config import load_config
from tailtrain.worker.reading.reading_progress import ShardProgress, progress_from_json
from tailtrain.worker.reading.supply import load_shards
from tests.worker.counting import records_read

if TYPE_CHECKING:
    from tailtrain.worker.reading.shards import Shard

MakeFleet = Callable[..., Any]
LOST = 2


def _own(fleet: Any, index: int) -> list[str]:
    return [chunk for domain in fleet.configs[index]["data"] for chunk, _, _ in domain["ranges"]]


def _only_own_chunks(fleet: Any) -> Path:
    """Each node keeps its own chunks and, of three, half of each other's; all are kept aside."""
    aside = Path(fleet.root / "all")
    aside.mkdir()
    for path in fleet.chunks(0).iterdir():
        (aside / path.name).write_bytes(path.read_bytes())
    for owner in range(fleet.size):
        for number, chunk in enumerate(_own(fleet, owner)):
            keeper = (owner + 1 + number % (fleet.size - 1)) % fleet.size
            for index in set(range(fleet.size)) - {owner, keeper}:
                (fleet.chunks(index) / chunk).unlink()
    return aside


def _read(
    fleet: Any, index: int
) -> tuple[dict[tuple[str, str], ShardProgress], dict[tuple[str, str], Shard]]:
    """How far all shards have been read, as a node's newest checkpoint has it."""
    shards = load_shards(load_config(fleet.write_config(index)))
    newest = max(fleet.run_dir(index).glob("checkpoints/round-*"))
    raw = json.loads((newest / "state.json").read_bytes())["progress"]
    return dict(progress_from_json(raw, shards, "checkpoint")), shards.by_key


def _trained(fleet: Any, index: int) -> dict[str, int]:
    """Records of each node's shards that were completed in the rounds that a node committed."""
    trained: dict[str, int] = {}
    for line in fleet.progress(index):
        for member in line["group"]:
            helped = sum(member["for"].values())
            trained[member["node"]] = trained.get(member["node"], 0) + member["records"] - helped
            for node, count in member["for"].items():
                trained[node] = trained.get(node, 0) + count
    return trained


def _nothing_lost_or_twice(fleet: Any, index: int, aside: Path) -> None:
    """The records that were counted in rounds are those which the progress says were read."""
    progress, shards = _read(fleet, index)
    trained = _trained(fleet, index)
    for node in trained:
        read = sum(
            records_read(shard, progress.get(key, ShardProgress()), aside, context=32)
            for key, shard in shards.items()
            if key[1] == node
        )
        assert trained[node] == read, node


def _epochs(fleet: Any, index: int, node: int) -> list[float]:
    lines = fleet.progress(index)
    return [sum(nodes[f"n{node}"]) for nodes in lines[-1]["epochs"].values()] if lines else [0.0]


def _round_seconds(lines: list[dict[str, Any]]) -> list[float]:
    return [line["averaging_seconds"] for line in lines]


def test_what_a_lost_node_leaves_is_fetched_and_trained_by_the_others(
    make_fleet: MakeFleet, serve: Callable[[Any, int], None]
) -> None:
    fleet = make_fleet(3, quorum=2, records=(12000, 800), rows=100)
    aside = _only_own_chunks(fleet)
    for index in range(2):  # the lost node's own server is lost with it
        serve(fleet, index)
    fleet.start()
    fleet.until(lambda: len(fleet.progress(0)) >= 1, 60, "a round of three")
    fleet.kill(LOST)
    before = len(fleet.progress(0))
    at_the_end = fleet.progress(0)[-1]["epochs"]
    assert max(sum(nodes["n2"]) for nodes in at_the_end.values()) < 0.9, "there is something left"
    fleet.until(lambda: min(_epochs(fleet, 0, LOST)) >= 1.0, 240, "its epoch is complete")
    for index in range(2):
        fleet.stop(index)
    lines = fleet.progress(0)[before:]
    usual = sorted(_round_seconds(lines))[:-1]
    assert max(_round_seconds(lines)) < 8, "the round in which it was lost"
    assert usual[-1] < 2
    helped = {member["node"] for line in lines for member in line["group"] if member["for"].get("n2")}
    assert helped == {"n0", "n1"}
    for index in range(2):
        log = (fleet.root / f"n{index}.log").read_text()
        assert "chunks of n2's shard" in log
        assert f"chunks of n2's shard come from n{1 - index}" in log
        assert fleet.status(index)["state"] == "stopped"
    both = {path.name for index in range(2) for path in fleet.chunks(index).iterdir()}
    assert both >= set(_own(fleet, LOST))
    _nothing_lost_or_twice(fleet, 0, aside)


def test_a_node_that_returns_gets_its_shard_back_and_nothing_is_trained_twice(
    make_fleet: MakeFleet, serve: Callable[[Any, int], None]
) -> None:
    fleet = make_fleet(3, quorum=2, records=(12000, 800), rows=100)
    aside = _only_own_chunks(fleet)
    for index in range(2):
        serve(fleet, index)
    fleet.start()
    fleet.until(lambda: all(len(fleet.progress(index)) >= 1 for index in range(3)), 60, "a round of three")
    fleet.kill(LOST)
    fleet.until(
        lambda: any(member["for"] for line in fleet.progress(0) for member in line["group"]), 60, "they help"
    )
    fleet.start(LOST)
    fleet.until(lambda: len(fleet.progress(0)[-1]["group"]) == 3, 60, "it is back")
    back = fleet.progress(0)[-1]["round"]
    fleet.until(lambda: fleet.progress(0)[-1]["round"] >= back + 3, 60, "three more rounds")
    fleet.until(lambda: min(_epochs(fleet, 0, LOST)) >= 1.0, 240, "an epoch")
    for index in range(3):
        fleet.stop(index)
    lines = {
        line["round"]: {member["node"]: member for member in line["group"]} for line in fleet.progress(0)
    }
    returns = 0
    for number in sorted(set(lines) - {0}):
        members = lines[number]
        was_there = "n2" in lines[number - 1]
        helped = any(member["for"].get("n2") for member in members.values())
        assert not (was_there and helped), "a node that was in the last averaging has its shard to itself"
        if "n2" in members:
            assert (members["n2"]["tokens"] > 0) == was_there, "in its first round it reads nothing"
            returns += not was_there
    assert returns >= 1
    _nothing_lost_or_twice(fleet, 0, aside)
    views = [{line["round"]: line["epochs"] for line in fleet.progress(index)} for index in range(3)]
    for number in set(views[0]) & set(views[1]) & set(views[2]):
        assert views[0][number] == views[1][number] == views[2][number], "all know the same"


def test_own_chunks_that_are_missing_or_damaged_come_from_the_backend(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(1, quorum=1, target_tokens=150_000)
    backend = fleet.root / "backend" / "folder" / PACK_FOLDER
    backend.mkdir(parents=True)
    for manifest in (fleet.state(0) / "manifests").glob("*.json"):
        raw = json.loads(manifest.read_bytes())
        for pack in packs_of([(chunk["sha256"], chunk["bytes"]) for chunk in raw["train"] + raw["heldout"]]):
            content = b"".join((fleet.chunks(0) / chunk).read_bytes() for chunk, _ in pack.chunks)
            (backend / pack.name).write_bytes(content)
    storage = fleet.root / "storage.conf"
    storage.write_text(f"[fleet]\ntype = alias\nremote = {fleet.root / 'backend'}\n")
    storage.chmod(0o600)
    fleet.configs[0]["storage"]["remote"] = {"path": "fleet:folder", "config": str(storage), "flags": []}
    missing, damaged = _own(fleet, 0)[:2]
    good = (fleet.chunks(0) / damaged).read_bytes()
    (fleet.chunks(0) / missing).unlink()
    (fleet.chunks(0) / damaged).write_bytes(good[:-9] + b"something")
    fleet.start()
    assert fleet.wait(90) == [0]
    assert fleet.status(0)["state"] == "finished"
    assert fleet.status(0)["fetching"] == ""
    assert (fleet.chunks(0) / damaged).read_bytes() == good
    assert (fleet.chunks(0) / missing).exists()
    assert "chunks of its own shard come from remote" in (fleet.root / "n0.log").read_text()


def test_without_any_source_a_missing_chunk_ends_the_worker_by_name(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(1, quorum=1)
    missing = _own(fleet, 0)[0]
    (fleet.chunks(0) / missing).unlink()
    fleet.start()
    assert fleet.wait(60) == [1]
    assert "a chunk is not here" in fleet.status(0)["message"]
    assert missing in fleet.status(0)["message"]


def test_a_chunk_that_nobody_has_is_named_and_the_rest_is_trained(make_fleet: MakeFleet) -> None:
    fleet = make_fleet(2, quorum=2)
    missing = _own(fleet, 0)[0]
    for index in range(2):
        (fleet.chunks(index) / missing).unlink()
    fleet.start()
    fleet.until(lambda: len(fleet.progress(0)) >= 2, 60, "they train")
    assert f"chunk {missing} of its own shard cannot be had" in (fleet.root / "n0.log").read_text()
    assert fleet.status(0)["fetching"] == "fetching 1 chunk of its own shard"
    assert fleet.progress(0)[-1]["group"][0]["tokens"] > 0
