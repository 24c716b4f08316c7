"""Windows of one shard, from those of its shelves that are this node's to read.

Memory stays bounded by a shelf: its records are shuffled together and cut into blocks. A position is two
numbers in it, the block's first record and the window in the block, and whoever reads on from there, here or
on another node, sees the same windows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailtrain.worker.reading.blocks import Block, Bytes, cut, groups
from tailtrain.worker.reading.reading_progress import ShardProgress, progress_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tailtrain.worker.reading.records import ChunkStore
    from tailtrain.worker.reading.shards import Shard, Shelf


@dataclass
class _Open:
    """The shelf that is being read: the block at hand, those after it, and the next window."""

    shelf: int
    blocks: Iterator[tuple[int, Block]]
    block: Block
    record: int
    window: int

    @property
    def place(self) -> tuple[int, int]:
        return self.record, self.window


class ShelfReader:
    """Reads a part of a shard's epoch, or the whole shard, epoch after epoch.

    Shelves that were begun come first, then in reading order; one of which a chunk is not here is passed over
    until it is.
    """

    def __init__(self, shard: Shard, store: ChunkStore, *, context: int) -> None:
        self.shard = shard
        self._store, self._context = store, context
        self._progress = ShardProgress()
        self._whole = True
        self._queue: list[int] = []
        self._open: _Open | None = None
        self._looked = -1  # the store's arrivals when no shelf could be opened
        self._share_before, self._records, self._left = 0.0, 0, 0

    def assign(self, progress: ShardProgress, part: frozenset[int] | None) -> None:
        """Read on from here: the shelves of `part` that are not finished, or all of the shard.

        A shelf that is open stays open if nothing about it has changed.
        """
        self._whole = part is None
        same_epoch = progress.epoch == self._progress.epoch
        self._progress = progress
        wanted = range(self.shard.size) if part is None else sorted(part)
        left = [index for index in wanted if index not in progress.finished]
        self._begin(sorted(left, key=lambda index: index not in progress.begun))
        if (opened := self._open) is not None and not (
            same_epoch
            and opened.shelf in self._queue
            and progress.begun.get(opened.shelf, (0, 0)) == opened.place
        ):
            self._open = None
        self._looked = -1

    def _begin(self, queue: list[int]) -> None:
        self._queue = queue
        shelves = self.shard.shelves(self._progress.epoch)
        begun = self._progress.begun
        self._share_before = self._progress.share(self.shard)
        self._records = sum(shelves[index].records - begun.get(index, (0, 0))[0] for index in queue)
        self._left = self._records

    @property
    def progress(self) -> ShardProgress:
        """What was assigned, and what has been read since."""
        opened = self._open
        if opened is None:
            return self._progress
        begun = {**self._progress.begun, opened.shelf: opened.place}
        return progress_of(self._progress.epoch, self._progress.finished, begun, self.shard.size)

    @property
    def opened(self) -> int | None:
        """The shelf that is being read."""
        return self._open.shelf if self._open is not None else None

    @property
    def done(self) -> float:
        """Epochs done, if those who read the rest of the shard are as far with it as this node is here.

        Exact to the window while a shelf is open; of a shard that is read as a whole it follows from the
        place alone, wherever reading began.
        """
        if not self._records:
            return self._progress.epoch + 1.0
        left = float(self._left)
        if (opened := self._open) is not None and opened.window:
            left -= opened.block.records * opened.window / opened.block.windows
        if self._whole:
            return self._progress.epoch + 1.0 - left / self.shard.records
        part = 1.0 - left / self._records
        return self._progress.epoch + self._share_before + (1.0 - self._share_before) * part

    def open(self) -> bool:
        """Have a shelf open, the next one of which all chunks are here; whether there is one.

        Raises:
            WorkerError: a chunk has no text, or fewer records than the share names.
        """
        if self._open is None and self._queue and self._looked != self._store.arrivals:
            arrivals = self._store.arrivals  # a chunk that arrives while this looks is for the next look
            shelves = self.shard.shelves(self._progress.epoch)
            for index in self._queue:
                if all(self._store.present(owned.chunk) for owned in shelves[index].ranges):
                    self._open = self._load(shelves[index])
                if self._open is not None:
                    return True
            self._looked = arrivals
        return self._open is not None

    def next_window(self) -> tuple[Bytes, int]:
        """One window of `context` + 1 bytes, and how many records it completed.

        Raises:
            IndexError: there is none; `open` says so.
            WorkerError: as for `open`.
        """
        if not self.open() or (opened := self._open) is None:
            raise IndexError("no window is here")
        window, completed = opened.block.window(opened.window)
        opened.window += 1
        if opened.window == opened.block.windows:
            self._left -= opened.block.records
            following = next(opened.blocks, None)
            if following is None:
                self._finish(opened.shelf)
            else:
                (opened.record, opened.block), opened.window = following, 0
        return window, completed

    def ahead(self, count: int) -> list[str]:
        """The chunks of the shelves that come next, the open one not included."""
        shelves = self.shard.shelves(self._progress.epoch)
        queue = [index for index in self._queue if self._open is None or index != self._open.shelf]
        return [owned.chunk for index in queue[:count] for owned in shelves[index].ranges]

    def _finish(self, shelf: int) -> None:
        self._open = None
        self._queue.remove(shelf)
        before = self._progress
        self._progress = progress_of(before.epoch, before.finished | {shelf}, before.begun, self.shard.size)
        if self._whole and self._progress.epoch > before.epoch:
            self._begin(list(range(self.shard.size)))

    def _load(self, shelf: Shelf) -> _Open | None:
        """Open a shelf where it was left; None if a chunk turns out to be damaged."""
        if any(self._store.problem(chunk) for chunk in dict.fromkeys(own.chunk for own in shelf.ranges)):
            return None
        texts = [text for own in shelf.ranges for text in self._store.texts(own.chunk, own.start, own.stop)]
        epoch = self._progress.epoch
        self.shard.order(epoch, shelf.index).shuffle(texts)
        record, window = self._progress.begun.get(shelf.index, (0, 0))
        blocks = self._blocks(texts, record, epoch, shelf.index)
        first, block = next(blocks)
        return _Open(shelf.index, blocks, block, first, min(window, block.windows - 1))

    def _blocks(
        self, texts: Sequence[bytes], from_record: int, epoch: int, shelf: int
    ) -> Iterator[tuple[int, Block]]:
        """The shelf's blocks and their first records, from the one with `from_record` on."""
        first = 0
        for group in groups(texts):
            if first + len(group) > from_record:
                yield first, cut(group, self.shard.order(epoch, shelf, first), self._context)
            first += len(group)
