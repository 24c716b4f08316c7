"""How many records a reading progress stands for, found by reading them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailtrain.worker.reading.reading_progress import ShardProgress
from tailtrain.worker.reading.records import ChunkStore
from tailtrain.worker.reading.shelf_reader import ShelfReader

if TYPE_CHECKING:
    from pathlib import Path

    from tailtrain.worker.reading.shards import Shard


def records_read(shard: Shard, one: ShardProgress, chunks: Path, *, context: int) -> int:
    """How many records of a shard were completed, to the window."""
    shelves = shard.shelves(one.epoch)
    total = one.epoch * shard.records + sum(shelves[index].records for index in one.finished)
    for index, place in one.begun.items():
        reader = ShelfReader(shard, ChunkStore(chunks), context=context)
        reader.assign(ShardProgress(one.epoch, frozenset(), {index: place}), frozenset({index}))
        assert reader.open()
        opened = reader._open[index]
        assert opened.place == place
        total += place.record + int(opened.block.ends[place.window])
    return total
