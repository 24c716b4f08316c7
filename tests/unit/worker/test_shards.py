"""Shards as each node knows them: what one calls its own is what the others expect of it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailtrain.worker.config import WorkerConfig, load_config
from tailtrain.worker.data_config import RowRange, Span
from tailtrain.worker.reading.manifests import Chunk, DataSet
from tailtrain.worker.reading.shards import Shard, shards_of
from tests.unit.worker.test_config import GOOD, PEER_ID

if TYPE_CHECKING:
    from pathlib import Path

NODES = ("architect", "coder", "qfox")
ROWS = (30, 5, 12, 40, 8)
CHUNKS = tuple(Chunk(f"{index}" * 64, 100, rows) for index, rows in enumerate(ROWS))
# In the file they are in another order than they are shared out.
DATA_SETS = {"natural": DataSet(tuple(CHUNKS[place] for place in (3, 0, 4, 2, 1)), (), ())}
# Who owns what: qfox two and a bit chunks, architect the rest of one and a gap later, coder what is left.
SPANS = {
    "qfox": [(0, 0, 2, 4)],
    "architect": [(2, 4, 2, 12), (4, 0, 4, 8)],
    "coder": [(3, 0, 3, 40)],
}


def _ranges(spans: list[tuple[int, int, int, int]]) -> list[list[Any]]:
    found = []
    for first, row, last, stop in spans:
        for index in range(first, last + 1):
            start, end = row if index == first else 0, stop if index == last else ROWS[index]
            found.append([CHUNKS[index].sha256, start, end])
    return found


def _config(folder: Path, node: str, *, sharded: bool = True, tolerant: bool = True) -> WorkerConfig:
    peers = [
        {"node": other, "role": "primary" if other == "qfox" else "compute", "address": "100.64.0.3",
         "port": 45001, "peer_id": PEER_ID[:-1] + other[0].upper()}
        for other in NODES if other != node
    ]  # fmt: skip
    data = {
        "domain": "natural",
        "manifest": "c" * 64,
        "ranges": _ranges(SPANS[node]) if sharded else [[chunk.sha256, 0, chunk.rows] for chunk in CHUNKS],
        "others": {other: SPANS[other] for other in NODES if other != node} if sharded else {},
        "heldout": [],
    }
    document = {
        **GOOD,
        "node": node,
        "role": "primary" if node == "qfox" else "compute",
        "coordination": {**GOOD["coordination"], "peers": peers},
        "training": {**GOOD["training"], "fault_tolerance": tolerant},
        "data": [data],
    }
    path = folder / f"{node}.json"
    path.write_text(json.dumps(document))
    return load_config(path)


def _same(one: Shard, two: Shard) -> bool:
    return (one.key, one.shares, one.records, one.shelves(3)) == (
        two.key,
        two.shares,
        two.records,
        two.shelves(3),
    )


def test_all_nodes_know_the_same_shards(tmp_path: Path) -> None:
    views = [shards_of(_config(tmp_path, node), DATA_SETS) for node in NODES]
    for view in views:
        assert view.nodes == set(NODES)
        assert view.taken_over
        assert all(_same(view.by_key[key], shard) for key, shard in views[0].by_key.items())
    assert {key[1]: shard.records for key, shard in views[0].by_key.items()} == {
        "qfox": 39,
        "architect": 16,
        "coder": 40,
    }
    assert [shard.key for shard in views[1].own] == [("natural", "coder")]


def test_where_every_node_has_all_data_nothing_is_taken_over(tmp_path: Path) -> None:
    view = shards_of(_config(tmp_path, "coder", sharded=False), DATA_SETS)
    assert not view.taken_over
    assert {shard.records for shard in view.by_key.values()} == {sum(ROWS)}
    orders = {view.by_key["natural", node].shelves(0) for node in NODES}
    assert len(orders) == 3, "each in an order of its own"


def test_a_run_that_tolerates_no_loss_takes_nothing_over(tmp_path: Path) -> None:
    assert not shards_of(_config(tmp_path, "coder", tolerant=False), DATA_SETS).taken_over


@pytest.mark.parametrize("stop", [(1, 5), (2, 0)])
def test_a_span_may_end_at_a_chunks_end_or_at_the_next_ones_beginning(
    tmp_path: Path, stop: tuple[int, int]
) -> None:
    config = _config(tmp_path, "coder")
    config.data[0].others["qfox"] = (Span(0, 0, *stop),)  # type: ignore[index]  # as it would have been read
    shard = shards_of(config, DATA_SETS).by_key["natural", "qfox"]
    expected = Shard(
        "natural",
        "qfox",
        [RowRange(CHUNKS[0].sha256, 0, 30), RowRange(CHUNKS[1].sha256, 0, 5)],
        seed=config.seed,
    )
    assert _same(shard, expected)


@given(counts=st.lists(st.integers(1, 50), max_size=40), epochs=st.lists(st.integers(0, 9), max_size=6))
def test_an_epochs_shelves_are_the_shard(counts: list[int], epochs: list[int]) -> None:
    shard = Shard("d", "n", [RowRange(f"{index}", 0, rows) for index, rows in enumerate(counts)], seed=3)
    for epoch in epochs:
        shelves = shard.shelves(epoch)
        assert len(shelves) == shard.size
        assert sum(shelf.records for shelf in shelves) == shard.records == sum(counts)
