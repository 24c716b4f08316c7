"""Batches of a divided model: the same on all nodes, from any checkpoint on, every record once an epoch."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tailtrain.errors import PeerError, WorkerError
from tailtrain.worker.sharded.config import load_sharded
from tailtrain.worker.sharded.source import Batch, ChunkSource
from tests.worker.sharded_fleet import ShardedFleet

MakeFleet = Callable[..., Any]
STEPS = 420  # two epochs and a bit


@pytest.fixture
def fleet(make_fleet: MakeFleet) -> ShardedFleet:
    return ShardedFleet(make_fleet(2), (1.0, 1.0), steps=1)


def source_of(fleet: ShardedFleet, index: int = 0) -> ChunkSource:
    return ChunkSource(load_sharded(fleet.write(index)).worker)


def read(source: ChunkSource) -> list[Batch]:
    return [source.batch(step) for step in range(STEPS)]


def same(one: Batch, other: Batch) -> bool:
    return np.array_equal(one.windows, other.windows) and one.records == other.records


def test_all_nodes_make_the_same_batches(fleet: ShardedFleet) -> None:
    one, other = source_of(fleet, 0), source_of(fleet, 1)
    batches = read(one)
    assert all(same(batch, other.batch(step)) for step, batch in enumerate(batches))
    assert batches[0].windows.shape == (8, 33)
    assert one.cursor() == other.cursor()
    fleet.fleet.configs[1]["seed"] += 1
    differently = source_of(fleet, 1)
    assert not same(batches[0], differently.batch(0))


def test_whoever_begins_at_a_checkpoint_goes_on_as_if_nothing_had_been(fleet: ShardedFleet) -> None:
    source = source_of(fleet)
    batches, cursors = [], []
    for step in range(STEPS):
        cursors.append(json.loads(json.dumps(source.cursor())))
        batches.append(source.batch(step))
    epochs = {entry["all"][1] for cursor in cursors for entry in cursor.values()}
    assert epochs == {0, 1, 2}
    for step in range(0, STEPS, 23):
        resumed = source_of(fleet, 1)
        resumed.seek(step, cursors[step])
        assert all(
            same(batches[later], resumed.batch(later)) for later in range(step, min(STEPS, step + 60))
        ), step


def test_domains_are_mixed_so_that_they_end_together(fleet: ShardedFleet) -> None:
    source = source_of(fleet)
    records = sum(
        stop - start for domain in fleet.fleet.configs[0]["data"] for _, start, stop in domain["ranges"]
    )
    done = step = 0
    while done < records:
        done += source.batch(step).records
        step += 1
    places = {domain: entry["all"][1] for domain, entry in source.cursor().items()}
    # All of them but for what the last batch has of the next epoch.
    assert set(places.values()) <= {0, 1}
    assert done - records < 8 * 32


def test_steps_come_in_their_order_and_from_this_data(fleet: ShardedFleet) -> None:
    source = source_of(fleet)
    source.batch(0)
    with pytest.raises(WorkerError, match="in their order"):
        source.batch(2)
    with pytest.raises(PeerError, match="not acceptable"):
        source.seek(4, {"natural": {"all": ["nonsense"]}})


def test_a_chunk_that_is_missing_or_damaged_is_named_before_anything_else_is_read(
    fleet: ShardedFleet,
) -> None:
    chunks = fleet.fleet.chunks(0)
    names = [chunk for chunk, _, _ in fleet.fleet.configs[0]["data"][0]["ranges"]]
    content = (chunks / names[0]).read_bytes()
    (chunks / names[0]).write_bytes(content[:-1] + b"x")
    source = source_of(fleet)
    with pytest.raises(WorkerError, match=f"a chunk is damaged.*{names[0]}|{names[0]}.*a chunk is damaged"):
        read(source)
    (chunks / names[0]).unlink()
    with pytest.raises(WorkerError, match="a chunk is not here"):
        read(source_of(fleet))
