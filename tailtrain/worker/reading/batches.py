"""Batches of a node, drawn from all that is its to read.

Readers are mixed so that all finish their epochs together: each window comes from the one of which the least
is done. So domains are mixed in proportion to the records left, and what was taken over from a lost node ends
about when it would have ended there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tailtrain.worker.reading.reading_progress import NOTHING_READ, Progress, join
from tailtrain.worker.reading.shelf_reader import ShelfReader

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tailtrain.worker.reading.blocks import Bytes
    from tailtrain.worker.reading.records import ChunkStore
    from tailtrain.worker.reading.shards import Shards
    from tailtrain.worker.reading.takeover import Parts

_SHELVES_AHEAD = 2  # of each reader: fetched before they are read, if they are not here


@dataclass(frozen=True)
class Wanted:
    """A chunk that is needed soon and is not here, and whose shard it is of."""

    chunk: str
    node: str


@dataclass(frozen=True)
class Batch:
    """Windows, one per row, and the records that they completed, by the node that owns them."""

    windows: Bytes
    records: Mapping[str, int]


class BatchStream:
    """All readers of a node.

    Args:
        shards: all shards of the run.
        store: the chunks.
        context: bytes in a window.
        fetch: told which chunks are lacking, each time that this changes.
    """

    def __init__(
        self,
        shards: Shards,
        store: ChunkStore,
        *,
        context: int,
        fetch: Callable[[Sequence[Wanted]], None],
    ) -> None:
        self._shards, self._store, self._context, self._fetch = shards, store, context, fetch
        self._readers: dict[tuple[str, str], ShelfReader] = {}
        self._progress: Progress = {}
        self._wanted: list[Wanted] = []
        self._looked: tuple[object, ...] = ()

    def assign(self, progress: Progress, parts: Parts) -> None:
        """Read on from here: these parts of these shards."""
        self._progress = progress
        kept = self._readers
        self._readers = {}
        for key, part in sorted(parts.items()):
            reader = kept.get(key) or ShelfReader(
                self._shards.by_key[key], self._store, context=self._context
            )
            reader.assign(progress.get(key, NOTHING_READ), part)
            self._readers[key] = reader
        self._looked = ()
        self._look_ahead()

    @property
    def empty(self) -> bool:
        """Whether there is nothing to read, now or when something arrives."""
        return not self._readers

    def progress(self) -> Progress:
        """What was assigned, and what has been read since."""
        read = {key: reader.progress for key, reader in self._readers.items()}
        return join([self._progress, read], self._shards)

    def next_batch(self, size: int) -> Batch | None:
        """Up to `size` windows, as many as are here; None if there are none.

        Raises:
            WorkerError: a chunk has no text, or fewer records than a share names.
        """
        windows: list[Bytes] = []
        records: dict[str, int] = {}
        while len(windows) < size:
            ready = [reader for reader in self._readers.values() if reader.open()]
            if not ready:
                break
            reader = min(ready, key=_order)
            window, completed = reader.next_window()
            windows.append(window)
            node = reader.shard.node
            records[node] = records.get(node, 0) + completed
        self._look_ahead()
        return Batch(np.stack(windows), records) if windows else None

    def _look_ahead(self) -> None:
        """Say which chunks are lacking, if anything has changed since the last look."""
        opened = (self._store.changes, *(reader.opened for reader in self._readers.values()))
        if opened == self._looked:
            return
        self._looked = opened
        wanted = {
            chunk: Wanted(chunk, reader.shard.node)
            for reader in self._readers.values()
            for chunk in reader.ahead(_SHELVES_AHEAD)
            if not self._store.present(chunk)
        }
        if list(wanted.values()) != self._wanted:
            self._wanted = list(wanted.values())
            self._fetch(self._wanted)


def _order(reader: ShelfReader) -> tuple[float, tuple[str, str]]:
    return reader.done, reader.shard.key
