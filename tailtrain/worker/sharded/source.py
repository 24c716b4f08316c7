"""Batches that are the same on all nodes, made by each of them from its own chunk files.

The first stage needs a batch's inputs and the last its targets; neither needs a message where all read the
same. The data are one shard of each domain, owned by all: its order follows from the seed and the manifest,
memory stays bounded by a few shelves of each domain, and a checkpoint keeps where reading stands in numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from tailtrain.errors import WorkerError
from tailtrain.worker.reading.batches import BatchStream
from tailtrain.worker.reading.manifests import load_data_set
from tailtrain.worker.reading.reading_progress import progress_from_json, progress_to_json
from tailtrain.worker.reading.records import ChunkStore
from tailtrain.worker.reading.shards import Shard, Shards

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailtrain.worker.config import WorkerConfig
    from tailtrain.worker.reading.batches import Wanted
    from tailtrain.worker.reading.blocks import Bytes

_ALL = "all"
"""Who owns the shards: the order of reading follows from it, so it is the same on all nodes."""


@dataclass(frozen=True)
class Batch:
    """Windows (batch, context + 1) of byte values, and how many records they completed."""

    windows: Bytes
    records: int


class BatchSource(Protocol):
    """Gives the batch of each step in turn; the same on all nodes that were sought to the same step."""

    def batch(self, step: int) -> Batch:
        """The batch of this step, which follows the one that was asked for last."""

    def cursor(self) -> dict[str, Any]:
        """Where reading stands before the next step, for a checkpoint."""

    def seek(self, step: int, cursor: dict[str, Any]) -> None:
        """The next step asked for is this one, of a checkpoint with this cursor."""


class ChunkSource:
    """Batches from this node's chunk files, from the first step on.

    Args:
        config: this node's worker.json, in which every node has all data.

    Raises:
        WorkerError: a manifest is missing or damaged, a chunk is not here, or there is nothing to train on.
    """

    def __init__(self, config: WorkerConfig) -> None:
        data_sets = {domain.domain: load_data_set(config.state_dir, domain) for domain in config.data}
        shards = [Shard(domain.domain, _ALL, domain.ranges, seed=config.seed) for domain in config.data]
        self._shards = Shards(_ALL, shards, taken_over=False)
        if not self._shards.own:
            raise WorkerError("there is nothing to train on", host=config.node, found=", ".join(data_sets))
        self._store = ChunkStore(config.chunk_dir)
        self._stream = BatchStream(
            self._shards, self._store, context=config.model.context, fetch=self._require
        )
        self._size, self._step = config.training.batch_size, 0
        self.seek(0, {})

    def batch(self, step: int) -> Batch:
        """See BatchSource.

        Raises:
            WorkerError: a chunk is missing or damaged, or has no text; or the step is not the next one.
        """
        if step != self._step:
            raise WorkerError("batches are read in their order", found=step, expected=self._step)
        found = self._stream.next_batch(self._size)
        # Who reads less than the others, or something else, would train another model.
        if found is None or len(found.windows) != self._size:
            raise WorkerError("there is too little text to train on", expected=f"{self._size} windows")
        self._step += 1
        return Batch(found.windows, sum(found.records.values()))

    def cursor(self) -> dict[str, Any]:
        """See BatchSource."""
        return progress_to_json(self._stream.progress(), self._shards)

    def seek(self, step: int, cursor: dict[str, Any]) -> None:
        """See BatchSource.

        Raises:
            PeerError: the cursor is none of these data.
            WorkerError: a chunk is not here.
        """
        progress = progress_from_json(cursor, self._shards, "a checkpoint")
        self._stream.assign(progress, {shard.key: None for shard in self._shards.own})
        self._step = step

    def _require(self, lacking: Sequence[Wanted]) -> None:
        """What is read soon must be here: to wait for it would hold up all other nodes."""
        if lacking:
            problem = self._store.problem(lacking[0].chunk)
            raise problem or WorkerError("a chunk is not here", field=lacking[0].chunk)
