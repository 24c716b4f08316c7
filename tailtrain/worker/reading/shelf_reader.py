"""Windows of one shard, from those of its shelves that are this node's to read.

Several shelves are read at once, so that a batch has text from many places of the shard; memory stays bounded
by how much text is at hand.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING

from tailtrain.worker.reading.open_shelf import OpenShelf
from tailtrain.worker.reading.reading_progress import START, ShardProgress, progress_of

if TYPE_CHECKING:
    from tailtrain.worker.reading.blocks import Bytes
    from tailtrain.worker.reading.records import ChunkStore
    from tailtrain.worker.reading.shards import Shard, Shelf

_BYTES_AT_HAND = 4 << 20  # another shelf is opened below this
_MOST_OPEN = 64  # places of begun shelves are in every message about progress
_GOLDEN = (math.sqrt(5) - 1) / 2


class ShelfReader:
    """Reads a part of a shard's epoch, or the whole shard, epoch after epoch.

    Shelves are opened in reading order; one of which a chunk is not here is passed over until it is. Where
    one node reads all of a shard and has its chunks, the open shelves are the first that are not finished,
    begun or not, so they follow from the progress alone, and so does whose turn it is: who goes on from there
    reads the same batches.
    """

    def __init__(self, shard: Shard, store: ChunkStore, *, context: int) -> None:
        self.shard = shard
        self._store, self._context = store, context
        self._progress = ShardProgress()
        self._whole = True
        self._queue: list[int] = []
        self._open: dict[int, OpenShelf] = {}  # in the order of their numbers
        self._left: dict[int, float] = {}  # of the open ones, in the same order
        self._taken = 0  # of the open ones together: OpenShelf.taken
        self._looked = -1  # the store's arrivals when no other shelf could be opened
        self._share_before, self._records, self._unopened = 0.0, 0, 0

    def assign(self, progress: ShardProgress, part: frozenset[int] | None) -> None:
        """Read on from here: the shelves of `part` that are not finished, or all of the shard.

        A shelf that is open stays open if nothing about it has changed.
        """
        self._whole = part is None
        same_epoch = progress.epoch == self._progress.epoch
        self._progress = progress
        wanted = range(self.shard.size) if part is None else sorted(part)
        left = [index for index in wanted if index not in progress.finished]
        still = set(left)
        self._open = {
            index: shelf
            for index, shelf in self._open.items()
            if same_epoch and index in still and progress.begun.get(index, START) == shelf.place
        }
        self._count()
        self._begin(left)

    def _begin(self, queue: list[int]) -> None:
        """Have these shelves to read, in this order, those that are open among them."""
        self._queue = queue
        shelves = self.shard.shelves(self._progress.epoch)
        begun = self._progress.begun
        self._share_before = self._progress.share(self.shard)
        left = {index: shelves[index].records - begun.get(index, START).done for index in queue}
        self._records = sum(left.values())
        self._unopened = self._records - sum(left[index] for index in self._open)
        self._looked = -1

    @property
    def progress(self) -> ShardProgress:
        """What was assigned, and what has been read since."""
        if not self._open:
            return self._progress
        begun = {**self._progress.begun, **{index: shelf.place for index, shelf in self._open.items()}}
        return progress_of(self._progress.epoch, self._progress.finished, begun, self.shard.size)

    @property
    def opened(self) -> tuple[int, ...]:
        """The shelves that are being read."""
        return tuple(self._open)

    @property
    def done(self) -> float:
        """Epochs done, if those who read the rest of the shard are as far with it as this node is here.

        Exact to the window; of a shard that is read as a whole it follows from the places alone, wherever
        reading began.
        """
        if not self._records:
            return self._progress.epoch + 1.0
        left = self._unopened + math.fsum(self._left.values())
        if self._whole:
            return self._progress.epoch + 1.0 - left / self.shard.records
        part = 1.0 - left / self._records
        return self._progress.epoch + self._share_before + (1.0 - self._share_before) * part

    def open(self) -> bool:
        """Have shelves open, those next in turn of which all chunks are here; whether there is one.

        Raises:
            WorkerError: a chunk has no text, or fewer records than the share names.
        """
        while self._looked != self._store.arrivals:
            arrivals = self._store.arrivals  # a chunk that arrives while this looks is for the next look
            if not (self._room and self._open_next()):
                self._looked = arrivals
        return bool(self._open)

    @property
    def _room(self) -> bool:
        """Whether one more shelf may be open, and there is one."""
        return (
            len(self._open) < min(_MOST_OPEN, len(self._queue))
            and sum(shelf.bytes for shelf in self._open.values()) < _BYTES_AT_HAND
        )

    def _open_next(self) -> bool:
        shelves = self.shard.shelves(self._progress.epoch)
        for index in self._queue:
            if index in self._open or not all(
                self._store.present(own.chunk) for own in shelves[index].ranges
            ):
                continue
            if (opened := self._load(shelves[index])) is not None:
                self._unopened -= shelves[index].records - self._progress.begun.get(index, START).done
                self._open = dict(sorted([*self._open.items(), (index, opened)]))
                self._count()
                return True
        return False

    def next_window(self) -> tuple[Bytes, int]:
        """One window of `context` + 1 bytes, and how many records it completed.

        Raises:
            IndexError: there is none; `open` says so.
            WorkerError: as for `open`.
        """
        if not self.open():
            raise IndexError("no window is here")
        shelf = self._drawn()
        before = shelf.taken
        window, completed = shelf.next_window()
        self._taken += shelf.taken - before
        self._left[shelf.index] = shelf.left
        if shelf.finished:
            self._finish(shelf.index)
        return window, completed

    def _drawn(self) -> OpenShelf:
        """The shelf whose turn it is: all alike, and at the end of an epoch so that they finish together.

        Multiples of the golden ratio are spread evenly over 0 to 1 (Weyl 1916). What is multiplied rises by
        one with each window of a block, and follows from the places of the open shelves: there is no other
        state.
        """
        shelves = list(self._open.values())
        at = self._taken * _GOLDEN % 1.0
        if len(shelves) < len(self._queue):
            return shelves[int(at * len(shelves))]
        left = list(accumulate(self._left.values()))
        return shelves[min(bisect_right(left, at * left[-1]), len(shelves) - 1)]

    def _count(self) -> None:
        self._left = {index: shelf.left for index, shelf in self._open.items()}
        self._taken = sum(shelf.taken for shelf in self._open.values())

    def ahead(self, count: int) -> list[str]:
        """The chunks of the shelves that come next, those not included that are open."""
        shelves = self.shard.shelves(self._progress.epoch)
        queue = [index for index in self._queue if index not in self._open]
        return [owned.chunk for index in queue[:count] for owned in shelves[index].ranges]

    def _finish(self, shelf: int) -> None:
        del self._open[shelf]
        self._count()
        self._queue.remove(shelf)
        self._looked = -1
        before = self._progress
        self._progress = progress_of(before.epoch, before.finished | {shelf}, before.begun, self.shard.size)
        if self._whole and self._progress.epoch > before.epoch:
            self._begin(list(range(self.shard.size)))

    def _load(self, shelf: Shelf) -> OpenShelf | None:
        """Open a shelf where it was left; None if a chunk turns out to be damaged."""
        if any(self._store.problem(chunk) for chunk in dict.fromkeys(own.chunk for own in shelf.ranges)):
            return None
        return OpenShelf(
            shelf,
            [text for own in shelf.ranges for text in self._store.texts(own.chunk, own.start, own.stop)],
            self.shard,
            epoch=self._progress.epoch,
            place=self._progress.begun.get(shelf.index, START),
            context=self._context,
        )
